//! The times of copies between the device and the heap in the host's memory, by the device's clock.
//!
//! ```text
//!   submission  … dispatches │ stamp │ copy copy copy │ stamp │ dispatches …
//! ```
//!
//! Some submissions have a timestamp before and after their largest run of such copies one way. The
//! driver reads the timestamps at a later submission, so nobody waits for them. A device without
//! timestamps has no such times.

use std::ops::Range;

use parking_lot::{Mutex, MutexGuard};

use super::super::{At, BufferId, LinkRun, Op, Signal};
use super::guard::Guard;
use super::opened::Opened;
use super::stamps::Stamps;
use super::tables::Tables;

/// The first runs are timed, and after that one in so many.
const FIRST_RUNS: u32 = 16;
const ONE_IN: u32 = 32;

/// The time of fewer bytes says more about the clock than about the link.
const LEAST_BYTES: u64 = 256 << 10;

/// A timestamp before the run, and one after it.
const STAMPS: u32 = 2;

/// The timing of the copies of one device.
#[derive(Default)]
pub(super) struct LinkTimes(Mutex<Watch>);

#[derive(Default)]
struct Watch {
    stamps: Option<Stamps>,
    /// The device has no timestamps, or an error came of them.
    is_off: bool,
    /// The number of runs each way that could be timed.
    runs: [u32; 2],
    /// The run whose timestamps are not read yet, without its time.
    under_way: Option<(LinkRun, Signal)>,
}

/// The timing of one submission, until its end.
pub(super) struct TimedLink<'a> {
    watch: MutexGuard<'a, Watch>,
    /// The ops that are timed.
    ops: Range<usize>,
    run: LinkRun,
}

impl LinkTimes {
    /// Begins to time the copies of a submission. `None` if it has too few, or is not timed.
    pub(super) fn begin(&self, opened: &Opened, ops: &[Op]) -> Option<TimedLink<'_>> {
        if !opened.caps.host_heap {
            return None;
        }
        let mut watch = self.0.lock();
        if watch.is_off || watch.under_way.is_some() {
            return None;
        }
        // Of two ways, the one that was timed less.
        let found = largest_runs(ops, &opened.tables()).into_iter().flatten();
        let (ops, run) = found.min_by_key(|(_, run)| watch.runs[usize::from(run.is_to_device)])?;
        let runs = &mut watch.runs[usize::from(run.is_to_device)];
        *runs = runs.wrapping_add(1);
        if *runs > FIRST_RUNS && !runs.is_multiple_of(ONE_IN) {
            return None;
        }
        if watch.stamps.is_none() {
            watch.stamps = create(opened);
            watch.is_off = watch.stamps.is_none();
        }
        (watch.stamps.is_some()).then_some(TimedLink { watch, ops, run })
    }

    /// The run whose timestamps have arrived, if one has. Each call takes it.
    pub(super) fn take_run(&self, guard: &Guard) -> Option<LinkRun> {
        let mut watch = self.0.lock();
        let is_read = (watch.under_way.as_ref())?.1.outcome()?;
        let (run, _) = watch.under_way.take()?;
        let stamps = watch.stamps.as_mut()?;
        let read = match is_read {
            true => stamps.read(guard, STAMPS).ok(),
            false => None,
        };
        let Some(&[from, to]) = read.as_deref() else {
            stamps.give_up(guard);
            watch.is_off = true;
            return None;
        };
        let ns = stamps.ns_between(from, to);
        // A timestamp that was not written is 0.
        (from > 0 && ns > 0).then_some(LinkRun { ns, ..run })
    }
}

fn create(opened: &Opened) -> Option<Stamps> {
    let guard = &opened.guard;
    // On Metal a pass without commands may write no timestamp, and need not wait for the copies.
    let has_stamps = (guard.device.features()).contains(wgpu::Features::TIMESTAMP_QUERY)
        && opened.caps.backend != wgpu::Backend::Metal.to_str();
    let create = || Stamps::new(&guard.device, &opened.queue, "copies' times", STAMPS);
    let created = has_stamps.then(|| guard.now(guard.guarded(create)));
    created?.ok()
}

