//! The handle of a test on the device: it counts, arms faults, runs the queue and loses the device.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use super::Device;
use super::faults::{Fault, SITES, Site};
use super::files::FileFaults;
use super::options::SimOptions;
use super::queue::{Pipeline, Work};

/// A handle on a simulated device, which arms faults, reads counters and lets time pass. Cloning is
/// cheap. It works from any thread, and after the device is lost. When the driver is dropped, it
/// releases all of its objects. An object that is live after that shows that the driver is still
/// referenced.
#[derive(Clone, Debug)]
pub struct SimHandle {
    pub(super) device: Arc<Device>,
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

/// The counters of a simulated device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SimCounters {
    calls: [u64; SITES],
    /// Buffers created.
    pub buffers_created: u64,
    /// Buffers destroyed.
    pub buffers_destroyed: u64,
    /// Existing buffers.
    pub buffers_live: u64,
    /// Kernels compiled.
    pub pipelines_created: u64,
    /// Existing kernels.
    pub pipelines_live: u64,
    /// Bind groups created.
    pub bind_groups_created: u64,
    /// Existing bind groups.
    pub bind_groups_live: u64,
    /// Submissions accepted.
    pub submissions: u64,
    /// Submissions that are accepted and not executed yet.
    pub submissions_pending: u64,
    /// Copies in the accepted submissions.
    pub copies: u64,
    /// The bytes of those copies.
    pub copied_bytes: u64,
    /// Clears in the accepted submissions.
    pub clears: u64,
    /// Dispatches in the accepted submissions.
    pub dispatches: u64,
    /// Bytes of all existing buffers.
    pub reserved_bytes: u64,
    /// Bytes of destroyed buffers that submissions still use.
    pub retiring_bytes: u64,
    /// The highest sum of reserved and retiring bytes.
    pub peak_bytes: u64,
    /// Calls that faults struck.
    pub faults: u64,
    /// Refusals and misuses: see [`SimHandle::complaints`].
    pub complaints: u64,
}

impl SimCounters {
    pub(super) fn new(calls: [u64; SITES]) -> Self {
        SimCounters {
            calls,
            buffers_created: 0,
            buffers_destroyed: 0,
            buffers_live: 0,
            pipelines_created: 0,
            pipelines_live: 0,
            bind_groups_created: 0,
            bind_groups_live: 0,
            submissions: 0,
            submissions_pending: 0,
            copies: 0,
            copied_bytes: 0,
            clears: 0,
            dispatches: 0,
            reserved_bytes: 0,
            retiring_bytes: 0,
            peak_bytes: 0,
            faults: 0,
            complaints: 0,
        }
    }

    /// The number of calls of this kind so far, failed ones included.
    pub fn calls(&self, site: Site) -> u64 {
        self.calls[site as usize]
    }

    pub(super) fn count(&mut self, site: Site) {
        self.calls[site as usize] += 1;
        if site != Site::MapDone {
            self.calls[Site::AnyCall as usize] += 1;
        }
    }
}

/// A hash over numbers of fixed width, so that it does not depend on the size of `usize`.
pub(super) struct Digest(u64);

impl Default for Digest {
    fn default() -> Self {
        Digest(0xcbf2_9ce4_8422_2325)
    }
}

impl Digest {
    pub(super) fn note(&mut self, what: impl Hash) {
        what.hash(self);
    }
}

impl Hasher for Digest {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for word in bytes.chunks(8) {
            let mut padded = [0; 8];
            padded[..word.len()].copy_from_slice(word);
            self.write_u64(u64::from_le_bytes(padded));
        }
    }

    fn write_u32(&mut self, value: u32) {
        self.write_u64(value.into());
    }

    fn write_u64(&mut self, value: u64) {
        // 2^64 divided by the golden ratio.
        self.0 = (self.0.rotate_left(23) ^ value).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }

    fn write_usize(&mut self, value: usize) {
        self.write_u64(value as u64);
    }

    fn write_isize(&mut self, value: isize) {
        self.write_u64(value as u64);
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimDevice")
            .field("name", &self.caps.name)
            .finish_non_exhaustive()
    }
}
