//! The suggestions about work that waits for memory, or reads it slowly.

use super::{LEAST_BYTES, Suggestion, Topic, about_time, percent};
use crate::memory::{Residency, printable_end};
use crate::observe::Snapshot;
use crate::units::{Bytes, Nanoseconds};

/// Shorter waits are left out, and a smaller part of the time since the device was opened.
const LEAST_NS: u64 = 100_000_000;
const LEAST_PART: u64 = 20;

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

    /// Passes spend much of their time waiting for memory.
    pub(super) fn waiting(&self) -> Option<Suggestion> {
        let (waits, all_ns) = (self.stats.waits(), self.taken_at_ns);
        let total_ns = waits.total().ns;
        if total_ns < LEAST_NS || total_ns < all_ns / LEAST_PART {
            return None;
        }
        let longest = self.stats.memory_waits.first();
        let longest = longest.filter(|one| one.waits.total().ns > 0);
        let whose = longest.map_or(String::new(), |one| {
            format!(
                " {} of it were for {}, mostly for {}.",
                Nanoseconds(one.waits.total().ns),
                printable_end(&one.tag, 72),
                in_a_sentence(one.waits.longest().0),
            )
        });
        let or_else = match waits.longest().0 {
            "store" | "disk" => {
                "let more evicted tensors stay in the host's memory (`Budget::host_bytes`)"
            }
            _ => "keep fewer tensors alive at once",
        };
        let by = self
            .short_bytes()
            .map(|bytes| format!(" by {}", Bytes(bytes)));
        let by = by.unwrap_or_default();
        let help = match self.stats.budget_bytes {
            Some(_) => format!("Raise the budget{by} (`GpuMemory::set_budget`), or {or_else}."),
            None => format!("It helps to {or_else}."),
        };
        let text = format!(
            "passes spent {} % of the time waiting for memory, {waits}.{whose} {help}",
            percent(total_ns, all_ns.max(total_ns)),
        );
        Some(about_time(Topic::Waiting, text))
    }

    /// The bytes by which the budget is too small for what is alive. `None` if it is not.
    pub(super) fn short_bytes(&self) -> Option<u64> {
        let budget_bytes = self.stats.budget_bytes?;
        let places = [Residency::Host, Residency::Store, Residency::Disk];
        // What is at its source was perhaps never used. At most as much was dropped for room.
        let at_sources_bytes = self.bytes_in(&[Residency::Backed]);
        let dropped_bytes = at_sources_bytes.min(self.stats.dropped_to_source_bytes);
        let absent_bytes = self.bytes_in(&places).saturating_add(dropped_bytes);
        let wanted_bytes = self.stats.device_bytes.now.saturating_add(absent_bytes);
        let short_bytes = wanted_bytes.checked_sub(budget_bytes)?;
        (short_bytes > 0).then_some(short_bytes)
    }

    /// The bytes of tensors that are in one of these places.
    fn bytes_in(&self, places: &[Residency]) -> u64 {
        let evicted = self.evicted.iter();
        let evicted = evicted.filter(|evicted| places.contains(&evicted.residency));
        evicted.fold(0, |sum: u64, evicted| sum.saturating_add(evicted.bytes))
    }
}

/// What was waited for, in a sentence.
fn in_a_sentence(what: &str) -> &str {
    match what {
        "device" => "the device",
        "host" => "the way to or from the host",
        "store" => "a store",
        _ => "the disk",
    }
}
