//! How often things happened since the engine was opened.

use crate::shortage::ReclaimCounts;

/// Plain numbers: whoever does something counts it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counters {
    pub(super) commands: u64,
    /// Those of them that no rematerializer recorded: what rematerializers do may be undone, and
    /// done again.
    pub(super) commands_of_app: u64,
    /// Of the bytes that were moved, those that came to nothing, and those that were moved back.
    pub(super) undone_bytes: u64,
    pub(super) submissions: u64,
    pub(super) slabs_created: u64,
    pub(super) donated: u64,
    pub(super) refusals: u64,
    pub(super) staging_waits: u64,
    /// Submissions that the driver refused.
    pub(super) refused_submissions: u64,
    /// Plans carried out that moved blocks.
    pub(super) compactions: u64,
    /// Bytes written out to the host or to disk.
    pub(super) evicted_bytes: u64,
    /// Bytes given up because they were elsewhere too.
    pub(super) dropped_bytes: u64,
    /// Bytes restored.
    pub(super) restored_bytes: u64,
    /// What came of each reclaim step.
    pub(super) reclaim_counts: ReclaimCounts,
    /// The most bytes that had no place when something was appended.
    pub(super) peak_pending_bytes: u64,
}

impl Counters {
    /// How many commands of the app's have run, and how many submissions were refused.
    pub(super) fn progress(&self) -> (u64, u64) {
        (self.commands_of_app, self.refused_submissions)
    }
}
