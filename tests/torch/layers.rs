//! Poolings, convolutions, paddings, batch norms, and products of bytes.

use lapidary::operations::{Conv, PadMode, Pool};

use crate::torch::cases::{self, Call, both, one};

const EDGES: Pool<2> = Pool {
    kernel: [3, 2],
    stride: [2, 2],
    padding: [1, 1],
    dilation: [1, 1],
    ceil_mode: true,
    count_include_pad: true,
    divisor_override: None,
};

const CALLS: &[(&str, Call)] = &[
    ("max_pool2d, dilated", |_, t| {
        let pool = Pool {
            dilation: [2, 1],
            ..EDGES
        };
        both(t[0].max_pool2d_with_indices(&pool))
    }),
    ("max_pool2d, NaN", |_, t| {
        both(t[0].max_pool2d_with_indices(&Pool::new([2, 2])))
    }),
    (
        "avg_pool2d, rounded up",
        |_, t| one(t[0].avg_pool2d(&EDGES)),
    ),
    ("avg_pool2d, without padding", |_, t| {
        let pool = Pool {
            count_include_pad: false,
            ..EDGES
        };
        one(t[0].avg_pool2d(&pool))
    }),
    ("avg_pool2d, a divisor", |_, t| {
        let pool = Pool {
            divisor_override: Some(5),
            ..EDGES
        };
        one(t[0].avg_pool2d(&pool))
    }),
    ("avg_pool1d", |_, t| {
        let pool = Pool {
            stride: [2],
            padding: [1],
            ceil_mode: true,
            ..Pool::new([3])
        };
        one(t[0].avg_pool1d(&pool))
    }),
    ("adaptive_avg_pool2d", |_, t| {
        one(t[0].adaptive_avg_pool2d([3, 4]))
    }),
    ("adaptive_max_pool2d", |_, t| {
        both(t[0].adaptive_max_pool2d_with_indices([3, 9]))
    }),
    ("adaptive_avg_pool1d", |_, t| {
        one(t[0].adaptive_avg_pool1d([4]))
    }),
    ("avg_pool2d_backward", |_, t| {
        let pool = Pool {
            count_include_pad: false,
            ..EDGES
        };
        one(t[0].avg_pool2d_backward(&t[1], &pool))
    }),
    ("max_pool2d_backward", |_, t| {
        let pool = Pool {
            dilation: [2, 1],
            ..EDGES
        };
        one(t[0].max_pool2d_backward(&t[1], &pool))
    }),
    ("adaptive_avg_pool2d_backward", |_, t| {
        one(t[0].adaptive_avg_pool2d_backward(&t[1]))
    }),
    ("conv2d, one sample", |_, t| {
        one(t[0].conv2d(&t[1], None, &Conv::default()))
    }),
    ("conv1d, one sample", |_, t| {
        one(t[0].conv1d(&t[1], Some(&t[2]), &Conv::default()))
    }),
    ("pad, reflect", |_, t| {
        one(t[0].pad_with(&[(0, 0), (0, 0), (2, 1)], PadMode::Reflect))
    }),
    ("pad, replicate", |_, t| {
        one(t[0].pad_with(&[(0, 0), (0, 0), (2, 1)], PadMode::Replicate))
    }),
    ("pad, circular", |_, t| {
        one(t[0].pad_with(&[(0, 0), (0, 0), (2, 1)], PadMode::Circular))
    }),
    ("pad, two axes", |_, t| {
        let widths = [(0, 0), (0, 0), (1, 2), (3, 2)];
        one(t[0].pad_with(&widths, PadMode::Reflect))
    }),
    ("batch_norm", |_, t| {
        one(t[0].batch_norm(&t[1], &t[2], Some(&t[3]), Some(&t[4]), 1e-5))
    }),
    ("batch_norm_train", |_, t| {
        let [y, mean, variance] = t[0].batch_norm_train(Some(&t[1]), Some(&t[2]), 1e-5)?;
        t[3].lerp_(&mean, 0.25)?;
        t[4].lerp_(&variance, 0.25)?;
        Ok(vec![y, t[3].clone(), t[4].clone()])
    }),
    ("batch_norm_train, halves", |_, t| {
        let [y, ..] = t[0].batch_norm_train(None, None, 1e-5)?;
        Ok(vec![y])
    }),
    ("batch_norm_backward", |_, t| {
        let made = t[0].batch_norm_backward(&t[1], Some(&t[2]), 1e-5)?;
        Ok(made.to_vec())
    }),
    ("matmul of u8", |_, t| one(t[0].matmul(&t[1]))),
    ("matmul of i8", |_, t| one(t[0].matmul(&t[1]))),
];

#[test]
fn layers_give_what_pytorch_gives() {
    cases::check("layers", CALLS);
}
