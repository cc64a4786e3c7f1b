//! All operations, a page for each family, and what they take beside tensors.
//!
//! Operations are methods and operators of [`Tensor`](crate::Tensor), and have PyTorch's names. The
//! guide [from PyTorch](crate::guides::from_torch) lists the differences in names and forms.
//!
//! | page | operations |
//! | --- | --- |
//! | [`creation`] | new tensors; random numbers, each from a seed |
//! | [`shapes`] | views without a copy; concat, pad, repeat, roll |
//! | [`arithmetic`] | `+`, `-`, `*`, `/`, both remainders, powers, bits; scalars; in-place forms; broadcasting |
//! | [`comparison`] | comparison, logic, `where_`, `masked_fill`, clamp, tests for NaN and infinity |
//! | [`functions`] | roots, exponentials, logarithms, trigonometry, error functions, rounding, cast |
//! | [`activations`] | relu, gelu, silu, sigmoid, softplus and others of PyTorch's list |
//! | [`linear_algebra`] | `matmul` with an epilogue in its kernel; `linear`, `einsum`; weights of eight bits |
//! | [`reductions`] | sums, means, extremes, moments, norms over any axes; argmax; running sums |
//! | [`networks`] | attention, embedding, softmax, norms, convolution, pooling, losses, and their gradients |
//! | [`indices`] | select, gather, scatter, index by tensors and masks; sort, top-k |
//!
//! # Element types
//!
//! `f32`, `f16` and `bf16` (on every device), `i32`, `u32`, `u8`, `i8` and `bool`: see
//! [`DType`](crate::DType). Each operation says which types it takes.
//!
//! # Fusion
//!
//! Elementwise work becomes one kernel. lapidary never writes an intermediate result that no
//! variable holds. Sums, maxima, softmax and norms also fuse with the elementwise work before and
//! after them. [`Gpu::fused_kernels`](crate::Gpu::fused_kernels) returns the kernels.
//!
//! # Gradients
//!
//! [`Tensor::backward`](crate::Tensor::backward) computes them: see [`grad`](crate::grad). For a
//! backward by hand, the gradients of softmax, log-softmax, layer norm, batch norm, gelu,
//! convolution and pooling are operations.
//!
//! # How large a tensor may be
//!
//! A tensor is at most as large as a buffer of the device. A binding often covers at most 128 MiB
//! of it. Kernels access a large tensor through several bindings: 7 for each dispatch, where the
//! device has 8.
//!
//! * Elementwise operations, copies, casts, `full` and `concat` use several launches if 7 bindings
//!   are not enough.
//! * All other operations return [`NeverFits`](crate::Error::NeverFits) if their operands and
//!   results need more than 7 bindings together. These are reductions, norms, `matmul`, attention,
//!   convolution, sorting, indexing, `arange`, `eye`, triangles and random numbers.
//! * Your own kernel returns `NeverFits` for a tensor that needs more than one binding.
//!
//! On software adapters loops end early. There the gradients of pooling refuse elements that more
//! than 16,249 windows hold, and those of maxima also windows of more elements. With stride 1 that
//! is from 128 × 128 on.

pub use crate::file_formats::BlockFormat;
pub use crate::kernel::KernelBackward;
pub use crate::ops::{
    Activation, Causal, ClassLoss, Conv, ConvTranspose, Epilogue, PadMode, Pool, Quantized,
    Reduction, Scalar, ScatterReduce, TensorOrNumber, Weight,
};

#[doc = include_str!("operations/activations.md")]
#[doc = crate::ops::unary_table!(activations)]
pub mod activations {}
#[doc = include_str!("operations/arithmetic.md")]
#[doc = crate::ops::binary_table!(numbers)]
#[doc = "\n# Bits"]
#[doc = crate::ops::binary_table!(bits)]
pub mod arithmetic {}
#[doc = include_str!("operations/comparison.md")]
#[doc = crate::ops::unary_table!(comparison)]
#[doc = crate::ops::binary_table!(comparison)]
pub mod comparison {}
#[doc = include_str!("operations/creation.md")]
pub mod creation {}
#[doc = include_str!("operations/functions.md")]
#[doc = crate::ops::unary_table!(functions)]
pub mod functions {}
#[doc = include_str!("operations/indices.md")]
pub mod indices {}
#[doc = include_str!("operations/linear_algebra.md")]
pub mod linear_algebra {}
#[doc = include_str!("operations/networks.md")]
pub mod networks {}
#[doc = include_str!("operations/reductions.md")]
pub mod reductions {}
#[doc = include_str!("operations/shapes.md")]
pub mod shapes {}
