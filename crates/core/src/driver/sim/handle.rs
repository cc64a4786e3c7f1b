//! What a test keeps beside the device: it counts, arms faults, runs the queue, loses the device.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use super::Device;
use super::faults::{Fault, SITES, Site};
use super::files::FileFaults;
use super::options::SimOptions;
use super::queue::{Pipeline, Work};

/// A hand on a simulated device, to arm faults, to look at counters and to let time pass. Cheap
/// to clone; it works from any thread, and after the device is gone. When the driver is dropped,
/// everything that it held is given back: what is live after that is somebody else's reference to
/// the driver.
#[derive(Clone, Debug)]
pub struct SimHandle {
    pub(super) device: Arc<Device>,
}

impl SimHandle {
    /// Adds a fault; its calls are counted from now.
    pub fn arm(&self, fault: Fault) {
        self.device.with(|state| state.faults.arm(fault));
    }

    /// Takes all faults back.
    pub fn disarm(&self) {
        self.device.with(|state| state.faults.disarm());
    }

    /// What goes wrong with files: those that tensors are spilled to, and those of states.
    pub fn files(&self) -> &FileFaults {
        &self.device.files
    }

    /// What was called, made and taken so far.
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

    /// What the device refused (but for armed faults), and what was misused where there is no way
    /// to refuse, such as destroying a mapped buffer. The first hundred; empty in a program that
    /// keeps the rules.
    pub fn complaints(&self) -> Vec<String> {
        self.device.with(|state| state.complaints.clone())
    }

    /// The kernels that exist and were interpreted without a fault, each as its name and its WGSL:
    /// a test can show that it reached all of an app's kernels.
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

    /// Executes the next `count` submissions, due or not; how many there were.
    pub fn run(&self, count: usize) -> usize {
        self.device.with(|state| state.run(count))
    }

    /// The device goes away. Every later call says so; the first reason stays.
    pub fn lose(&self, reason: &str) {
        self.device.with(|state| state.lose(reason));
    }

    /// From now on the operating system grants the process so much, if it says anything at all, and
    /// others in the process use so much of it; what the device holds for us comes on top.
    pub fn set_os_budget(&self, budget_bytes: Option<u64>, others_bytes: u64) {
        self.device.with(|state| {
            state.options.os_budget_bytes = budget_bytes;
            state.others_bytes = others_bytes;
        });
    }

    /// What the device is like that the next reopening after a loss finds: its memory, its
    /// lateness and so on hold from then, the armed faults stay. Its limits must be at least those
    /// of the first one, else the reopening fails.
    pub fn reopens_as(&self, options: SimOptions) {
        self.device.with(|state| state.next = Some(options));
    }

    /// A number made of every creation, submission and mapping so far, with all offsets: equal
    /// for two runs that asked the same of the device, on 32 bits as on 64.
    pub fn digest(&self) -> u64 {
        self.device.with(|state| state.digest.finish())
    }
}

/// What a simulated device was asked for, and what it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SimCounters {
    calls: [u64; SITES],
    /// Buffers made.
    pub buffers_created: u64,
    /// Buffers given back.
    pub buffers_destroyed: u64,
    /// Buffers that exist.
    pub buffers_live: u64,
    /// Kernels compiled.
    pub pipelines_created: u64,
    /// Kernels that exist.
    pub pipelines_live: u64,
    /// Bind groups made.
    pub bind_groups_created: u64,
    /// Bind groups that exist.
    pub bind_groups_live: u64,
    /// Submissions accepted.
    pub submissions: u64,
    /// Submissions accepted and not executed yet.
    pub submissions_pending: u64,
    /// Copies in the accepted submissions.
    pub copies: u64,
    /// The bytes of those copies.
    pub copied_bytes: u64,
    /// Clears in the accepted submissions.
    pub clears: u64,
    /// Dispatches in the accepted submissions.
    pub dispatches: u64,
    /// Bytes of all buffers that exist.
    pub reserved_bytes: u64,
    /// Bytes of destroyed buffers that submissions still use.
    pub retiring_bytes: u64,
    /// The most that reserved and retiring bytes came to, together.
    pub peak_bytes: u64,
    /// Faults that struck.
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

    /// How often the driver was called there, whatever came of it.
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

/// A hash over numbers of fixed width, so that it is the same whatever a `usize` is.
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