impl TimedLink<'_> {
    /// Whether a timestamp belongs before the op of this index.
    pub(super) fn is_at(&self, index: usize) -> bool {
        [self.ops.start, self.ops.end].contains(&index)
    }

    /// Encodes the timestamp that belongs before the op of this index.
    pub(super) fn stamp(&self, index: usize, encoder: &mut wgpu::CommandEncoder) {
        let Some(stamps) = &self.watch.stamps else {
            return;
        };
        let is_end = index == self.ops.end;
        let (before, after) = match is_end {
            true => (Some(1), None),
            false => (None, Some(0)),
        };
        // A pass without commands takes part in the order of the others.
        drop(encoder.begin_compute_pass(&wgpu::ComputePassDescriptor {
            label: None,
            timestamp_writes: Some(wgpu::ComputePassTimestampWrites {
                query_set: &stamps.queries,
                beginning_of_pass_write_index: before,
                end_of_pass_write_index: after,
            }),
        }));
        if is_end {
            stamps.resolve(encoder, STAMPS);
        }
    }

    /// Asks for the timestamps, if the submission happened.
    pub(super) fn end(mut self, guard: &Guard, happened: bool) {
        let watch = &mut *self.watch;
        let Some(stamps) = watch.stamps.as_mut().filter(|_| happened) else {
            return;
        };
        match stamps.ask(guard, STAMPS) {
            Ok(signal) => watch.under_way = Some((self.run, signal)),
            Err(_) => watch.is_off = true,
        }
    }
}

/// The ops of a run.
type TimedOps = (Range<usize>, LinkRun);

/// For each way the copies, one after the other, that have most bytes. `None` if they are too few.
fn largest_runs(ops: &[Op], tables: &Tables) -> [Option<TimedOps>; 2] {
    let mut best: [Option<TimedOps>; 2] = [None, None];
    let mut now: Option<TimedOps> = None;
    for (index, op) in ops.iter().enumerate() {
        let Some((is_to_device, bytes)) = over_link(op, tables) else {
            now = None;
            continue;
        };
        let same = now.filter(|(_, run)| run.is_to_device == is_to_device);
        let (range, mut run) = same.unwrap_or((index..index, LinkRun::default()));
        run.is_to_device = is_to_device;
        run.copies += 1;
        run.bytes += bytes;
        let longer = (range.start..index + 1, run);
        let best = &mut best[usize::from(is_to_device)];
        let most_bytes = best.as_ref().map_or(LEAST_BYTES, |best| best.1.bytes);
        if run.bytes >= most_bytes {
            *best = Some(longer.clone());
        }
        now = Some(longer);
    }
    best
}

/// Whether an op copies from the heap to the device or back, and its bytes.
fn over_link(op: &Op, tables: &Tables) -> Option<(bool, u64)> {
    use wgpu::BufferUsages as Usages;
    let Op::Copy(At(src, _), At(dst, _), size_bytes) = *op else {
        return None;
    };
    let usage = |id: BufferId| tables.buffers.get(id.0).map(|buffer| buffer.raw.usage());
    let is_device = |usage: Usages| usage.contains(Usages::STORAGE);
    // Of all buffers without kernels, only those of the heap are copied from and to.
    let both = Usages::COPY_SRC | Usages::COPY_DST;
    let is_heap = |usage: Usages| usage.contains(both) && !is_device(usage);
    let (src, dst) = (usage(src)?, usage(dst)?);
    let is_to_device = is_heap(src) && is_device(dst);
    let is_to_heap = is_device(src) && is_heap(dst);
    (is_to_device || is_to_heap).then_some((is_to_device, size_bytes))
}
