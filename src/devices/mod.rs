//! Several devices: tensors over them, sums of their tensors, training on all of them.
//!
//! Each device is a [`Gpu`](crate::Gpu) with its own memory and its own queue, and no operation
//! crosses devices. [`Tensor::to`](crate::Tensor::to) copies a tensor to another one, and
//! [`Gpu::open_all`](crate::Gpu::open_all) opens all of a machine.
//!
//! * [`split`] and [`gather`] spread a tensor over devices, and bring the parts together.
//! * [`Group`] has the collective operations: [`all_reduce`](Group::all_reduce),
//!   [`broadcast`](Group::broadcast), [`all_gather`](Group::all_gather) and
//!   [`reduce_scatter`](Group::reduce_scatter).
//! * [`Replicas`] trains a model on several devices at once, each with a part of the batch.
//! * [`rows_by_speed`] and [`Balance`] give devices of different speed as many rows as they manage.
//!
//! ```no_run
//! # fn main() -> lapidary::Result<()> {
//! use lapidary::devices::{Group, Reduce, split};
//! use lapidary::{DType, Gpu, Options};
//!
//! let gpus = Gpu::open_all(Options::default())?;
//! let group = Group::new(&gpus)?;
//! let x = gpus[0].rand_normal(&[1024, 64], 0.0, 1.0, 1, DType::F32)?;
//! let mut sums = Vec::new();
//! for part in split(&x, 0, &gpus)? {
//!     sums.push(part.sum(&[0])?); // each on its own device
//! }
//! let everywhere = group.all_reduce(&sums, Reduce::Sum)?;
//! # Ok(())
//! # }
//! ```
//!
//! Bytes go from device to device through the host, in pieces of 4 MiB: while the host works on
//! one, the devices read the next. Where host and device share memory, they are copied once. The
//! host adds in f32, in the order of the devices. So every device gets the same bits, in every run.
//!
//! A browser gives a page one adapter, so this module does not exist there.

mod accumulator;
mod balance;
mod buckets;
mod collectives;
mod exchange;
mod group;
#[doc(hidden)]
pub mod internal;
mod replicas;
mod round;
mod split;

pub use balance::{Balance, rows_by_speed};
pub use group::{Group, Reduce};
pub use replicas::{Backward, Replica, Replicas, ReplicasOptions};
pub use split::{gather, split, split_sizes};
