//! Operations that take indices, and those that join tensors.

use lapidary::{
    DType,
    operations::{ClassLoss, PadMode, Reduction, ScatterReduce},
};

use super::*;

const SHORT: Shape = |rows, columns| vec![rows, columns.saturating_sub(1)];
const PART: Shape = |rows, columns| vec![rows.saturating_sub(1), columns];

fn rows(rows: usize, _: usize) -> usize {
    rows
}

fn columns(_: usize, columns: usize) -> usize {
    columns
}

pub(super) const ALL: &[&[Operation]] = &[FAMILIES, OTHERS];

const FAMILIES: &[Operation] = &[
    family(
        "index_select, rows",
        NUMBERS,
        &[x(MATRIX), places(OF_ROWS, rows)],
        |t| one(t[0].index_select(0, &t[1])),
    ),
    family(
        "index_select, columns",
        NUMBERS,
        &[x(MATRIX), places(ROW, columns)],
        |t| one(t[0].index_select(1, &t[1])),
    ),
    family(
        "gather",
        NUMBERS,
        &[x(MATRIX), places(SHORT, columns)],
        |t| one(t[0].gather(1, &t[1])),
    ),
    family(
        "scatter",
        NUMBERS,
        &[x(MATRIX), places(MATRIX, columns), x(MATRIX)],
        |t| one(t[0].scatter(1, &t[1], &t[2])),
    ),
    family(
        "scatter_",
        NUMBERS,
        &[x(MATRIX), places(MATRIX, columns), x(MATRIX)],
        |t| written(t, t[0].scatter_(1, &t[1], &t[2])),
    ),
    family(
        "scatter_add",
        NUMBERS,
        &[x(MATRIX), places(MATRIX, columns), x(MATRIX)],
        |t| one(t[0].scatter_add(1, &t[1], &t[2])),
    ),
    family(
        "scatter_reduce",
        NUMBERS,
        &[x(MATRIX), places(MATRIX, columns), x(MATRIX)],
        |t| one(t[0].scatter_reduce(1, &t[1], &t[2], ScatterReduce::Max, true)),
    ),
    family(
        "scatter_reduce_",
        FLOATS,
        &[x(MATRIX), places(MATRIX, columns), x(MATRIX)],
        |t| {
            let done = t[0].scatter_reduce_(1, &t[1], &t[2], ScatterReduce::Mean, false);
            written(t, done)
        },
    ),
    family(
        "concat, rows",
        EVERY,
        &[x(MATRIX), x(PART), x(MATRIX)],
        |t| one(Tensor::concat(&[&t[0], &t[1], &t[2]], 0)),
    ),
    family("concat, columns", EVERY, &[x(MATRIX), x(SHORT)], |t| {
        one(Tensor::concat(&[&t[0], &t[1]], 1))
    }),
    family(
        "rotary",
        FLOATS,
        &[x(WIDE_ROWS), share(MATRIX), share(MATRIX)],
        |t| one(t[0].rotary(&t[1], &t[2], false)),
    ),
    family(
        "nll_loss",
        FLOATS,
        &[x(MATRIX), places(OF_ROWS, columns)],
        |t| one(t[0].nll_loss(&t[1], None, Reduction::None)),
    ),
    family(
        "cross_entropy",
        FLOATS,
        &[x(MATRIX), places(OF_ROWS, columns)],
        |t| one(t[0].cross_entropy(&t[1], None, Reduction::Mean)),
    ),
];

/// Two elements for each element of the matrix's row, and one more.
const WIDE_ROWS: Shape = |rows, columns| vec![rows, 2 * columns + 1];

