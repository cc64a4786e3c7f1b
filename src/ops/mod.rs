//! Operations on tensors: one file a family of kernels, named as its WGSL in `shaders/`.

mod binary;
mod copy;
mod elementwise;
pub(crate) mod fill;
mod operation;
mod operators;
pub(crate) mod random;
mod scalar;
mod select;
mod text;
mod unary;

#[cfg(any(test, feature = "sim"))]
pub(crate) mod twin;

pub use scalar::Scalar;
