//! The seam between the engine and a device: create, destroy, submit, wait, map.
//!
//! [`Driver`] has three implementors: `wgpu`; `sim`, a simulated device whose queue runs late and
//! which fails on command; `dry`, which only counts, for dry runs. The engine uses ids and plain
//! values ([`Op`]), so only this module holds GPU objects.
//!
//! ```text
//!   engine's pass ──► [Op, Op, Op, …] ──► Driver::submit ──► serial 17
//!                                              │
//!                      Driver::wait(&done) ◄───┘ Signal, set from a callback
//! ```
//!
//! Every implementor guarantees:
//! * Ops of one submission, and submissions, take effect in order.
//! * A created buffer reads as zeros.
//! * A call that returns an error has changed nothing. After [`DriverError::Lost`] every later call
//!   is `Lost` as well, until [`Driver::reopen`] has replaced the device, and no wait hangs.
//! * No method takes a lock that one of its callbacks may need.

mod bounds;
mod caps;
mod device;
mod dry;
mod failure;
mod interface;
mod learned;
mod ledger;
mod meter;
mod op;
mod os_budget;
mod os_limit;
mod replacement;
mod signal;
mod stack;
mod table;
pub(crate) mod wgpu;

#[cfg(any(test, feature = "sim"))]
pub(crate) mod sim;

pub use self::wgpu::{AdapterSummary, Dx12Compiler};
pub use bounds::{BoxFuture, MaybeSend, MaybeShared};
#[cfg(any(test, feature = "sim"))]
pub use caps::Speed;
pub use caps::{AdapterKind, Caps, ShaderCompiler};
pub(crate) use device::Device;
pub(crate) use dry::DryDriver;
pub(crate) use failure::{DriverError, DriverResult};
pub(crate) use interface::{Driver, KernelRun, LinkRun, NOT_SHARED};
pub(crate) use ledger::{Account, Ledger};
pub(crate) use op::{
    At, BindGroupId, Binding, BindingAccess, BufferId, BufferKind, MOST_BIND_GROUPS, MapMode, Op,
    PipelineDesc, PipelineId, ReferenceKernel, Submission,
};
pub(crate) use os_budget::OsBudget;
pub(crate) use os_limit::OsLimit;
pub(crate) use signal::Signal;
pub(crate) use stack::{panic_message, with_deep_stack};
#[cfg(test)]
pub(crate) use table::Table;
