//! Products, convolutions, pooling, attention.

use lapidary::operations::{Activation, Conv, ConvTranspose, Epilogue, Pool, Quantized};

use super::*;

/// The other factor of a matrix.
const FACTOR: Shape = |rows, columns| vec![columns, rows + 1];
const BIAS: Shape = |rows, _| vec![rows + 1];
const RESULT: Shape = |rows, _| vec![rows, rows + 1];
/// The weight of a linear layer, transposed.
const WEIGHT: Shape = |rows, columns| vec![rows + 1, columns];
const LINES: Shape = |rows, columns| vec![2, rows, columns];
const LINE_WEIGHT: Shape = |rows, _| vec![3, rows, 2];
const PLANES: Shape = |rows, columns| vec![2, rows, columns, columns];
const PLANE_WEIGHT: Shape = |rows, _| vec![3, rows, 2, 2];
const THREE: Shape = |_, _| vec![3];
const LINE_RESULT: Shape = |_, columns| vec![2, 3, columns.saturating_sub(1)];
const PLANE_RESULT: Shape =
    |_, columns| vec![2, 3, columns.saturating_sub(1), columns.saturating_sub(1)];
const LINES_POOLED: Shape = |rows, columns| vec![2, rows, columns / 2];
const PLANES_POOLED: Shape = |rows, columns| vec![2, rows, columns / 2, columns / 2];
const LINES_IN_THREE: Shape = |rows, _| vec![2, rows, 3];
const PLANES_IN_SIX: Shape = |rows, _| vec![2, rows, 2, 3];
const QUERIES: Shape = |rows, columns| vec![2, rows, columns];
const KEYS: Shape = |rows, columns| vec![2, rows + 1, columns];

pub(super) const ALL: &[&[Operation]] = &[FAMILIES, OTHERS];

const FAMILIES: &[Operation] = &[
    family("matmul", PRODUCTS, &[x(MATRIX), x(FACTOR)], |t| {
        one(t[0].matmul(&t[1]))
    }),
    family(
        "matmul, a row",
        FLOATS,
        &[x(|_, columns| vec![1, columns]), x(FACTOR)],
        |t| one(t[0].matmul(&t[1])),
    ),
    family("matmul, a batch", FLOATS, &[x(LINES), x(FACTOR)], |t| {
        one(t[0].matmul(&t[1]))
    }),
    family(
        "matmul_with",
        FLOATS,
        &[
            x(MATRIX),
            x(FACTOR),
            of(DType::F32, BIAS),
            x(BIAS),
            x(RESULT),
        ],
        |t| {
            let end = Epilogue::new()
                .scale(0.5)
                .scale_columns(&t[2])
                .bias(&t[3])
                .activation(Activation::Relu)
                .residual(&t[4]);
            one(t[0].matmul_with(&t[1], &end))
        },
    ),
    family(
        "matmul_quantized_with",
        FLOATS,
        &[
            x(MATRIX),
            of(DType::I8, WEIGHT),
            of(DType::F32, BIAS),
            x(BIAS),
        ],
        |t| {
            let weights = Quantized {
                values: t[1].clone(),
                scales: t[2].clone(),
            };
            let end = Epilogue::new().bias(&t[3]);
            one(t[0].matmul_quantized_with(&weights, &end))
        },
    ),
    family(
        "scaled_dot_product_attention",
        FLOATS,
        &[share(QUERIES), share(KEYS), x(KEYS)],
        |t| one(t[0].scaled_dot_product_attention(&t[1], &t[2], None, false, None)),
    ),
    family(
        "scaled_dot_product_attention, mask",
        FLOATS,
        &[share(QUERIES), share(KEYS), x(KEYS), share(RESULT)],
        |t| one(t[0].scaled_dot_product_attention(&t[1], &t[2], Some(&t[3]), false, None)),
    ),
    family(
        "conv2d",
        FLOATS,
        &[x(PLANES), x(PLANE_WEIGHT), x(THREE)],
        |t| one(t[0].conv2d(&t[1], Some(&t[2]), &Conv::default())),
    ),
    family("max_pool2d", FLOATS, &[x(PLANES)], |t| {
        one(t[0].max_pool2d(&Pool::new([2, 2])))
    }),
    family(
        "max_pool2d_backward",
        FLOATS,
        &[x(PLANES_POOLED), x(PLANES)],
        |t| one(t[0].max_pool2d_backward(&t[1], &Pool::new([2, 2]))),
    ),
    family("avg_pool2d, edges", FLOATS, &[x(PLANES)], |t| {
        let pool = Pool {
            padding: [1, 1],
            count_include_pad: false,
            ..Pool::new([2, 2])
        };
        one(t[0].avg_pool2d(&pool))
    }),
    family(
        "adaptive_max_pool2d_with_indices",
        FLOATS,
        &[x(PLANES)],
        |t| pair(t[0].adaptive_max_pool2d_with_indices([2, 3])),
    ),
    family(
        "adaptive_avg_pool2d_backward",
        FLOATS,
        &[x(PLANES_IN_SIX), x(PLANES)],
        |t| one(t[0].adaptive_avg_pool2d_backward(&t[1])),
    ),
    family(
        "conv2d_backward",
        FLOATS,
        &[x(PLANE_RESULT), x(PLANES), x(PLANE_WEIGHT)],
        |t| {
            let made = t[0].conv2d_backward(&t[1], &t[2], &Conv::default())?;
            Ok(made.to_vec())
        },
    ),
];

