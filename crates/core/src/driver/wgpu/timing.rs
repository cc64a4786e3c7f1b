//! The times of kernels, by the device's clock. While timing is on, each dispatch has a separate
//! pass with a timestamp before and after it. The driver waits for each submission and reads its
//! timestamps. The times are right, but the device idles between submissions.

use parking_lot::{Mutex, MutexGuard};

use super::super::failure::invalid;
use super::super::{DriverError, DriverResult, KernelRun};
use super::guard::Guard;

/// The most dispatches of one submission that are timed; later ones run untimed. Submissions
/// usually have 256.
const MOST_DISPATCHES: u32 = 1024;

const STAMP_BYTES: u64 = wgpu::QUERY_SIZE as u64;

/// The timestamps of one submission, and the times read so far.
pub(super) struct Timestamps {
    queries: wgpu::QuerySet,
    resolved: wgpu::Buffer,
    readable: wgpu::Buffer,
    tick_ns: f64,
    /// The dispatches of the last submission, in order.
    runs: Vec<KernelRun>,
    /// The number of dispatches with timestamps in the set.
    running: u32,
    /// Whether the timestamps are mapped, or will soon be.
    is_mapped: bool,
    /// [`end_of_timed`]. Only a program that times kernels contains it.
    end: fn(&Guard, &mut Timestamps, bool),
}

impl Timestamps {
    fn new(device: &wgpu::Device, queue: &wgpu::Queue) -> Self {
        use wgpu::BufferUsages as Usages;
        let buffer = |usage| {
            device.create_buffer(&wgpu::BufferDescriptor {
                label: Some("kernel times"),
                size: u64::from(MOST_DISPATCHES) * 2 * STAMP_BYTES,
                usage,
                mapped_at_creation: false,
            })
        };
        Timestamps {
            queries: device.create_query_set(&wgpu::QuerySetDescriptor {
                label: Some("kernel times"),
                ty: wgpu::QueryType::Timestamp,
                count: MOST_DISPATCHES * 2,
            }),
            resolved: buffer(Usages::QUERY_RESOLVE | Usages::COPY_SRC),
            readable: buffer(Usages::COPY_DST | Usages::MAP_READ),
            tick_ns: f64::from(queue.get_timestamp_period()),
            runs: Vec::new(),
            running: 0,
            is_mapped: false,
            end: end_of_timed,
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
            query_set: &self.queries,
            beginning_of_pass_write_index: Some(index),
            end_of_pass_write_index: Some(index + 1),
        })
    }

    /// Reads the timestamps of the last submission, if it `happened`.
    pub(super) fn end(&mut self, guard: &Guard, happened: bool) {
        (self.end)(guard, self, happened);
    }

    /// Encodes the last commands of a submission, which copy its timestamps to where they can be
    /// read.
    pub(super) fn resolve(&self, encoder: &mut wgpu::CommandEncoder) {
        let count = self.running * 2;
        if count > 0 {
            encoder.resolve_query_set(&self.queries, 0..count, &self.resolved, 0);
            let bytes = u64::from(count) * STAMP_BYTES;
            encoder.copy_buffer_to_buffer(&self.resolved, 0, &self.readable, 0, bytes);
        }
    }

    fn add(&mut self, stamps: &[u64]) {
        let tick_ns = self.tick_ns;
        let ns_between = |from: u64, to: u64| (to.saturating_sub(from) as f64 * tick_ns) as u64;
        let last = stamps.iter().copied().max().unwrap_or_default();
        self.running = 0;
        self.runs.clear();
        let runs = stamps.chunks_exact(2).map(|stamps| KernelRun {
            ns: ns_between(stamps[0], stamps[1]),
            began_before_ns: ns_between(stamps[0], last),
            ended_before_ns: ns_between(stamps[1], last),
        });
        self.runs.extend(runs);
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
        let runs = timing
            .as_mut()
            .map(|timing| std::mem::take(&mut timing.runs));
        runs.unwrap_or_default()
    }
}

/// Reads the timestamps of the last submission, if it `happened`. Work whose times cannot be read
/// is done all the same, so this returns no error.
fn end_of_timed(guard: &Guard, timing: &mut Timestamps, happened: bool) {
    if happened && read_stamps(guard, timing).is_ok() {
        return;
    }
    timing.running = 0;
    if std::mem::take(&mut timing.is_mapped) {
        // Only a mapped buffer may be unmapped, and unmapping may fail with the device.
        let _ = guard.now(guard.guarded(|| timing.readable.unmap()));
    }
}

/// Waits for the last submission, and reads its timestamps.
fn read_stamps(guard: &Guard, timing: &mut Timestamps) -> DriverResult<()> {
    let bytes = u64::from(timing.running) * 2 * STAMP_BYTES;
    if bytes == 0 {
        return Ok(());
    }
    let (signal, notice) = guard.progress.mapping();
    let asked = guard.guarded(|| {
        let tell = move |result: Result<(), _>| notice.tell(result.is_ok());
        (timing.readable).map_async(wgpu::MapMode::Read, 0..bytes, tell);
    });
    guard.now(asked)?;
    timing.is_mapped = true;
    pollster::block_on(guard.wait_for(&signal))?;
    let shown = guard.guarded(|| timing.readable.get_mapped_range(0..bytes));
    let view = guard.now(shown)?;
    let view = view.map_err(|error| DriverError::Invalid(error.to_string()))?;
    let stamps: Vec<u64> = (view.chunks_exact(8))
        .map(|stamp| (stamp.iter().rev()).fold(0, |all, byte| all << 8 | u64::from(*byte)))
        .collect();
    drop(view);
    guard.now(guard.guarded(|| timing.readable.unmap()))?;
    timing.is_mapped = false;
    timing.add(&stamps);
    Ok(())
}
