//! Runs WGSL compute kernels on the host, invocation by invocation, and finds faults that devices
//! hide.
//!
//! A device may hide a missing barrier for years. A software adapter runs a workgroup in lockstep,
//! so it hides all of them. Here the order of invocations is random, by a seed. To find a fault
//! needs no luck: a race is two accesses that nothing orders, whichever came first.
//!
//! ```
//! use wgsl_interpreter::{Binding, FindingKind, Kernel};
//!
//! let kernel = Kernel::from_wgsl(
//!     "@group(0) @binding(0) var<storage, read_write> y: array<u32>;
//!     var<workgroup> tile: array<u32, 64>;
//!     @compute @workgroup_size(64)
//!     fn main(@builtin(local_invocation_index) i: u32) {
//!         tile[i] = i;
//!         y[i] = tile[63u - i];
//!     }",
//!     "main",
//! )?;
//! let mut y = [Binding::fresh(0, 0, 256)];
//! let findings = kernel.dispatch([1, 1, 1]).run(&mut y)?;
//! assert_eq!(findings[0].kind, FindingKind::Race);
//! # Ok::<(), wgsl_interpreter::Error>(())
//! ```
//!
//! # What it finds
//!
//! Each [`Finding`] names the invocation, the variable and the line. [`FindingKind`] lists the
//! kinds. A shadow of each word records which invocations wrote and read it, and in which epoch. A
//! barrier ends an epoch of its memory: `workgroupBarrier` that of workgroup memory,
//! `storageBarrier` that of storage, and `subgroupBarrier` both within its subgroup. Two accesses
//! are a race if no epoch separates them, one of them writes, and they are not both atomic.
//!
//! # What it does not model
//!
//! - Textures, samplers, rays, `f64`, integers of 16 bits, and stages other than compute. Such
//!   kernels are [`Error::Unsupported`].
//! - The memory of a device. Every write is visible at once, so a kernel that needs a barrier for
//!   visibility alone may give the right values. The finding tells of the missing barrier.
//! - Atomics as a way to order other accesses. A flag that one invocation sets atomically and
//!   another one awaits counts as a race on the data behind it, as WGSL's relaxed atomics do.
//! - The freedom of a device's floating-point numbers. Operations round as those of the host.
//! - The limits of a device. Only sizes that are too large to be interpreted are refused.
//!
//! # Inside
//!
//! ```text
//!   naga's module ─ compile ─► code ── Dispatch::run ──► group   order and barriers
//!                                                         ├─ lane        steps of an invocation
//!                                                         ├─ collective  operations of a subgroup
//!                                                         ├─ cooperative matrices of a subgroup
//!                                                         └─ memory      words and their history
//!   arithmetic, float, bits, geometry: functions                 └─ shadow   accesses of each word
//!   report: messages
//! ```

mod arithmetic;
mod binding;
mod bits;
mod code;
mod collective;
mod compile;
mod cooperative;
mod dispatch;
mod error;
mod float;
mod geometry;
mod group;
mod kernel;
mod lane;
mod memory;
mod random;
mod report;
mod shadow;
mod together;
mod value;

#[cfg(test)]
mod tests;

pub use binding::Binding;
pub use dispatch::Dispatch;
pub use error::Error;
pub use kernel::Kernel;
pub use report::{Finding, FindingKind};

/// A doctest of the README's example.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
