//! Commands as values, and the execution pass that places and runs them.
//!
//! An operation appends a [`Launch`] (or an upload, a clear, a read) and returns. Nothing is
//! placed, encoded or bound at the call. A flush starts an execution pass, which takes the commands
//! of the queue in order. For each command the pass places the operands, encodes the ops and drops
//! the command. The drop frees the storages that no other holder has, so the next command may use
//! their memory.
//!
//! ```text
//!   commands, control, report ── what the other layers ask of the engine
//!      │ append                         │ run a pass
//!      ▼                                ▼
//!   queue ──► step, encode ──► batch    execute ── provides what a step needs:
//!               │ (State, locked)         reclaim ─ compact, evict, repack
//!               ▼                         restore ─ from the host, the disk, a source, a function
//!             memory                      submit, pipelines, read-backs
//! ```
//!
//! Each folder has its front beside it. The layers, from above to below:
//!
//! | modules | what they do |
//! | --- | --- |
//! | `commands`, `control`, `report` | what the other layers of the crate call |
//! | `pins`, `recovery`, `upload` | what these calls need of passes |
//! | `execute` | the execution pass: its steps, encoding, answers |
//! | `direct` | transfers without staging |
//! | `shares` | what a device with shares does besides |
//! | `restore`, `reclaim` | bytes that come back; evictions, moves, victims, refusals |
//! | `read`, `tiers` | the way to the host; the host's memory, the stores and the disk |
//! | `pass`, `handle` | the right to execute, from a lock; submissions; the engine itself |
//! | `state`, `diagnose` | the parts that the engine's lock guards; the search for bugs |
//! | `queue`, `outside`, `watermarks` | commands, order, fusion; pressure; callbacks |
//! | `numbers` | the table of the statistics, and the counters |
//! | `kernel` | texts, the WGSL around them, reference kernels |
//!
//! Imports go down. Only `shares`, `restore` and `reclaim`, `pass` and `handle`, and `state` and
//! `diagnose` import each other. Calls of methods are no imports: `read` and `restore` have methods
//! of `execute` run the queue. Above all is `door`: the other layers reach an engine by it alone.
//! `dry` lets another engine stand there, on one thread.
//!
//! Lock order: the execution lock (asynchronous, held for a whole execution pass), then the state
//! or the staging, never both. The engine awaits, compiles, maps and calls back only without the
//! state's lock.
//!
//! What a pass does is an asynchronous function, a value that owns its progress. Where a pass may
//! wait, that value belongs to the execution lock, and runs to its end whoever drops its caller's
//! future. Urgent commands run in the middle of it (`Pass::give_way`).
//!
//! Long steps that several modules await return a boxed future. The compiler would put an `async
//! fn`, with all that it awaits, once more into each codegen unit that awaits it.

mod block;
mod commands;
mod control;
pub(crate) mod diagnose;
mod direct;
mod door;
mod dry;
mod execute;
mod handle;
mod heap;
mod inside;
pub(crate) mod kernel;
mod mapped;
mod numbers;
mod outside;
mod pass;
mod pins;
pub(crate) mod queue;
mod read;
mod reclaim;
pub(crate) mod recovery;
mod report;
mod restore;
pub(crate) mod shares;
mod state;
mod tiers;
mod upload;
mod watermarks;

pub use block::block_on;
pub(crate) use commands::UploadPart;
pub use diagnose::{Diagnostics, Finding, Findings, Leak, Look};
pub use door::Handle;
pub(crate) use dry::{DryCounts, DryRunGuard};
pub use handle::Engine;
pub(crate) use handle::{Setup, WeakEngine};
pub(crate) use kernel::{Arg, BuiltInKernel, Launch, Operand, UNWRITTEN, Variant};
pub use numbers::{MemoryStats, Number, NumberValue};
pub use outside::{Pressure, PressureGuard};
pub(crate) use pins::Pinned;
pub use queue::cmd::Cmd;
pub(crate) use read::seen::SeenRead;
pub(crate) use report::Tally;
pub use state::times::KernelTime;
#[cfg(feature = "metrics")]
pub(crate) use watermarks::Calls;
pub use watermarks::{Watermark, WatermarkGuard};
