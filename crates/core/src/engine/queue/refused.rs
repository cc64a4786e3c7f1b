//! What a share was refused in this run of the queue, so that the same is not searched for again.

use std::sync::Arc;

use super::cmd::Cmd;
use crate::memory::{Hindrance, ShareId};
use crate::shortage::OutOfMemory;

/// A request for room that the limits of a share hindered, and for which nothing could leave.
#[derive(Debug)]
pub(crate) struct Refused {
    /// The share of the storage. From whom it may take depends on that.
    by: ShareId,
    hindrance: Hindrance,
    error: Arc<OutOfMemory>,
    /// The addresses of the operands that had to stay.
    kept: Vec<usize>,
    marks: Marks,
}

/// What changes when there may be something to evict again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Marks {
    /// The commands that have run.
    pub(crate) commands: u64,
    /// The blocks that were freed.
    pub(crate) freed: u64,
}

impl Refused {
    /// For a command of a share.
    pub(crate) fn new(
        cmd: &Cmd,
        by: ShareId,
        hindrance: Hindrance,
        marks: Marks,
        error: Arc<OutOfMemory>,
    ) -> Refused {
        Refused {
            by,
            hindrance,
            error,
            kept: kept(cmd),
            marks,
        }
    }

    /// The error, if no more can leave for this command than for that one.
    pub(crate) fn error_for(
        &self,
        cmd: &Cmd,
        by: ShareId,
        hindrance: &Hindrance,
        marks: Marks,
    ) -> Option<Arc<OutOfMemory>> {
        let before = &self.hindrance;
        let is_same = (self.by, self.marks) == (by, marks)
            && (before.share, before.is_ceiling) == (hindrance.share, hindrance.is_ceiling)
            && before.wanted_bytes <= hindrance.wanted_bytes
            && before.excess_bytes <= hindrance.excess_bytes;
        let kept = kept(cmd);
        let keeps_all = self.kept.iter().all(|one| kept.contains(one));
        (is_same && keeps_all).then(|| self.error.clone())
    }
}

/// The addresses of the operands that have a place.
fn kept(cmd: &Cmd) -> Vec<usize> {
    let mut kept = Vec::new();
    cmd.each_operand(&mut |storage, _| {
        if storage.slot().is_some() {
            kept.push(storage.address());
        }
    });
    kept
}
