//! Gradients: a tape of the operations on tensors that need one.
//!
//! [`Tensor::requires_grad`](crate::Tensor::requires_grad) marks a parameter. Operations on it and
//! on what depends on it are recorded. [`Tensor::backward`](crate::Tensor::backward) of a number
//! gives the gradients of the parameters:
//!
//! ```no_run
//! # fn main() -> lapidary::Result<()> {
//! # use lapidary::{DType, Gpu};
//! let gpu = Gpu::open(Default::default())?;
//! let x = gpu.rand_normal(&[64, 8], 0.0, 1.0, 1, DType::F32)?;
//! let y = x.sum(&[1])?.reshape(&[64, 1])?;
//! let w = gpu.zeros(&[8, 1], DType::F32)?.requires_grad()?;
//! for _ in 0..100 {
//!     let loss = (x.matmul(&w)? - &y)?.square()?.mean_all()?;
//!     let gradients = loss.backward()?;
//!     let _no_grad = gpu.no_grad();
//!     w.sub_(&(gradients.get(&w).expect("the loss depends on it") * 0.1)?)?;
//! }
//! # Ok(())
//! # }
//! ```
//!
//! The history of a value is held by its tensors, not by the device. Dropping the last tensor that
//! depends on it frees it. Values that the backward needs are ordinary tensors: they count against
//! the budget and may be evicted. Each is freed as soon as its backward is recorded.
//!
//! The gradient of a broadcast is the sum over what was broadcast. That of any view has the
//! gradient at the viewed elements and 0 elsewhere.

mod backprop;
mod gradients;
mod methods;
mod view;

pub use backprop::Backprop;
pub use gradients::{Gradients, IntoIter, Iter};
pub use methods::NoGrad;
