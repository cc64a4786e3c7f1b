//! What operations take beside tensors, and lists of all operations, a page for each family.
//!
//! Operations are methods and operators of [`Tensor`](crate::Tensor).

pub use crate::ops::{
    Activation, Causal, Choice, ClassLoss, Conv, Epilogue, PadMode, Pool, Quantized, Reduction,
    Scalar, ScatterReduce,
};
