//! The engine's numbers, for reports.

use super::Engine;
use super::state::State;
use crate::driver::Levels;
use crate::memory::{Map, MemoryReport, Moment, Tag, TagUse};
use crate::shortage::ReclaimCounts;
use crate::units::Level;

/// What the engine counts.
#[derive(Clone, Debug)]
pub(crate) struct EngineReport {
    pub(crate) memory: MemoryReport,
    pub(crate) tags: Vec<TagUse>,
    pub(crate) levels: Levels,
    /// Of storages that have no place yet.
    pub(crate) pending_bytes: Level,
    /// Commands that wait in the queue.
    pub(crate) queued: u64,
    pub(crate) commands: u64,
    pub(crate) submissions: u64,
    pub(crate) buffers_created: u64,
    pub(crate) slabs_created: u64,
    pub(crate) donated: u64,
    pub(crate) refusals: u64,
    pub(crate) staging_waits: u64,
    pub(crate) staging_limit_bytes: u64,
    pub(crate) budget_bytes: Option<u64>,
    pub(crate) host_bytes: Level,
    pub(crate) disk_bytes: Level,
    pub(crate) spilled_bytes: Level,
    pub(crate) evicted_bytes: u64,
    pub(crate) dropped_bytes: u64,
    pub(crate) restored_bytes: u64,
    pub(crate) compactions: u64,
    pub(crate) reclaim_counts: ReclaimCounts,
    pub(crate) pipelines: u64,
    pub(crate) bind_groups: u64,
}

/// What has come together since the engine was opened.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tally {
    pub(crate) live_bytes: Level,
    pub(crate) allocations: u64,
    pub(crate) commands: u64,
    pub(crate) submissions: u64,
    pub(crate) buffers_created: u64,
    pub(crate) moved_bytes: u64,
    pub(crate) evicted_bytes: u64,
    pub(crate) restored_bytes: u64,
    pub(crate) refusals: u64,
}

impl Engine {
    /// All numbers at once, with the `holders` greatest holders of memory.
    pub(crate) fn report(&self, holders: usize) -> EngineReport {
        self.prepare_report();
        self.report_of(&self.lock(), holders)
    }

    /// The numbers, where everything is, and what happened: all as of one moment, which comes
    /// first, in nanoseconds since the device was opened.
    pub(crate) fn snapshot(&self, holders: usize) -> (u64, EngineReport, Map) {
        self.prepare_report();
        let state = self.lock();
        let report = self.report_of(&state, holders);
        (state.now_ns(), report, state.memory.map())
    }

    /// What is gone is not to be reported as held.
    fn prepare_report(&self) {
        self.driver.settle();
        self.free_all_dead();
    }

    fn report_of(&self, state: &State, holders: usize) -> EngineReport {
        let (spilled_bytes, disk_bytes) = self.spill.levels();
        EngineReport {
            memory: state.memory.report(holders),
            tags: state.memory.tag_uses(),
            levels: self.driver.ledger().levels(),
            pending_bytes: state.pending_bytes(),
            queued: (state.queue.len() + state.left.cmds.len()) as u64,
            commands: state.counters.commands,
            submissions: state.counters.submissions,
            buffers_created: self.driver.buffers_created(),
            slabs_created: state.counters.slabs_created,
            donated: state.counters.donated,
            refusals: state.counters.refusals,
            staging_waits: state.counters.staging_waits,
            staging_limit_bytes: self.uploads.limit_bytes(),
            budget_bytes: self.limits().budget.device_bytes,
            host_bytes: self.host.level_bytes(),
            disk_bytes,
            spilled_bytes,
            evicted_bytes: state.counters.evicted_bytes,
            dropped_bytes: state.counters.dropped_bytes,
            restored_bytes: state.counters.restored_bytes,
            compactions: state.counters.compactions,
            reclaim_counts: state.counters.reclaim_counts,
            pipelines: state.pipelines.len() as u64,
            bind_groups: state.groups.len() as u64,
        }
    }

    /// Keeps the last so many events.
    pub(crate) fn keep_history(&self, most: usize) {
        let mut state = self.lock();
        state.memory.keep_history(most);
        state.tell_time();
    }

    /// The events that were kept, the tags they name, and how many events were not kept.
    pub(crate) fn history(&self) -> (Vec<Moment>, Vec<Option<Tag>>, u64) {
        self.free_all_dead();
        self.lock().memory.history()
    }

    /// The names of the kernels that events name.
    pub(crate) fn kernels(&self) -> Vec<String> {
        self.lock().memory.kernels()
    }

    /// Begins to watch the peaks.
    pub(crate) fn begin_measure(&self) -> (u64, Tally) {
        self.free_all_dead();
        let mut state = self.lock();
        let number = state.memory.measure();
        (number, state.tally(self.driver.buffers_created()))
    }

    /// What has come together, and the highest live and reserved bytes meanwhile.
    pub(crate) fn end_measure(&self, number: u64) -> (Tally, Option<(u64, u64)>) {
        self.free_all_dead();
        let mut state = self.lock();
        let peaks = state.memory.measured(number);
        (state.tally(self.driver.buffers_created()), peaks)
    }

    /// Nobody wants to know.
    pub(crate) fn give_up_measure(&self, number: u64) {
        self.lock().memory.measured(number);
    }

    /// Starts the peaks anew from the present.
    pub(crate) fn reset_peaks(&self) {
        self.driver.ledger().reset_peak();
        self.host.reset_peak();
        self.spill.reset_peaks();
        let mut state = self.lock();
        state.memory.reset_peaks();
        state.peak_pending_bytes = 0;
    }
}

impl State {
    fn tally(&self, buffers_created: u64) -> Tally {
        let sums = self.memory.sums();
        Tally {
            live_bytes: sums.live_bytes,
            allocations: sums.storages.up,
            commands: self.counters.commands,
            submissions: self.counters.submissions,
            buffers_created,
            moved_bytes: self.memory.moved_bytes(),
            evicted_bytes: self.counters.evicted_bytes,
            restored_bytes: self.counters.restored_bytes,
            refusals: self.counters.refusals,
        }
    }

    /// Something was appended, and so was made before.
    #[inline]
    pub(super) fn notice_pending(&mut self) {
        let (up_bytes, down_bytes) = self.memory.pending_bytes();
        let now_bytes = up_bytes.wrapping_sub(down_bytes);
        self.peak_pending_bytes = self.peak_pending_bytes.max(now_bytes);
    }

    /// Bytes of what has no place yet. The peak is that of the moments at which something was
    /// appended.
    fn pending_bytes(&self) -> Level {
        let (up, down) = self.memory.pending_bytes();
        let now = up.wrapping_sub(down);
        Level {
            now,
            peak: self.peak_pending_bytes.max(now),
            up,
            down,
        }
    }
}
