//! The engine's numbers, for reports.

use super::Engine;
use super::ladder::Gains;
use crate::driver::Levels;
use crate::memory::MemoryReport;

/// What the engine counts.
#[derive(Clone, Debug)]
pub(crate) struct EngineReport {
    pub(crate) memory: MemoryReport,
    pub(crate) levels: Levels,
    pub(crate) upload_bytes: u64,
    pub(crate) readback_bytes: u64,
    /// Commands that wait in the queue.
    pub(crate) queued: u64,
    pub(crate) commands: u64,
    pub(crate) submissions: u64,
    pub(crate) buffers_created: u64,
    pub(crate) slabs_created: u64,
    pub(crate) handed_on: u64,
    pub(crate) refusals: u64,
    pub(crate) budget_bytes: Option<u64>,
    pub(crate) host_bytes: u64,
    pub(crate) peak_host_bytes: u64,
    pub(crate) disk_bytes: u64,
    pub(crate) spilled_bytes: u64,
    pub(crate) put_out_bytes: u64,
    pub(crate) dropped_bytes: u64,
    pub(crate) brought_in_bytes: u64,
    pub(crate) compactions: u64,
    pub(crate) gains: Gains,
    pub(crate) pipelines: u64,
    pub(crate) bind_groups: u64,
}

impl Engine {
    /// All numbers at once, with the `holders` greatest holders of memory.
    pub(crate) fn report(&self, holders: usize) -> EngineReport {
        self.driver.settle();
        let (upload_bytes, readback_bytes) = (
            self.uploads.reserved_bytes() + self.arrivals.reserved_bytes(),
            self.readbacks.reserved_bytes(),
        );
        // What is gone is not to be reported as held.
        self.bury_all();
        let state = self.lock();
        EngineReport {
            memory: state.memory.report(holders),
            levels: self.driver.ledger().levels(),
            upload_bytes,
            readback_bytes,
            queued: (state.queue.len() + state.left.cmds.len()) as u64,
            commands: state.counters.commands,
            submissions: state.counters.submissions,
            buffers_created: self.driver.buffers_created(),
            slabs_created: state.counters.slabs_created,
            handed_on: state.counters.handed_on,
            refusals: state.counters.refusals,
            budget_bytes: self.limits().budget.device_bytes,
            host_bytes: self.host.used_bytes(),
            peak_host_bytes: self.host.peak_bytes(),
            disk_bytes: self.spill.file_bytes(),
            spilled_bytes: self.spill.used_bytes(),
            put_out_bytes: state.counters.put_out_bytes,
            dropped_bytes: state.counters.dropped_bytes,
            brought_in_bytes: state.counters.brought_in_bytes,
            compactions: state.counters.compactions,
            gains: state.counters.gains,
            pipelines: state.pipelines.len() as u64,
            bind_groups: state.groups.len() as u64,
        }
    }

    /// Starts the peaks anew from the present.
    pub(crate) fn reset_peaks(&self) {
        self.driver.ledger().reset_peak();
        self.host.reset_peak();
        self.lock().memory.reset_peaks();
    }
}
