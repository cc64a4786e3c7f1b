//! A simulated device: it checks every rule, runs late on purpose, and fails on command.
//!
//! ```text
//!   SimDriver ──┐                      ┌─ contents  buffers, their bytes and their sizes
//!               ├► SimDevice (one lock)┼─ queue     submissions that are not executed yet
//!   SimHandle ──┘                      ├─ work      what a submission does
//!                                      ├─ clock     the time that work takes, if any
//!                                      ├─ interpreted kernels, by `wgsl-interpreter`
//!                                      ├─ mapping   mappings, requested and granted
//!                                      ├─ faults    faults of calls of the driver
//!                                      ├─ files     faults of calls of the file system
//!                                      ├─ reopen    a new device after a loss
//!                                      └─ check     every rule, before anything takes effect
//! ```
//!
//! The engine has the driver, and a test keeps the [`SimHandle`]. Polls and submissions are the
//! time, and the seed decides random events, so a run can be repeated exactly. Only a device with
//! [`SimOptions::keeps_time`] reads a clock.

mod check;
mod clock;
mod contents;
mod counters;
mod device;
mod driver;
mod faults;
mod files;
mod handle;
mod interpreted;
mod mapping;
mod options;
mod queue;
mod reopen;
mod shader;
mod work;

#[cfg(test)]
mod tests;

pub use counters::SimCounters;
pub(crate) use driver::SimDriver;
pub use faults::{Fault, FaultKind, Repeat, Site};
pub use files::{FileFault, FileFaultKind, FileFaults, FileSite};
pub use handle::SimHandle;
pub use options::{SimKernels, SimMode, SimOptions};
