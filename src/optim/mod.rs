//! Optimizers: they change parameters by their gradients, many in one launch.
//!
//! ```no_run
//! # fn main() -> lapidary::Result<()> {
//! use lapidary::optim::{AdamW, AdamWOptions};
//! use lapidary::{DType, Gpu};
//!
//! let gpu = Gpu::open(Default::default())?;
//! let x = gpu.rand_normal(&[64, 8], 0.0, 1.0, 1, DType::F32)?;
//! let y = x.sum(&[1])?.reshape(&[64, 1])?;
//! let w = gpu.zeros(&[8, 1], DType::F32)?.requires_grad()?;
//! let mut adam = AdamW::new(&[&w], AdamWOptions { lr: 0.1, ..Default::default() })?;
//! for _ in 0..100 {
//!     let loss = (x.matmul(&w)? - &y)?.square()?.mean_all()?;
//!     adam.step(&loss.backward()?)?;
//! }
//! # Ok(())
//! # }
//! ```
//!
//! [`Sgd`] and [`AdamW`] compute PyTorch's formulas. A step waits for nothing, and the learning
//! rate may change between steps without cost. The state of an optimizer is in ordinary tensors
//! with the name `optimizer state`. It counts against the budget, and is evicted under pressure.
//!
//! Small parameters share launches, three a launch (or two for AdamW on devices with eight
//! bindings), and the tensor of their state. A parameter that takes more than 4 MiB with its
//! gradient and state has launches of its own. So the others need not be on the device meanwhile.
//!
//! # Types
//!
//! Parameters may be of any float type. A step computes in f32, and rounds the new parameter once.
//! For parameters of 16 bits there is no copy in f32: a change of less than half a unit in the last
//! place is lost. If that matters, keep the parameter in f32, and `cast` it in the forward pass.
//!
//! The state is f32, or bf16 if `state_dtype` says so, which halves it. State in bf16 is rounded to
//! nearest, and has 8 binary digits. AdamW's second moments then stay where they are instead of
//! shrinking if `betas.1` is above 1 - 2⁻⁹, about 0.998. Use 0.99 or less.
//!
//! # Many parameters
//!
//! [`Parameters`] are the parameters of a model by name. They go to an optimizer and to files in
//! one call, and count their elements and bytes.
//!
//! # Losses in f16
//!
//! [`LossScaler`] multiplies the loss, so that small gradients do not vanish in f16. The device
//! finds out whether gradients are finite, and skips the step if they are not.

mod algorithm;
mod group;
mod optimizer;
mod parameters;
mod scaler;
mod state;

pub use algorithm::{AdamWOptions, SgdOptions};
pub use optimizer::{AdamW, Optimizer, Sgd};
pub use parameters::Parameters;
pub use scaler::{LossScaler, LossScalerOptions};