const OTHERS: &[Operation] = &[
    op(
        "embedding",
        NUMBERS,
        &[x(MATRIX), places(OF_ROWS, rows)],
        |t| one(t[0].embedding(&t[1])),
    ),
    op(
        "take_along",
        NUMBERS,
        &[x(MATRIX), places(MATRIX, rows)],
        |t| one(t[0].take_along(0, &t[1])),
    ),
    op(
        "scatter_add_",
        NUMBERS,
        &[x(MATRIX), places(MATRIX, columns), x(MATRIX)],
        |t| written(t, t[0].scatter_add_(1, &t[1], &t[2])),
    ),
    op(
        "index_add",
        NUMBERS,
        &[x(MATRIX), places(OF_ROWS, rows), x(MATRIX)],
        |t| one(t[0].index_add(0, &t[1], &t[2])),
    ),
    op(
        "index_add_",
        NUMBERS,
        &[x(MATRIX), places(OF_ROWS, rows), x(MATRIX)],
        |t| written(t, t[0].index_add_(0, &t[1], &t[2])),
    ),
    op("stack", EVERY, &[x(MATRIX), x(MATRIX)], |t| {
        one(Tensor::stack(&[&t[0], &t[1]], 1))
    }),
    op("pad", NUMBERS, &[x(MATRIX)], |t| {
        one(t[0].pad(&[(1, 2), (0, 1)], 3))
    }),
    op("pad_with", EVERY, &[x(MATRIX)], |t| {
        let framed = t[0].pad_with(&[(1, 1), (2, 0)], PadMode::Reflect)?;
        let widths = [(0, 1), (2, 1)];
        let prolonged = t[0].pad_with(&widths, PadMode::Replicate)?;
        Ok(vec![
            framed,
            prolonged,
            t[0].pad_with(&widths, PadMode::Circular)?,
        ])
    }),
    op("repeat", EVERY, &[x(MATRIX)], |t| one(t[0].repeat(&[2, 3]))),
    op("repeat_interleave", EVERY, &[x(MATRIX)], |t| {
        one(t[0].repeat_interleave(2, 1))
    }),
    op("roll", EVERY, &[x(MATRIX)], |t| {
        one(t[0].roll(&[1, -2], &[0, 1]))
    }),
    op("one_hot", WIDE, &[places(ROW, columns)], |t| {
        one(t[0].one_hot(4, DType::F16))
    }),
    op("mse_loss", FLOATS, &[x(MATRIX), x(MATRIX)], |t| {
        one(t[0].mse_loss(&t[1], Reduction::Mean))
    }),
    op(
        "binary_cross_entropy",
        FLOATS,
        &[x(MATRIX), x(MATRIX)],
        |t| {
            let probabilities = t[0].sigmoid()?;
            one(probabilities.binary_cross_entropy(&t[1], Reduction::Mean))
        },
    ),
    op(
        "index",
        EVERY,
        &[x(MATRIX), places(OF_ROWS, rows), places(OF_ROWS, rows)],
        |t| one(t[0].index(&[Some(&t[1]), Some(&t[2])])),
    ),
    op(
        "index_put",
        EVERY,
        &[x(MATRIX), places(ROW, columns), x(MATRIX)],
        |t| one(t[0].index_put(&[None, Some(&t[1])], &t[2], true)),
    ),
    op(
        "index_put_",
        EVERY,
        &[x(MATRIX), places(OF_ROWS, rows), x(MATRIX)],
        |t| written(t, t[0].index_put_(&[Some(&t[1])], &t[2], false)),
    ),
    op("masked_select", EVERY, &[x(MATRIX), mask(MATRIX)], |t| {
        one(t[0].masked_select(&t[1]))
    }),
    op("masked_select_first", EVERY, &[x(MATRIX), mask(ROW)], |t| {
        one(t[0].masked_select_first(&t[1], 4))
    }),
    family("search_sorted", NUMBERS, &[x(ROW), x(MATRIX)], |t| {
        one(t[0].search_sorted(&t[1], true))
    }),
    op("multinomial", FLOATS, &[x(MATRIX)], |t| {
        let shares = t[0].multinomial(7, true, 3)?;
        Ok(vec![shares, t[0].multinomial(2, false, 3)?])
    }),
    op("flatten_axes", EVERY, &[x(MATRIX)], |t| {
        one(t[0].flatten_axes(0, -1))
    }),
    op("reshape_infer", EVERY, &[x(MATRIX)], |t| {
        one(t[0].reshape_infer(&[-1, t[0].shape()[0] as isize]))
    }),
    op(
        "cross_entropy_with",
        FLOATS,
        &[x(MATRIX), places(OF_ROWS, rows), x(ROW)],
        |t| {
            let options = ClassLoss {
                weights: Some(&t[2]),
                label_smoothing: 0.25,
                ..ClassLoss::default()
            };
            one(t[0].cross_entropy_with(&t[1], &options))
        },
    ),
    op(
        "cross_entropy_with, probabilities",
        FLOATS,
        &[x(MATRIX), share(MATRIX)],
        |t| one(t[0].cross_entropy_with(&t[1], &ClassLoss::default())),
    ),
    op(
        "nll_loss_with",
        FLOATS,
        &[x(MATRIX), places(OF_ROWS, rows), x(ROW)],
        |t| {
            let options = ClassLoss {
                weights: Some(&t[2]),
                ..ClassLoss::default()
            };
            one(t[0].nll_loss_with(&t[1], &options))
        },
    ),
    op(
        "binary_cross_entropy_with_logits",
        FLOATS,
        &[x(MATRIX), share(MATRIX), x(ROW)],
        |t| one(t[0].binary_cross_entropy_with_logits(&t[1], Some(&t[2]), Reduction::Mean)),
    ),
    op("diagonal", EVERY, &[x(MATRIX)], |t| {
        one(t[0].diagonal(1, 0, 1))
    }),
    op("unfold", EVERY, &[x(MATRIX)], |t| one(t[0].unfold(1, 2, 1))),
    op("movedim", EVERY, &[x(MATRIX)], |t| one(t[0].movedim(0, 1))),
    op("unflatten", EVERY, &[x(MATRIX)], |t| {
        let columns = t[0].shape()[1];
        one(t[0].unflatten(1, &[1, columns]))
    }),
    op("unflatten_infer", EVERY, &[x(MATRIX)], |t| {
        let columns = t[0].shape()[1] as isize;
        one(t[0].unflatten_infer(1, &[-1, columns]))
    }),
    op("unbind", EVERY, &[x(MATRIX)], |t| t[0].unbind(0)),
    op("min_with_indices", EVERY, &[x(MATRIX)], |t| {
        let (values, indices) = t[0].min_with_indices(1)?;
        Ok(vec![values, indices])
    }),
    op("max_with_indices", EVERY, &[x(MATRIX)], |t| {
        let (values, indices) = t[0].max_with_indices(1)?;
        Ok(vec![values, indices])
    }),
    op("glu", FLOATS, &[x(EVEN)], |t| one(t[0].glu(-1))),
    op("split", EVERY, &[x(MATRIX)], |t| t[0].split(2, 1)),
    op("split_sizes", EVERY, &[x(MATRIX)], |t| {
        let rest = t[0].shape()[1].saturating_sub(1);
        t[0].split_sizes(&[1, rest], 1)
    }),
    op("chunk", EVERY, &[x(MATRIX)], |t| t[0].chunk(2, 0)),
    op("tensor_split", EVERY, &[x(MATRIX)], |t| {
        t[0].tensor_split(2, 1)
    }),
    op("tensor_split_at", EVERY, &[x(MATRIX)], |t| {
        t[0].tensor_split_at(&[1, -1], 1)
    }),
    op("hstack", EVERY, &[x(MATRIX), x(SHORT)], |t| {
        one(Tensor::hstack(&[&t[0], &t[1]]))
    }),
    op("vstack", EVERY, &[x(MATRIX), x(ROW)], |t| {
        one(Tensor::vstack(&[&t[0], &t[1]]))
    }),
    op("diag", EVERY, &[x(ROW)], |t| {
        let matrix = t[0].diag(-1)?;
        Ok(vec![matrix.diag(1)?, matrix])
    }),
    op("outer", NUMBERS, &[x(ROW), x(OF_ROWS)], |t| {
        one(t[0].outer(&t[1]))
    }),
    op("nonzero", WIDE, &[mask(MATRIX)], |t| one(t[0].nonzero())),
    op("nonzero_async", WIDE, &[mask(MATRIX)], |t| {
        one(pollster::block_on(t[0].nonzero_async()))
    }),
    op(
        "masked_select_async",
        EVERY,
        &[x(MATRIX), mask(MATRIX)],
        |t| one(pollster::block_on(t[0].masked_select_async(&t[1]))),
    ),
    op("index, masks", EVERY, &[x(MATRIX), mask(OF_ROWS)], |t| {
        one(t[0].index(&[Some(&t[1])]))
    }),
    op(
        "index_put, masks",
        EVERY,
        &[x(MATRIX), mask(ROW), x(OF_ROWS)],
        |t| one(t[0].index_put(&[None, Some(&t[1])], &t[2].unsqueeze(1)?, false)),
    ),
    op(
        "masked_scatter",
        EVERY,
        &[x(MATRIX), mask(ROW), x(MATRIX)],
        |t| one(t[0].masked_scatter(&t[1], &t[2])),
    ),
    op(
        "masked_scatter_",
        EVERY,
        &[x(MATRIX), mask(MATRIX), x(MATRIX)],
        |t| written(t, t[0].masked_scatter_(&t[1], &t[2])),
    ),
    op(
        "repeat_interleave_by",
        EVERY,
        &[x(MATRIX), places(OF_ROWS, rows)],
        |t| one(t[0].repeat_interleave_by(&t[1], 0)),
    ),
    op(
        "repeat_interleave_by_async",
        EVERY,
        &[x(MATRIX), places(ROW, rows)],
        |t| {
            let repeated = t[0].repeat_interleave_by_async(&t[1], 1);
            one(pollster::block_on(repeated))
        },
    ),
    op("one_hot, no count", WIDE, &[places(ROW, columns)], |t| {
        one(t[0].one_hot(None, DType::F16))
    }),
    op(
        "embedding_with",
        NUMBERS,
        &[x(MATRIX), places(ROW, rows)],
        |t| {
            // No slope is that of the row of padding.
            let longer = Tensor::vstack(&[&t[0], &t[0].narrow(0, 0, 1)?])?;
            one(longer.embedding_with(&t[1], -1))
        },
    ),
    op("l1_loss", FLOATS, &[x(MATRIX), x(MATRIX)], |t| {
        one(t[0].l1_loss(&t[1], Reduction::Mean))
    }),
    op("smooth_l1_loss", FLOATS, &[x(MATRIX), x(MATRIX)], |t| {
        one(t[0].smooth_l1_loss(&t[1], 2.0, Reduction::Sum))
    }),
    op(
        "binary_cross_entropy_weighted",
        FLOATS,
        &[x(MATRIX), share(MATRIX), x(ROW)],
        |t| {
            let probabilities = t[0].sigmoid()?;
            one(probabilities.binary_cross_entropy_weighted(&t[1], &t[2], Reduction::Mean))
        },
    ),
    op(
        "binary_cross_entropy_with_logits_weighted",
        FLOATS,
        &[x(MATRIX), share(MATRIX), x(ROW), x(MATRIX)],
        |t| {
            let (weight, positive) = (&t[2], Some(&t[3]));
            one(t[0].binary_cross_entropy_with_logits_weighted(
                &t[1],
                weight,
                positive,
                Reduction::Mean,
            ))
        },
    ),
];

const EVEN: Shape = |rows, columns| vec![rows, 2 * columns];
