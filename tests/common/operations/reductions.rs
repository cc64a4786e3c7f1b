//! Operations along axes: reductions, norms, softmax, scans, sorting.

use super::*;

/// Reductions over each axis and over both.
macro_rules! reductions {
    ($($dtypes:ident: $($name:ident $keep:ident $all:ident)*;)*) => {
        &[$($(
            op(concat!(stringify!($name), ", columns"), $dtypes, &[x(MATRIX)],
                |t| one(t[0].$name(&[-1]))),
            op(concat!(stringify!($name), ", rows"), $dtypes, &[x(CUBE)],
                |t| one(t[0].$name(&[1]))),
            op(stringify!($keep), $dtypes, &[x(CUBE)], |t| one(t[0].$keep(&[0, 2]))),
            op(stringify!($all), $dtypes, &[x(MATRIX)], |t| one(t[0].$all())),
        )*)*]
    };
}

/// With an argument after the axes.
macro_rules! moments {
    ($($value:literal: $($name:ident $keep:ident $all:ident)*;)*) => {
        &[$($(
            op(stringify!($name), FLOATS, &[x(MATRIX)], |t| one(t[0].$name(&[-1], $value))),
            op(stringify!($keep), FLOATS, &[x(CUBE)], |t| one(t[0].$keep(&[0, 1], $value))),
            op(stringify!($all), FLOATS, &[x(MATRIX)], |t| one(t[0].$all($value))),
        )*)*]
    };
}

const CUBE: Shape = |rows, columns| vec![2, rows, columns];

pub(super) const ALL: &[&[Operation]] = &[
    FAMILIES,
    OTHERS,
    reductions! {
        NUMBERS: prod prod_keepdim prod_all min min_keepdim min_all;
        FLOATS: mean mean_keepdim mean_all logsumexp logsumexp_keepdim logsumexp_all;
        EVERY: any any_keepdim any_all all all_keepdim all_all
            count_nonzero count_nonzero_keepdim count_nonzero_all;
    },
    moments! {
        1: var var_keepdim var_all std std_keepdim std_all;
        2.0: norm norm_keepdim norm_all;
    },
];

const FAMILIES: &[Operation] = &[
    family("sum, columns", NUMBERS, &[x(MATRIX)], |t| {
        one(t[0].sum(&[-1]))
    }),
    family("sum, rows", NUMBERS, &[x(MATRIX)], |t| one(t[0].sum(&[0]))),
    family("sum, the middle", WIDE, &[x(CUBE)], |t| one(t[0].sum(&[1]))),
    family("sum_keepdim, the ends", WIDE, &[x(CUBE)], |t| {
        one(t[0].sum_keepdim(&[0, 2]))
    }),
    family("sum_all", NUMBERS, &[x(MATRIX)], |t| one(t[0].sum_all())),
    family("max", NUMBERS, &[x(MATRIX)], |t| one(t[0].max(&[-1]))),
    family("argmax, columns", NUMBERS, &[x(MATRIX)], |t| {
        one(t[0].argmax(-1))
    }),
    family("argmin, rows", NUMBERS, &[x(MATRIX)], |t| {
        one(t[0].argmin(0))
    }),
    family("softmax, columns", FLOATS, &[x(MATRIX)], |t| {
        one(t[0].softmax(-1))
    }),
    family(
        "softmax, rows",
        FLOATS,
        &[x(CUBE)],
        |t| one(t[0].softmax(1)),
    ),
    family("layer_norm", FLOATS, &[x(MATRIX), x(ROW), x(ROW)], |t| {
        let shape = &t[0].shape()[1..];
        one(t[0].layer_norm(shape, Some(&t[1]), Some(&t[2]), 1e-3))
    }),
    family("group_norm", FLOATS, &[x(PLANES), x(ROW), x(ROW)], |t| {
        let groups = t[0].shape()[1];
        one(t[0].group_norm(groups, Some(&t[1]), Some(&t[2]), 1e-3))
    }),
    family("cumsum, columns", NUMBERS, &[x(MATRIX)], |t| {
        one(t[0].cumsum(-1))
    }),
    family("cumsum, rows", NUMBERS, &[x(CUBE)], |t| one(t[0].cumsum(1))),
    family("cummax, columns", NUMBERS, &[x(MATRIX)], |t| {
        pair(t[0].cummax(-1))
    }),
    family("cummin, rows", EVERY, &[x(CUBE)], |t| pair(t[0].cummin(1))),
    family("sort", NUMBERS, &[x(MATRIX)], |t| {
        pair(t[0].sort(-1, false))
    }),
    family("top_k", NUMBERS, &[x(MATRIX)], |t| {
        pair(t[0].top_k(2, 0, true))
    }),
];

