//! The numbers of the engine, for reports.

use std::cmp::Reverse;
use std::sync::Arc;

use rustc_hash::FxHashSet;

use super::diagnose::Leak;
use super::handle::Engine;
use super::numbers::{Counters, MemoryStats, Taken};
use super::queue::handles::Handles;
use super::state::State;
use super::state::times::KernelTime;
use crate::driver::DriverResult;
use crate::error::{Error, Result};
use crate::memory::{History, Map, Storage, by_maker};
use crate::transfer::OpenStore;
use crate::units::Level;

/// Most holders in the statistics; what prints them shows fewer.
const HOLDERS: usize = 32;

/// Sums since the engine was opened, without the lists of a report.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tally {
    pub(crate) live_bytes: Level,
    pub(crate) allocations: u64,
    pub(crate) buffers_created: u64,
    pub(crate) moved_bytes: u64,
    pub(crate) counters: Counters,
}

impl Engine {
    /// The statistics.
    pub(crate) fn report(&self) -> MemoryStats {
        let driver_bytes = self.prepare_report();
        self.report_of(&self.lock(), driver_bytes)
    }

    /// The time, the statistics and the places of all storages, as of one moment. The time is in
    /// nanoseconds since the device was opened.
    pub(crate) fn snapshot(&self) -> (u64, MemoryStats, Map) {
        let driver_bytes = self.prepare_report();
        let state = self.lock();
        let report = self.report_of(&state, driver_bytes);
        (state.timing.now_ns(), report, Map::take(&state.memory))
    }

    /// Frees all dead storages, so that the report does not count them. Returns what the driver
    /// says, which may not be asked under the lock.
    fn prepare_report(&self) -> Option<Level> {
        self.driver.settle();
        self.free_all_dead();
        self.driver.driver_bytes()
    }

    fn report_of(&self, state: &State, driver_bytes: Option<Level>) -> MemoryStats {
        let memory = state.memory.report(HOLDERS);
        let (alloc, sums) = (memory.alloc, memory.sums);
        let levels = self.driver.ledger().levels();
        let [upload_bytes, restore_staging_bytes, readback_bytes] = levels.staging_bytes;
        let (spilled_bytes, disk_bytes) = self.spill.levels();
        let caps = self.caps();
        state.counters.with(Taken {
            adapter: caps.name.clone(),
            backend: caps.backend.clone(),
            missing_features: caps.missing_features.clone(),
            requested_bytes: sums.requested_bytes,
            live_bytes: sums.live_bytes,
            live_storages: sums.storages,
            saved_bytes: memory.saved_bytes,
            pending_bytes: state.pending_bytes(),
            cached_bytes: sums.cached_bytes,
            reserved_bytes: Level {
                peak: levels.slab_bytes.peak,
                ..sums.reserved_bytes
            },
            retiring_bytes: levels.retiring_bytes,
            imported_bytes: sums.imported_bytes,
            upload_bytes,
            restore_staging_bytes,
            readback_bytes,
            driver_bytes,
            device_bytes: levels.reserved_bytes,
            budget_bytes: (levels.said_bytes < u64::MAX).then_some(levels.said_bytes),
            host_bytes: self.host.copied_bytes(),
            host_slab_bytes: self.host.slab_bytes(),
            host_free_bytes: memory.host_free_bytes(),
            host_largest_hole_bytes: memory.host_largest_hole_bytes(),
            host_evict_bytes_per_s: state.costs.link_bytes_per_s(false),
            host_restore_bytes_per_s: state.costs.link_bytes_per_s(true),
            disk_bytes,
            spilled_bytes,
            largest_hole_bytes: alloc.largest_hole_bytes,
            fragmentation: alloc.fragmentation,
            staging_limit_bytes: self.uploads.limit_bytes(),
            queued: (state.queue.len() + state.left_behind.len()) as u64,
            pipelines: state.pipelines.len() as u64,
            bind_groups: state.groups.len() as u64,
            evictions: sums.evictions,
            restores: sums.restores,
            buffers_created: self.driver.buffers_created(),
            slabs_released: alloc.slabs_released,
            moved_bytes: alloc.moved_bytes,
            kernels_ns: (state.counters.predicted_ns * state.driver.time_scale()) as u64,
            longest_submission_ns: state.driver.longest_submission_ns(),
            longest_hold_ns: state.holds.longest_ns,
            reclaim_steps: state.counters.reclaim_counts.uses(),
            classes: memory.classes.to_vec(),
            stores: self.stores.iter().map(OpenStore::usage).collect(),
            shares: memory.shares,
            tags: memory.tags,
            slabs: memory.slabs,
            host_slabs: memory.host_slabs,
            holders: memory.holders,
            memory_waits: state.waits.longest(&state.memory),
        })
    }

    /// Keeps a history of the last `most` events.
    pub(crate) fn keep_history(&self, most: usize) {
        let mut state = self.lock();
        state.memory.events.keep(most);
        state.update_time();
    }

    /// The last events in memory.
    pub(crate) fn history(&self) -> History {
        self.free_all_dead();
        self.lock().memory.history()
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
        self.host.reset_peaks();
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
        let times = &mut self.lock().timing.times;
        times.as_mut().map_or(Vec::new(), |times| times.take())
    }

    /// Returns an error if the diagnostics missed a check since the last call.
    pub(crate) fn check_missed(&self) -> Result<()> {
        let mut state = self.lock();
        match (state.diagnose.as_mut()).and_then(|one| one.missed.take()) {
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
    pub fn pads(&self, storage: &Arc<Storage>, row: usize, of: usize) {
        if row < of && self.diagnostics().is_some_and(|wanted| wanted.non_finite) {
            if let Some(diagnose) = &mut self.lock().diagnose {
                diagnose.pads(storage, (of as u32, row as u32));
            }
        }
    }

    /// The storages with a holder other than the queue, grouped by maker, the most bytes first.
    pub(crate) fn leaks(&self) -> Vec<Leak> {
        let alive = alive(&self.lock());
        let groups = by_maker(alive.into_iter()).into_iter();
        let leaks = groups.map(|group| Leak {
            made_at: group[0].tag(),
            storages: group.len() as u64,
            bytes: group.iter().map(|storage| storage.len_bytes()).sum(),
        });
        let mut leaks: Vec<Leak> = leaks.collect();
        leaks.sort_by_key(|leak| Reverse(leak.bytes));
        leaks
    }
}

fn tally(state: &State, buffers_created: u64) -> Tally {
    let sums = state.memory.census.sums;
    Tally {
        live_bytes: sums.live_bytes,
        allocations: sums.storages.up,
        buffers_created,
        moved_bytes: state.memory.slabs.moved_bytes(),
        counters: state.counters,
    }
}

/// The storages with a holder other than the queue.
pub(super) fn alive(state: &State) -> Vec<Arc<Storage>> {
    let queued = || state.queue.iter().chain(state.left_behind.iter());
    let handles = Handles::of(queued());
    let mut alive = state.memory.slots.alive();
    // One holder is this list.
    alive.retain(|storage| handles.of_others(storage) > 1);
    let mut seen = FxHashSet::default();
    for cmd in queued() {
        cmd.visit_operands(|storage, _| {
            let is_unplaced = storage.slot().is_none() && seen.insert(storage.address());
            if is_unplaced && handles.of_others(storage) > 0 {
                alive.push(storage.clone());
            }
        });
    }
    alive
}
