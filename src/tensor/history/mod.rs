//! The history of a tensor's value: which operation made it, of which operands.
//!
//! ```text
//!   Tensor ── Link ──► History ──► Node ── edges ──► Nodes of the operands
//!                                   └─ body: the rule, and what is saved for it
//! ```
//!
//! An operation whose operands are tracked computes with detached handles, so that nothing within
//! it is recorded, and then attaches a [`Node`] to its result. Views share the history; an edge
//! remembers the operand's layout. A node holds detached handles only, so no history holds itself.
//!
//! Most histories belong to the handle, its clones and its views. Those of leaves, and of tensors
//! that only an operation in place made dependent, belong to the storage: handles from before find
//! them there.
//!
//! `crate::grad` walks the nodes. The rules stand beside their operations, in `gradient.rs`.

mod dry;
mod formula;
mod keeping;
mod lesser;
mod link;
mod mode;
mod node;
mod number;
mod record;
mod saved;

use std::panic::Location;

pub(crate) use dry::{DryGuard, run, undo_later};
pub(crate) use formula::{LEAST_BYTES, Values};
pub(crate) use lesser::MakeLesser;
pub(crate) use link::Link;
pub(crate) use mode::{Paused, is_paused, unrecorded};
pub(crate) use node::{Edge, Hook, Node, Work};
pub(crate) use record::{Backward, Grads, Save, grads, without_gradient};

/// A line of the app, as errors name it.
pub(crate) fn line(at: &Location<'_>) -> String {
    format!("{}:{}", at.file(), at.line())
}
