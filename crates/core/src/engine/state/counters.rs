//! The counters of the engine since it was opened.

use crate::shortage::ReclaimCounts;

/// Plain numbers. The code that does the work counts it.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::engine) struct Counters {
    pub(in crate::engine) commands: u64,
    /// The commands that no rematerializer recorded. Those of rematerializers may be undone and run
    /// again.
    pub(in crate::engine) commands_of_app: u64,
    /// The moved bytes that were lost in a refused submission, and those that moved back.
    pub(in crate::engine) undone_bytes: u64,
    pub(in crate::engine) submissions: u64,
    pub(in crate::engine) slabs_created: u64,
    pub(in crate::engine) donated: u64,
    pub(in crate::engine) refusals: u64,
    pub(in crate::engine) staging_waits: u64,
    /// Submissions that the driver refused.
    pub(in crate::engine) refused_submissions: u64,
    /// The plans that moved blocks.
    pub(in crate::engine) compactions: u64,
    /// Bytes written to the host, to a store or to disk.
    pub(in crate::engine) evicted_bytes: u64,
    /// The bytes that were dropped because they had another copy.
    pub(in crate::engine) dropped_bytes: u64,
    /// The part of them that only a source has.
    pub(in crate::engine) dropped_to_source_bytes: u64,
    pub(in crate::engine) restored_bytes: u64,
    /// Blocks that passed from one share to another, and the bytes cleared for that.
    pub(in crate::engine) hand_overs: u64,
    pub(in crate::engine) cleared_bytes: u64,
    /// The predicted time of all launches, before the meter scales it.
    pub(in crate::engine) predicted_ns: f64,
    /// The bytes of storages that were computed again.
    pub(in crate::engine) recomputed_bytes: u64,
    /// The runs of each reclaim step and their results.
    pub(in crate::engine) reclaim_counts: ReclaimCounts,
    /// The most bytes without a place at the time of an append.
    pub(in crate::engine) peak_pending_bytes: u64,
}

impl Counters {
    /// The commands of the app that have run, and the refused submissions.
    pub(in crate::engine) fn progress(&self) -> (u64, u64) {
        (self.commands_of_app, self.refused_submissions)
    }
}
