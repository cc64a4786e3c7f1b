//! Operations on tensors: one file a family of kernels, named as its WGSL in `shaders/`.

mod argreduce;
mod attention;
mod backward;
mod binary;
mod concat;
mod conv;
mod copy;
pub(crate) mod custom;
mod einsum;
mod elementwise;
pub(crate) mod fill;
mod functions;
mod index_select;
mod layer_norm;
mod matmul;
mod normalize;
mod operation;
mod operators;
mod pool;
pub(crate) mod random;
mod reduce;
mod rows;
mod scalar;
mod select;
mod softmax;
mod text;
mod unary;

#[cfg(test)]
#[path = "tests/check.rs"]
mod check;
#[cfg(test)]
mod tests;

#[cfg(any(test, feature = "sim"))]
pub(crate) mod twin;

pub use conv::Conv;
pub use custom::{Kernel, KernelCall};
pub use pool::Pool;
pub use scalar::Scalar;
