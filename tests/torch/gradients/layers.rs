//! Products, convolutions, pools and attention.

use lapidary::Tensor;
use lapidary::operations::{Activation, Causal, Conv, Epilogue, Pool, Quantized};

use super::axes::piece;
use super::program::{Call, Given};

pub(super) const ALL: &[(&str, Call)] = &[
    ("matmul", |t, _| t[0].matmul(&t[1])),
    ("linear", |t, _| t[0].linear(&t[1], t.get(2))),
    ("matmul_with", |t, given| {
        t[0].matmul_with(&t[1], &epilogue(t, given))
    }),
    ("matmul_quantized", |t, _| {
        let weights = Quantized {
            values: t[1].cast(lapidary::DType::I8)?,
            scales: t[2].clone(),
        };
        t[0].matmul_quantized(&weights)
    }),
    ("einsum", |t, given| {
        Tensor::einsum(given.text(0), &t.iter().collect::<Vec<_>>())
    }),
    ("scaled_dot_product_attention", |t, given| {
        let causal = [Causal::No, Causal::FirstKey, Causal::LastKey][given.size(0)];
        t[0].scaled_dot_product_attention(&t[1], &t[2], t.get(3), causal, given.optional(1))
    }),
    ("rotary", |t, given| t[0].rotary(&t[1], &t[2], given.is(0))),
    ("conv1d", |t, given| {
        t[0].conv1d(&t[1], t.get(2), &convolution(given))
    }),
    ("conv2d", |t, given| {
        t[0].conv2d(&t[1], t.get(2), &convolution(given))
    }),
];

/// The options say which of columns, bias and residual there are, a factor, and an activation.
fn epilogue(t: &[Tensor], given: &Given) -> Epilogue {
    let mut rest = t[2..].iter();
    let mut end = Epilogue::new().scale(given.float(1));
    for (kind, has) in given.axes(0).into_iter().enumerate() {
        let Some(operand) = (has == 1).then(|| rest.next()).flatten() else {
            continue;
        };
        end = match kind {
            0 => end.scale_columns(operand),
            1 => end.bias(operand),
            _ => end.residual(operand),
        };
    }
    let activation = match given.text(2) {
        "relu" => Activation::Relu,
        "gelu" => Activation::Gelu,
        "gelu_tanh" => Activation::GeluTanh,
        "silu" => Activation::Silu,
        "sigmoid" => Activation::Sigmoid,
        "tanh" => Activation::Tanh,
        _ => return end,
    };
    end.activation(activation)
}

fn convolution<const N: usize>(given: &Given) -> Conv<N> {
    Conv {
        stride: given.sizes_of(0),
        padding: given.sizes_of(1),
        dilation: given.sizes_of(2),
        groups: given.size(3),
    }
}

fn pool<const N: usize>(given: &Given) -> Pool<N> {
    Pool {
        kernel: given.sizes_of(0),
        stride: given.sizes_of(1),
        padding: given.sizes_of(2),
        dilation: given.sizes_of(3),
        ceil_mode: given.is(4),
        count_include_pad: given.is(5),
        divisor_override: given.has(6).then(|| given.size(6)),
    }
}

macro_rules! pools {
    ($($name:ident $backward:ident)*) => {
        &[$(
            (stringify!($name), |t, given| t[0].$name(&pool(given))),
            (stringify!($backward), |t, given| t[0].$backward(&t[1], &pool(given))),
        )*]
    };
}

pub(super) const POOLS: &[(&str, Call)] = pools! {
    max_pool1d max_pool1d_backward
    max_pool2d max_pool2d_backward
    avg_pool1d avg_pool1d_backward
    avg_pool2d avg_pool2d_backward
};

/// Gradients as operations of their own, and adaptive pools.
pub(super) const BACKWARDS: &[(&str, Call)] = &[
    ("conv1d_backward", |t, given| {
        let made = t[0].conv1d_backward(&t[1], &t[2], &convolution(given))?;
        Ok(piece(made, given.size(4)))
    }),
    ("conv2d_backward", |t, given| {
        let made = t[0].conv2d_backward(&t[1], &t[2], &convolution(given))?;
        Ok(piece(made, given.size(4)))
    }),
    ("adaptive_max_pool1d", |t, given| {
        t[0].adaptive_max_pool1d([given.size(0)])
    }),
    ("adaptive_avg_pool1d", |t, given| {
        t[0].adaptive_avg_pool1d([given.size(0)])
    }),
    ("adaptive_max_pool2d", |t, given| {
        t[0].adaptive_max_pool2d([given.size(0), given.size(1)])
    }),
    ("adaptive_avg_pool2d", |t, given| {
        t[0].adaptive_avg_pool2d([given.size(0), given.size(1)])
    }),
    ("adaptive_max_pool1d_backward", |t, _| {
        t[0].adaptive_max_pool1d_backward(&t[1])
    }),
    ("adaptive_avg_pool1d_backward", |t, _| {
        t[0].adaptive_avg_pool1d_backward(&t[1])
    }),
    ("adaptive_max_pool2d_backward", |t, _| {
        t[0].adaptive_max_pool2d_backward(&t[1])
    }),
    ("adaptive_avg_pool2d_backward", |t, _| {
        t[0].adaptive_avg_pool2d_backward(&t[1])
    }),
];
