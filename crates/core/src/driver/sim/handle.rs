//! The handle of a test on the device: it counts, arms faults, runs the queue and loses the device.

use std::hash::Hasher;
use std::sync::Arc;

use super::counters::SimCounters;
use super::device::SimDevice;
use super::faults::Fault;
use super::files::FileFaults;
use super::options::SimOptions;
use super::work::{Pipeline, Work};

/// A handle on a simulated device, which arms faults, reads counters and lets time pass. Cloning is
/// cheap. It works from any thread, and after the device is lost. When the driver is dropped, it
/// releases all of its objects. An object that is live after that shows that the driver is still
/// referenced.
#[derive(Clone, Debug)]
pub struct SimHandle {
    pub(super) device: Arc<SimDevice>,
}

impl SimHandle {
    /// Adds a fault, which counts calls from now on.
    pub fn arm(&self, fault: Fault) {
        self.device.with(|state| state.faults.arm(fault));
    }

    /// Removes all faults.
    pub fn disarm(&self) {
        self.device.with(|state| state.faults.disarm());
    }

    /// The faults of files: of spill files and of state files.
    pub fn files(&self) -> &FileFaults {
        &self.device.files
    }

    /// The counters of calls and objects so far.
    pub fn counters(&self) -> SimCounters {
        self.device.with(|state| SimCounters {
            buffers_live: state.memory.live_count() as u64,
            pipelines_live: state.pipelines.len() as u64,
            bind_groups_live: state.groups.len() as u64,
            submissions_pending: state.pending() as u64,
            reserved_bytes: state.memory.live_bytes,
            retiring_bytes: state.memory.retiring_bytes,
            peak_bytes: state.memory.peak_bytes,
            ..state.counters
        })
    }

    /// The requests that the device refused without an armed fault, and misuses of calls that
    /// cannot refuse, such as destroying a mapped buffer. It keeps the first hundred. A program
    /// that keeps the rules has none.
    pub fn complaints(&self) -> Vec<String> {
        self.device.with(|state| state.complaints.clone())
    }

    /// The existing kernels that were interpreted without a fault, each with its name and its WGSL.
    /// With this a test can show that it reached all kernels of an app.
    pub fn interpreted(&self) -> Vec<(String, String)> {
        let proven = |kernel: &Pipeline| match &kernel.work {
            Work::Wgsl(program) => program.proven(),
            _ => None,
        };
        self.device.with(|state| {
            let kernels = state.pipelines.iter();
            kernels.filter_map(|(_, kernel)| proven(kernel)).collect()
        })
    }

    /// Executes the next `count` submissions, due or not. Returns the number that it executed.
    pub fn run(&self, count: usize) -> usize {
        self.device.with(|state| state.run(count))
    }

    /// Loses the device. Every later call returns the loss; the first reason stays.
    pub fn lose(&self, reason: &str) {
        self.device.with(|state| state.lose(reason));
    }

    /// Sets the budget that the operating system reports, `None` for no report, and the bytes that
    /// other code of the process uses. The device adds the engine's bytes to that use.
    pub fn set_os_budget(&self, budget_bytes: Option<u64>, others_bytes: u64) {
        self.device.with(|state| {
            state.options.os_budget_bytes = budget_bytes;
            state.others_bytes = others_bytes;
        });
    }

    /// Sets the options of the device that the next reopening finds. They hold from then on, except
    /// its faults: the armed faults stay. Its limits must be at least those of the first device,
    /// else the reopening fails.
    pub fn reopens_as(&self, options: SimOptions) {
        self.device.with(|state| state.next = Some(options));
    }

    /// A hash of all creations, submissions and mappings so far, with all offsets. It is equal for
    /// two runs with the same requests, on 32 bits as on 64.
    pub fn digest(&self) -> u64 {
        self.device.with(|state| state.digest.finish())
    }
}
