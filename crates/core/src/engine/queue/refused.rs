//! What a share was refused in this run of the queue, so that the same is not searched for again.
//!
//! A share at its ceiling may have thousands of commands that find no room. Each would look for
//! victims among all storages and commands, in every pass, and other shares would wait for that. So
//! the pass remembers what it refused last.

use std::sync::Arc;

use crate::memory::{Hindrance, ShareId};
use crate::shortage::OutOfMemory;

/// A request for room that the limits of a share hindered, and for which nothing could leave.
#[derive(Debug)]
pub(crate) struct Refused {
    pub(crate) request: Request,
    pub(crate) error: Arc<OutOfMemory>,
}

/// A request of the command at the head of the queue.
#[derive(Debug)]
pub(crate) struct Request {
    /// The share of the storage. From whom it may take depends on that.
    pub(crate) by: ShareId,
    pub(crate) hindrance: Hindrance,
    /// The addresses of the operands that have a place. They have to stay.
    pub(crate) kept: Vec<usize>,
    /// The commands that have run, and the blocks that were freed. If they change, there may be
    /// something to evict again.
    pub(crate) marks: (u64, u64),
}

impl Request {
    /// Whether no more can leave for it than for one before.
    pub(crate) fn finds_no_more_than(&self, before: &Request) -> bool {
        let (one, other) = (&before.hindrance, &self.hindrance);
        (before.by, before.marks) == (self.by, self.marks)
            && (one.share, one.is_ceiling) == (other.share, other.is_ceiling)
            && one.wanted_bytes <= other.wanted_bytes
            && one.excess_bytes <= other.excess_bytes
            && before.kept.iter().all(|kept| self.kept.contains(kept))
    }
}
