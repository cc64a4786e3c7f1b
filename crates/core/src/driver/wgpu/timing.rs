//! The times of kernels, by the device's clock. While timing is on, each dispatch has a separate
//! pass with a timestamp before and after it. The driver waits for each submission and reads its
//! timestamps. The times are right, but the device idles between submissions.

use parking_lot::{Mutex, MutexGuard};

use super::super::failure::invalid;
use super::super::{DriverResult, KernelRun};
use super::guard::Guard;
use super::stamps::Stamps;

/// The most dispatches of one submission that are timed; later ones run untimed. Submissions
/// usually have 256.
const MOST_DISPATCHES: u32 = 1024;

/// The timestamps of one submission, and the times read so far.
pub(super) struct Timestamps {
    stamps: Stamps,
    /// The dispatches of the last submission, in order.
    runs: Vec<KernelRun>,
    /// The number of dispatches with timestamps in the set.
    running: u32,
}

impl Timestamps {
    fn new(device: &wgpu::Device, queue: &wgpu::Queue) -> Self {
        Timestamps {
            stamps: Stamps::new(device, queue, "kernel times", MOST_DISPATCHES * 2),
            runs: Vec::new(),
            running: 0,
        }
    }

    /// The place of the next dispatch's timestamps. `None` when the set is full.
    pub(super) fn next(&mut self) -> Option<wgpu::ComputePassTimestampWrites<'_>> {
        if self.running >= MOST_DISPATCHES {
            return None;
        }
        let index = self.running * 2;
        self.running += 1;
        Some(wgpu::ComputePassTimestampWrites {
            query_set: &self.stamps.queries,
            beginning_of_pass_write_index: Some(index),
            end_of_pass_write_index: Some(index + 1),
        })
    }

    /// Reads the timestamps of the last submission, if it `happened`. Work whose times cannot be
    /// read is done all the same, so this returns no error.
    pub(super) fn end(&mut self, guard: &Guard, happened: bool) {
        if !happened || self.read(guard).is_err() {
            self.running = 0;
            self.stamps.give_up(guard);
        }
    }

    /// Waits for the last submission, and reads its timestamps.
    fn read(&mut self, guard: &Guard) -> DriverResult<()> {
        let count = self.running * 2;
        if count == 0 {
            return Ok(());
        }
        let signal = self.stamps.ask(guard, count)?;
        pollster::block_on(guard.wait_for(&signal))?;
        let stamps = self.stamps.read(guard, count)?;
        self.add(&stamps);
        Ok(())
    }

    /// Encodes the last commands of a submission, which copy its timestamps to where they can be
    /// read.
    pub(super) fn resolve(&self, encoder: &mut wgpu::CommandEncoder) {
        if self.running > 0 {
            self.stamps.resolve(encoder, self.running * 2);
        }
    }

    fn add(&mut self, stamps: &[u64]) {
        let ns_between = |from: u64, to: u64| self.stamps.ns_between(from, to);
        let last = stamps.iter().copied().max().unwrap_or_default();
        let runs = stamps.chunks_exact(2).map(|stamps| KernelRun {
            ns: ns_between(stamps[0], stamps[1]),
            began_before_ns: ns_between(stamps[0], last),
            ended_before_ns: ns_between(stamps[1], last),
        });
        self.runs = runs.collect();
        self.running = 0;
    }
}

/// The timing of a device's kernels, if it is on. It is locked from the encoding of a submission
/// until its end.
#[derive(Default)]
pub(super) struct KernelTimes {
    timing: Mutex<Option<Timestamps>>,
}

impl KernelTimes {
    /// Starts or stops timing kernels.
    pub(super) fn set(&self, guard: &Guard, queue: &wgpu::Queue, on: bool) -> DriverResult<()> {
        guard.check()?;
        if cfg!(target_arch = "wasm32") {
            return invalid("a browser cannot wait for every submission");
        }
        let mut timing = self.lock();
        if !on {
            *timing = None;
            return Ok(());
        }
        if timing.is_some() {
            return Ok(());
        }
        let features = guard.device.features();
        if !features.contains(wgpu::Features::TIMESTAMP_QUERY) {
            return invalid("the device was opened without timestamps, or has none");
        }
        let created = guard.guarded(|| Timestamps::new(&guard.device, queue));
        *timing = Some(guard.now(created)?);
        Ok(())
    }

    /// The timestamps of the submission that is encoded next, while kernels are timed.
    pub(super) fn lock(&self) -> MutexGuard<'_, Option<Timestamps>> {
        self.timing.lock()
    }

    /// Takes the dispatches of the last submission.
    pub(super) fn take_runs(&self) -> Vec<KernelRun> {
        let mut timing = self.lock();
        let runs = timing.as_mut().map(|timing| &mut timing.runs);
        runs.map(std::mem::take).unwrap_or_default()
    }
}
