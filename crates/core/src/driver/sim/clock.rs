//! The time that work takes, on a device whose options give it a speed to keep.
//!
//! ```text
//!   submission  submission_ns, then its steps, one after the other
//!   copy        copy_ns, and its bytes: over the link one way, or within the device
//!   clear       the bytes that it writes
//!   dispatch    the bytes that it binds
//! ```

use std::time::{Duration, Instant};

use super::contents::Contents;
use super::queue::State;
use super::work::Step;
use crate::driver::{BufferId, BufferKind, Speed};

/// One queue, which works on one submission at a time.
#[derive(Debug, Default)]
pub(super) struct QueueClock {
    busy_until: Option<Instant>,
}

impl QueueClock {
    /// The end of a submission that is queued `now` and takes `taken`.
    pub(super) fn end_of(&mut self, taken: Duration, now: Instant) -> Instant {
        let begin = self.busy_until.map_or(now, |until| until.max(now));
        let end = begin + taken;
        self.busy_until = Some(end);
        end
    }
}

impl State {
    /// The time in which the host reads bytes of a mapped buffer.
    pub(super) fn time_of_read(&self, buffer: BufferId, size_bytes: u64) -> Duration {
        let is_slab = self.memory.kind(buffer) == Some(BufferKind::HostSlab);
        match self.options.host_read_bytes_per_s.filter(|_| is_slab) {
            Some(speed) => Duration::from_secs_f64(size_bytes as f64 / speed.max(1) as f64),
            None => Duration::ZERO,
        }
    }
}

/// The time of a submission.
pub(super) fn time_of(steps: &[Step], memory: &Contents, speed: Speed) -> Duration {
    let steps = steps.iter().map(|step| time_of_step(step, memory, speed));
    Duration::from_nanos(speed.submission_ns.into()) + steps.sum::<Duration>()
}

/// Kernels move the bytes that they bind. Copies from and to the host go over the link.
fn time_of_step(step: &Step, memory: &Contents, speed: Speed) -> Duration {
    let is_slab = |id: BufferId| memory.kind(id) == Some(BufferKind::Slab);
    let (fixed_ns, bytes, bytes_per_s) = match step {
        Step::Copy(src, dst, size_bytes) => {
            let (bytes, bytes_per_s) = match (is_slab(src.0), is_slab(dst.0)) {
                (true, true) => (2 * size_bytes, speed.memory_bytes_per_s),
                (false, true) => (*size_bytes, speed.upload_bytes_per_s),
                (_, false) => (*size_bytes, speed.download_bytes_per_s),
            };
            (speed.copy_ns, bytes, bytes_per_s)
        }
        Step::Clear(_, size_bytes) => (0, *size_bytes, speed.memory_bytes_per_s),
        Step::Write(_, bytes) => (0, bytes.len() as u64, speed.upload_bytes_per_s),
        Step::Dispatch { bindings, .. } => {
            let bound = bindings.iter().map(|binding| binding.size_bytes);
            (0, bound.sum(), speed.memory_bytes_per_s)
        }
    };
    let moving = Duration::from_secs_f64(bytes as f64 / bytes_per_s.max(1) as f64);
    Duration::from_nanos(fixed_ns.into()) + moving
}
