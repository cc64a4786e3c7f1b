//! The counters of the engine since it was opened.

use crate::shortage::ReclaimCounts;

/// Plain numbers. The code that does the work counts it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counters {
    pub(super) commands: u64,
    /// The commands that no rematerializer recorded. Those of rematerializers may be undone and run
    /// again.
    pub(super) commands_of_app: u64,
    /// The moved bytes that were lost in a refused submission, and those that moved back.
    pub(super) undone_bytes: u64,
    pub(super) submissions: u64,
    pub(super) slabs_created: u64,
    pub(super) donated: u64,
    pub(super) refusals: u64,
    pub(super) staging_waits: u64,
    /// Submissions that the driver refused.
    pub(super) refused_submissions: u64,
    /// The plans that moved blocks.
    pub(super) compactions: u64,
    /// Bytes written out to the host or to disk.
    pub(super) evicted_bytes: u64,
    /// The bytes that were dropped because they had another copy.
    pub(super) dropped_bytes: u64,
    pub(super) restored_bytes: u64,
    /// Blocks that passed from one share to another, and the bytes cleared for that.
    pub(super) hand_overs: u64,
    pub(super) cleared_bytes: u64,
    /// The predicted time of all launches, before the meter scales it.
    pub(super) predicted_ns: f64,
    /// The bytes of storages that were computed again.
    pub(super) recomputed_bytes: u64,
    /// The runs of each reclaim step and their results.
    pub(super) reclaim_counts: ReclaimCounts,
    /// The most bytes without a place at the time of an append.
    pub(super) peak_pending_bytes: u64,
}

impl Counters {
    /// The commands of the app that have run, and the refused submissions.
    pub(super) fn progress(&self) -> (u64, u64) {
        (self.commands_of_app, self.refused_submissions)
    }
}
