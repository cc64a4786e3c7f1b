//! The limits that the app sets. Beside them: pressure from outside, and watermarks.

pub(super) mod outside;
pub(super) mod watermarks;

use crate::memory::Budget;

/// The limits that the engine keeps beside the ledger's limit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) budget: Budget,
    pub(super) soft_bytes: u64,
}
