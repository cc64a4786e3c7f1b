//! Operations on tensors: one file a family of kernels, named as its WGSL in `shaders/`.

mod argreduce;
mod arrange;
mod attention;
mod backward;
mod batch_norm;
mod binary;
mod class_loss;
mod composed;
mod concat;
mod conv;
mod copy;
pub(crate) mod custom;
mod einsum;
pub(crate) mod elementwise;
pub(crate) mod fill;
pub(crate) mod functions;
mod gather;
mod index;
mod index_select;
mod layer_norm;
mod like;
mod long;
mod loss;
mod mask;
mod matmul;
mod multinomial;
mod normalize;
mod operation;
mod operators;
mod pad;
mod pool;
pub(crate) mod probe;
mod quantized;
pub(crate) mod random;
pub(crate) mod readers;
mod reduce;
mod reshape;
mod rotary;
mod rows;
mod scalar;
mod scan;
mod scatter;
mod scatter_into;
mod search_sorted;
mod select;
mod softmax;
mod sort;
mod ternary;
pub(crate) mod text;
mod trial;
mod unary;

#[cfg(test)]
#[path = "tests/check.rs"]
mod check;
#[cfg(test)]
mod tests;

#[cfg(any(test, feature = "sim"))]
pub(crate) mod twin;

pub use attention::Causal;
pub use class_loss::ClassLoss;
pub use conv::Conv;
pub use custom::{Kernel, KernelCall};
pub use loss::Reduction;
pub use matmul::{Activation, Epilogue};
pub use pad::PadMode;
pub use pool::Pool;
pub use quantized::Quantized;
#[cfg(feature = "safetensors")]
pub(crate) use quantized::quantizing;
pub use scalar::Scalar;
pub use scatter::ScatterReduce;
pub use select::Choice;
