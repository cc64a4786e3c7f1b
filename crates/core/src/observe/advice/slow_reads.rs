//! The suggestion about a heap in the host's memory that the host itself reads slowly.

use super::{LEAST_BYTES, Suggestion, Topic, about_time};
use crate::observe::Snapshot;
use crate::units::{Bytes, Nanoseconds};

/// Memory with a cache gives several times as much.
const LEAST_BYTES_PER_S: u128 = 1_000_000_000;

impl Snapshot {
    /// The driver gave memory without a cache for slabs that the host reads.
    pub(super) fn slow_reads(&self) -> Option<Suggestion> {
        let (bytes, ns) = (self.stats.host_read_bytes, self.stats.host_read_ns);
        let bytes_per_s = u128::from(bytes) * 1_000_000_000 / u128::from(ns.max(1));
        if bytes < LEAST_BYTES || ns == 0 || bytes_per_s >= LEAST_BYTES_PER_S {
            return None;
        }
        let text = format!(
            "the host reads its own slabs at {} MB/s: {} took {}. The driver seems to give memory \
             without a cache. Rows of tables are read so, and what a lowered `Budget::host_bytes` \
             moves on. Do without this heap: `Options::host_heap: Some(false)`.",
            bytes_per_s / 1_000_000,
            Bytes(bytes),
            Nanoseconds(ns),
        );
        Some(about_time(Topic::SlowReads, text))
    }
}
