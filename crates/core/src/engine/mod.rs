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
//! `dry` lets another engine stand for this one, on one thread.
//!
//! `state` joins the parts that the engine's lock guards. Each part owns its fields. `handle` is
//! the engine. A `pass` is the right to encode and to reclaim; only the execution lock gives it.
//!
//! Lock order: the execution lock (asynchronous, held for a whole execution pass), then the state
//! or the staging, never both. The engine awaits, compiles, maps and calls back only without the
//! state's lock.
//!
//! Long steps that several modules await return a boxed future. The compiler would put an `async
//! fn`, with all that it awaits, once more into each codegen unit that awaits it.

mod account;
mod ahead;
mod answers;
mod batch;
mod block;
mod caches;
mod callbacks;
mod cleaning;
mod cmd;
mod commands;
mod compact;
mod control;
mod cost;
mod counters;
mod describe;
mod destination;
pub(crate) mod diagnose;
mod direct;
mod dry;
mod encode;
mod evict;
mod evict_one;
mod execute;
mod execution_lock;
mod follow;
pub(crate) mod fused;
pub(crate) mod fusion;
mod handle;
mod head;
mod inside;
pub(crate) mod kernel;
mod left_behind;
mod lending;
mod limit_ahead;
mod limits;
mod lineage;
mod linked;
mod make_gear;
mod mapped;
mod needed;
mod of_shares;
mod outlook;
mod outside;
mod pace;
mod pass;
mod pick;
mod pick_rows;
mod picking;
mod pins;
mod priority;
mod queue;
mod read;
mod reading_guard;
mod reclaim;
mod recompute;
mod recovery;
mod reference;
mod refuse;
mod rematerialize;
mod rematerializers;
mod repack;
mod report;
mod reserve;
mod restore;
mod retire;
pub mod sections;
mod seen;
mod share_limits;
pub(crate) mod shares;
mod sharing;
mod shrink;
mod staging_loss;
mod state;
mod step;
mod submit;
mod supply;
mod tiers;
mod times;
mod timing;
pub(crate) mod trial;
mod upload;
mod victims;
mod watermarks;
pub mod wgsl;

pub use block::block_on;
pub use cmd::Cmd;
pub(crate) use commands::UploadPart;
pub(crate) use diagnose::Wanted;
pub use diagnose::{Diagnostics, Finding, Findings, Leak, Look};
pub use dry::Here;
pub(crate) use dry::{DryCounts, DryRunGuard};
pub use handle::Engine;
pub(crate) use handle::Setup;
pub(crate) use handle::WeakEngine;
pub(crate) use kernel::{Arg, Kernel, Launch, Operand, UNWRITTEN, Variant};
pub use outside::{Pressure, PressureGuard};
pub(crate) use pins::Pinned;
pub(crate) use report::{EngineReport, Tally};
pub(crate) use seen::SeenRead;
pub use times::KernelTime;
pub use watermarks::{Watermark, WatermarkGuard};
