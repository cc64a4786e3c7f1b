//! The numbers of the engine, for reports.

use std::cmp::Reverse;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::diagnose::Leak;
use super::handle::Engine;
use super::state::State;
use super::state::times::KernelTime;
use crate::driver::{DriverResult, Levels};
use crate::error::{Error, Result};
use crate::memory::{Maker, Map, MemoryReport, Moment, Storage, Tag};
use crate::number_map::NumberMap;
use crate::shortage::ReclaimCounts;
use crate::transfer::{OpenStore, StoreUse};
use crate::units::Level;

/// The numbers of the engine.
#[derive(Clone, Debug)]
pub(crate) struct EngineReport {
    pub(crate) memory: MemoryReport,
    pub(crate) levels: Levels,
    /// The bytes of storages that have no place yet.
    pub(crate) pending_bytes: Level,
    /// The number of commands that wait in the queue.
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
    pub(crate) stores: Vec<StoreUse>,
    pub(crate) disk_bytes: Level,
    pub(crate) spilled_bytes: Level,
    pub(crate) evicted_bytes: u64,
    pub(crate) dropped_bytes: u64,
    pub(crate) dropped_to_source_bytes: u64,
    pub(crate) restored_bytes: u64,
    pub(crate) recomputed_bytes: u64,
    pub(crate) kernels_ns: u64,
    pub(crate) longest_submission_ns: u64,
    pub(crate) longest_hold_ns: u64,
    pub(crate) hand_overs: u64,
    pub(crate) cleared_bytes: u64,
    pub(crate) compactions: u64,
    pub(crate) reclaim_counts: ReclaimCounts,
    pub(crate) pipelines: u64,
    pub(crate) bind_groups: u64,
}

/// Sums since the engine was opened.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tally {
    pub(crate) live_bytes: Level,
    pub(crate) allocations: u64,
    pub(crate) commands: u64,
    pub(crate) submissions: u64,
    pub(crate) buffers_created: u64,
    pub(crate) moved_bytes: u64,
    pub(crate) evicted_bytes: u64,
    pub(crate) dropped_bytes: u64,
    pub(crate) restored_bytes: u64,
    pub(crate) refusals: u64,
}

impl Engine {
    /// All numbers at once, with the `holders` largest holders of memory.
    pub(crate) fn report(&self, holders: usize) -> EngineReport {
        self.prepare_report();
        self.report_of(&self.lock(), holders)
    }

    /// The time, the numbers and the places of all storages, as of one moment. The time is in
    /// nanoseconds since the device was opened.
    pub(crate) fn snapshot(&self, holders: usize) -> (u64, EngineReport, Map) {
        self.prepare_report();
        let state = self.lock();
        let report = self.report_of(&state, holders);
        (state.timing.now_ns(), report, Map::of(&state.memory))
    }

    /// Frees all dead storages, so that the report does not count them.
    fn prepare_report(&self) {
        self.driver.settle();
        self.free_all_dead();
    }

    fn report_of(&self, state: &State, holders: usize) -> EngineReport {
        let (spilled_bytes, disk_bytes) = self.spill.levels();
        let levels = self.driver.ledger().levels();
        EngineReport {
            memory: state.memory.report(holders),
            levels,
            pending_bytes: pending_bytes(state),
            queued: (state.queue.len() + state.left_behind.len()) as u64,
            commands: state.counters.commands,
            submissions: state.counters.submissions,
            buffers_created: self.driver.buffers_created(),
            slabs_created: state.counters.slabs_created,
            donated: state.counters.donated,
            refusals: state.counters.refusals,
            staging_waits: state.counters.staging_waits,
            staging_limit_bytes: self.uploads.limit_bytes(),
            budget_bytes: (levels.said_bytes < u64::MAX).then_some(levels.said_bytes),
            host_bytes: self.host.level_bytes(),
            stores: self.stores.iter().map(OpenStore::usage).collect(),
            disk_bytes,
            spilled_bytes,
            evicted_bytes: state.counters.evicted_bytes,
            dropped_bytes: state.counters.dropped_bytes,
            dropped_to_source_bytes: state.counters.dropped_to_source_bytes,
            restored_bytes: state.counters.restored_bytes,
            recomputed_bytes: state.counters.recomputed_bytes,
            kernels_ns: (state.counters.predicted_ns * state.driver.time_scale()) as u64,
            longest_submission_ns: state.driver.longest_submission_ns(),
            longest_hold_ns: state.holds.longest_ns(),
            hand_overs: state.counters.hand_overs,
            cleared_bytes: state.counters.cleared_bytes,
            compactions: state.counters.compactions,
            reclaim_counts: state.counters.reclaim_counts,
            pipelines: state.pipelines.len() as u64,
            bind_groups: state.groups.len() as u64,
        }
    }

    /// Keeps a history of the last `most` events.
    pub(crate) fn keep_history(&self, most: usize) {
        let mut state = self.lock();
        state.memory.census.keep_history(most);
        state.update_time();
    }

    /// The events in the history, the tags that they name, and the number of dropped events.
    pub(crate) fn history(&self) -> (Vec<Moment>, Vec<Option<Tag>>, u64) {
        self.free_all_dead();
        self.lock().memory.census.history()
    }

    /// The names of the kernels in the history.
    pub(crate) fn kernels(&self) -> Vec<String> {
        self.lock().memory.census.kernels()
    }