/// The types of products.
const PRODUCTS: &[DType] = &[
    DType::F32,
    DType::F16,
    DType::Bf16,
    DType::I32,
    DType::U32,
    DType::U8,
    DType::I8,
];

/// The weights of transposed convolutions.
const LINE_SPREAD: Shape = |rows, _| vec![rows, 3, 2];
const PLANE_SPREAD: Shape = |rows, _| vec![rows, 3, 2, 2];

const OTHERS: &[Operation] = &[
    op(
        "conv_transpose1d",
        FLOATS,
        &[x(LINES), x(LINE_SPREAD), x(THREE)],
        |t| {
            let options = ConvTranspose {
                stride: [2],
                output_padding: [1],
                ..ConvTranspose::default()
            };
            one(t[0].conv_transpose1d(&t[1], Some(&t[2]), &options))
        },
    ),
    op(
        "conv_transpose2d",
        FLOATS,
        &[x(PLANES), x(PLANE_SPREAD), x(THREE)],
        |t| {
            let options = ConvTranspose {
                stride: [2, 1],
                padding: [0, 1],
                ..ConvTranspose::default()
            };
            one(t[0].conv_transpose2d(&t[1], Some(&t[2]), &options))
        },
    ),
    op(
        "conv2d, the same size",
        FLOATS,
        &[x(PLANES), x(PLANE_WEIGHT)],
        |t| {
            let options = Conv {
                padding: Conv::SAME,
                ..Conv::default()
            };
            one(t[0].conv2d(&t[1], None, &options))
        },
    ),
    op("linear", FLOATS, &[x(MATRIX), x(WEIGHT), x(BIAS)], |t| {
        one(t[0].linear(&t[1], Some(&t[2])))
    }),
    op("einsum", FLOATS, &[x(LINES), x(FACTOR)], |t| {
        one(Tensor::einsum("bij,jk->kbi", &[&t[0], &t[1]]))
    }),
    op(
        "matmul_quantized",
        FLOATS,
        &[x(MATRIX), of(DType::I8, WEIGHT), of(DType::F32, BIAS)],
        |t| {
            let weights = Quantized {
                values: t[1].clone(),
                scales: t[2].clone(),
            };
            one(t[0].matmul_quantized(&weights))
        },
    ),
    op(
        "dequantize",
        WIDE,
        &[of(DType::I8, WEIGHT), of(DType::F32, BIAS)],
        |t| {
            let weights = Quantized {
                values: t[0].clone(),
                scales: t[1].clone(),
            };
            one(weights.dequantize())
        },
    ),
    op("quantize", FLOATS, &[x(MATRIX)], |t| {
        let made = t[0].quantize(None)?;
        Ok(vec![made.values, made.scales])
    }),
    op(
        "quantize, groups",
        FLOATS,
        &[x(|rows, columns| vec![rows, 3 * columns])],
        |t| {
            let made = t[0].quantize(Some(8))?;
            Ok(vec![made.values, made.scales])
        },
    ),
    op(
        "scaled_dot_product_attention, bools",
        FLOATS,
        &[share(QUERIES), share(KEYS), x(KEYS), mask(RESULT)],
        |t| one(t[0].scaled_dot_product_attention(&t[1], &t[2], Some(&t[3]), true, Some(0.5))),
    ),
    op(
        "conv1d",
        FLOATS,
        &[x(LINES), x(LINE_WEIGHT), x(THREE)],
        |t| one(t[0].conv1d(&t[1], Some(&t[2]), &Conv::default())),
    ),
    op(
        "conv1d_backward",
        FLOATS,
        &[x(LINE_RESULT), x(LINES), x(LINE_WEIGHT)],
        |t| {
            let made = t[0].conv1d_backward(&t[1], &t[2], &Conv::default())?;
            Ok(made.to_vec())
        },
    ),
    op("avg_pool2d", FLOATS, &[x(PLANES)], |t| {
        one(t[0].avg_pool2d(&Pool::new([2, 2])))
    }),
    op("max_pool1d", FLOATS, &[x(LINES)], |t| {
        one(t[0].max_pool1d(&Pool::new([2])))
    }),
    op("avg_pool1d", FLOATS, &[x(LINES)], |t| {
        one(t[0].avg_pool1d(&Pool::new([2])))
    }),
    op(
        "max_pool1d_backward",
        FLOATS,
        &[x(LINES_POOLED), x(LINES)],
        |t| one(t[0].max_pool1d_backward(&t[1], &Pool::new([2]))),
    ),
    op(
        "avg_pool1d_backward",
        FLOATS,
        &[x(LINES_POOLED), x(LINES)],
        |t| one(t[0].avg_pool1d_backward(&t[1], &Pool::new([2]))),
    ),
    op(
        "avg_pool2d_backward",
        FLOATS,
        &[x(PLANES_POOLED), x(PLANES)],
        |t| one(t[0].avg_pool2d_backward(&t[1], &Pool::new([2, 2]))),
    ),
    op("max_pool1d_with_indices", FLOATS, &[x(LINES)], |t| {
        pair(t[0].max_pool1d_with_indices(&Pool::new([2])))
    }),
    op("max_pool2d_with_indices", FLOATS, &[x(PLANES)], |t| {
        pair(t[0].max_pool2d_with_indices(&Pool::new([2, 2])))
    }),
    op("adaptive_max_pool1d", FLOATS, &[x(LINES)], |t| {
        one(t[0].adaptive_max_pool1d([3]))
    }),
    op(
        "adaptive_max_pool1d_with_indices",
        FLOATS,
        &[x(LINES)],
        |t| pair(t[0].adaptive_max_pool1d_with_indices([3])),
    ),
    op("adaptive_avg_pool1d", FLOATS, &[x(LINES)], |t| {
        one(t[0].adaptive_avg_pool1d([3]))
    }),
    op("adaptive_max_pool2d", FLOATS, &[x(PLANES)], |t| {
        one(t[0].adaptive_max_pool2d([2, 3]))
    }),
    op("adaptive_avg_pool2d", FLOATS, &[x(PLANES)], |t| {
        one(t[0].adaptive_avg_pool2d([2, 3]))
    }),
    op(
        "adaptive_max_pool1d_backward",
        FLOATS,
        &[x(LINES_IN_THREE), x(LINES)],
        |t| one(t[0].adaptive_max_pool1d_backward(&t[1])),
    ),
    op(
        "adaptive_avg_pool1d_backward",
        FLOATS,
        &[x(LINES_IN_THREE), x(LINES)],
        |t| one(t[0].adaptive_avg_pool1d_backward(&t[1])),
    ),
    op(
        "adaptive_max_pool2d_backward",
        FLOATS,
        &[x(PLANES_IN_SIX), x(PLANES)],
        |t| one(t[0].adaptive_max_pool2d_backward(&t[1])),
    ),
];