/// A plane for each of as many channels as the matrix has columns.
const PLANES: Shape = |rows, columns| vec![2, columns, rows];

const OTHERS: &[Operation] = &[
    op("max_keepdim", NUMBERS, &[x(CUBE)], |t| {
        one(t[0].max_keepdim(&[0, 2]))
    }),
    op("max_all", NUMBERS, &[x(MATRIX)], |t| one(t[0].max_all())),
    op("log_softmax", FLOATS, &[x(MATRIX)], |t| {
        one(t[0].log_softmax(-1))
    }),
    op(
        "softmax_backward",
        FLOATS,
        &[x(MATRIX), share(MATRIX)],
        |t| one(t[0].softmax_backward(&t[1], -1)),
    ),
    op(
        "log_softmax_backward",
        FLOATS,
        &[x(MATRIX), share(MATRIX)],
        |t| one(t[0].log_softmax_backward(&t[1], -1)),
    ),
    op("rms_norm", FLOATS, &[x(MATRIX), x(ROW)], |t| {
        one(t[0].rms_norm(&t[0].shape()[1..], Some(&t[1]), 1e-3))
    }),
    op(
        "layer_norm_backward",
        FLOATS,
        &[x(MATRIX), x(MATRIX), x(ROW)],
        |t| {
            let shape = &t[0].shape()[1..];
            t[0].layer_norm_backward(&t[1], shape, Some(&t[2]), 1e-3)
                .map(|made| made.to_vec())
        },
    ),
    op(
        "batch_norm",
        FLOATS,
        &[x(PLANES), x(ROW), share(ROW), x(ROW), x(ROW)],
        |t| one(t[0].batch_norm(&t[1], &t[2], Some(&t[3]), Some(&t[4]), 1e-3)),
    ),
    op(
        "batch_norm_train",
        FLOATS,
        &[x(PLANES), x(ROW), x(ROW)],
        |t| {
            let made = t[0].batch_norm_train(Some(&t[1]), Some(&t[2]), 1e-3)?;
            Ok(made.to_vec())
        },
    ),
    op(
        "batch_norm_backward",
        FLOATS,
        &[x(PLANES), x(PLANES), x(ROW)],
        |t| {
            let made = t[0].batch_norm_backward(&t[1], Some(&t[2]), 1e-3)?;
            Ok(made.to_vec())
        },
    ),
    op("argmax_keepdim", NUMBERS, &[x(CUBE)], |t| {
        one(t[0].argmax_keepdim(1))
    }),
    op("argmin_keepdim", NUMBERS, &[x(MATRIX)], |t| {
        one(t[0].argmin_keepdim(-1))
    }),
    op("argmax_all", EVERY, &[x(CUBE)], |t| one(t[0].argmax_all())),
    op(
        "argmin_all",
        EVERY,
        &[x(MATRIX)],
        |t| one(t[0].argmin_all()),
    ),
    op("max_with_indices_keepdim", NUMBERS, &[x(CUBE)], |t| {
        pair(t[0].max_with_indices_keepdim(-2))
    }),
    op("min_with_indices_keepdim", NUMBERS, &[x(MATRIX)], |t| {
        pair(t[0].min_with_indices_keepdim(0))
    }),
    op("max_with_indices_all", NUMBERS, &[x(CUBE)], |t| {
        pair(t[0].max_with_indices_all())
    }),
    op("min_with_indices_all", NUMBERS, &[x(MATRIX)], |t| {
        pair(t[0].min_with_indices_all())
    }),
    op("logcumsumexp", FLOATS, &[x(CUBE)], |t| {
        Ok(vec![t[0].logcumsumexp(1)?, t[0].logcumsumexp(-1)?])
    }),
    op("instance_norm", FLOATS, &[x(PLANES), x(ROW), x(ROW)], |t| {
        one(t[0].instance_norm(Some(&t[1]), Some(&t[2]), 1e-3))
    }),
    op("normalize", FLOATS, &[x(CUBE)], |t| {
        one(t[0].normalize(2, 1, 1e-12))
    }),
    op("cumprod", NUMBERS, &[x(MATRIX)], |t| one(t[0].cumprod(-1))),
    op("argsort", NUMBERS, &[x(MATRIX)], |t| {
        one(t[0].argsort(0, true))
    }),
];