    /// Begins to track peaks. Returns the number of the measurement, and the sums so far.
    pub(crate) fn begin_measure(&self) -> (u64, Tally) {
        self.free_all_dead();
        let mut state = self.lock();
        let number = state.memory.census.measure();
        (number, tally(&state, self.driver.buffers_created()))
    }

    /// Ends a measurement. Returns the sums, and its peaks of live and reserved bytes.
    pub(crate) fn end_measure(&self, number: u64) -> (Tally, Option<(u64, u64)>) {
        self.free_all_dead();
        let mut state = self.lock();
        let peaks = state.memory.census.measured(number);
        (tally(&state, self.driver.buffers_created()), peaks)
    }

    /// Ends a measurement whose result is not needed.
    pub(crate) fn give_up_measure(&self, number: u64) {
        self.lock().memory.census.measured(number);
    }

    /// Resets all peaks to the present levels.
    pub(crate) fn reset_peaks(&self) {
        self.driver.ledger().reset_peak();
        self.host.reset_peak();
        self.spill.reset_peaks();
        self.stores.iter().for_each(OpenStore::reset_peak);
        let mut state = self.lock();
        state.memory.reset_peaks();
        state.counters.peak_pending_bytes = 0;
    }

    /// Turns the timing of kernels on or off.
    pub(crate) fn time_kernels(&self, on: bool) -> DriverResult<()> {
        self.driver.time_kernels(on)?;
        self.lock().time_kernels(on);
        Ok(())
    }

    /// The times of kernels since the last call.
    pub(crate) fn take_kernel_times(&self) -> Vec<KernelTime> {
        self.lock().timing.take()
    }

    /// Returns an error if the diagnostics missed a check since the last call.
    pub(crate) fn check_missed(&self) -> Result<()> {
        let mut state = self.lock();
        let missed = state.diagnose.as_mut().and_then(|one| one.take_missed());
        match missed {
            None => Ok(()),
            Some(reason) => Err(Error::Driver {
                what: "some checks of the diagnostics",
                message: format!(
                    "{reason}; raise the budget, or flush more often. The earlier findings are \
                     still listed"
                ),
            }),
        }
    }

    /// Notes that a result has padding: each row has `of` elements, and all after the first `row`
    /// may hold anything. Called before the launch that computes the result.
    pub fn pads(self: &Arc<Self>, storage: &Arc<Storage>, row: usize, of: usize) {
        // A dry run has no diagnostics.
        if row < of
            && !self.here().is_dry()
            && self.diagnostics().is_some_and(|wanted| wanted.non_finite)
        {
            if let Some(diagnose) = &mut self.lock().diagnose {
                diagnose.pads(storage, (of as u32, row as u32));
            }
        }
    }
}

fn tally(state: &State, buffers_created: u64) -> Tally {
    let sums = state.memory.census.sums();
    Tally {
        live_bytes: sums.live_bytes,
        allocations: sums.storages.up,
        commands: state.counters.commands,
        submissions: state.counters.submissions,
        buffers_created,
        moved_bytes: state.memory.slabs.moved_bytes(),
        evicted_bytes: state.counters.evicted_bytes,
        dropped_bytes: state.counters.dropped_bytes,
        restored_bytes: state.counters.restored_bytes,
        refusals: state.counters.refusals,
    }
}

/// The bytes of storages without a place. The peak is that of the moments after an append.
fn pending_bytes(state: &State) -> Level {
    let (up, down) = state.memory.pending_bytes();
    let now = up.wrapping_sub(down);
    Level {
        now,
        peak: state.counters.peak_pending_bytes.max(now),
        up,
        down,
    }
}

impl Engine {
    /// The storages with a holder other than the queue, grouped by maker, the most bytes first.
    pub(crate) fn leaks(&self) -> Vec<Leak> {
        let mut leaks: Vec<Leak> = Vec::new();
        let alive = alive(&self.lock());
        let mut places: FxHashMap<Maker, u32> = FxHashMap::default();
        for storage in &alive {
            let place = *places.entry(storage.maker()).or_insert_with(|| {
                leaks.push(Leak {
                    made_at: storage.tag(),
                    storages: 0,
                    bytes: 0,
                });
                leaks.len() as u32 - 1
            });
            let leak = &mut leaks[place as usize];
            leak.storages += 1;
            leak.bytes += storage.len_bytes();
        }
        leaks.sort_by_key(|leak| Reverse(leak.bytes));
        leaks
    }
}

/// The storages with a holder other than the queue.
pub(super) fn alive(state: &State) -> Vec<Arc<Storage>> {
    // For each address, a storage and the number of times that the queue holds it. The clone keeps
    // the storage alive meanwhile.
    let mut queued: NumberMap<(Arc<Storage>, usize)> = NumberMap::default();
    for cmd in state.queue.iter().chain(state.left_behind.iter()) {
        cmd.each_operand(&mut |storage, _| {
            let address = storage.address() as u64;
            queued
                .get_or_insert_with(address, || (storage.clone(), 0))
                .1 += 1;
        });
    }
    let mut alive = state.memory.slots.alive();
    alive.retain(|storage| {
        let held = queued
            .get(storage.address() as u64)
            .map_or(0, |(_, held)| held + 1);
        // One holder is this list.
        Arc::strong_count(storage) > held + 1
    });
    let unplaced = queued.values().filter(|(storage, held)| {
        storage.slot().is_none() && Arc::strong_count(storage) > held + 1
    });
    alive.extend(unplaced.map(|(storage, _)| storage.clone()));
    alive
}
