//! The time that work takes, on a device whose options give it a speed to keep.

use std::time::{Duration, Instant};

use super::contents::Contents;
use super::work::Step;
use crate::driver::{BufferId, BufferKind, Speed};

/// One queue, which works on one submission at a time.
#[derive(Debug, Default)]
pub(super) struct QueueClock {
    busy_until: Option<Instant>,
}

impl QueueClock {
    /// The end of a submission that is queued now.
    pub(super) fn end_of(&mut self, steps: &[Step], memory: &Contents, speed: Speed) -> Instant {
        let now = Instant::now();
        let begin = self.busy_until.map_or(now, |until| until.max(now));
        let taken: Duration = steps.iter().map(|step| time_of(step, memory, speed)).sum();
        let end = begin + taken;
        self.busy_until = Some(end);
        end
    }
}

/// Kernels move the bytes that they bind. Copies between host and device go over the link.
fn time_of(step: &Step, memory: &Contents, speed: Speed) -> Duration {
    let is_slab = |id: BufferId| memory.kind(id) == Some(BufferKind::Slab);
    let (bytes, bytes_per_s) = match step {
        Step::Copy {
            src,
            dst,
            size_bytes,
        } => match is_slab(src.0) && is_slab(dst.0) {
            true => (2 * size_bytes, speed.memory_bytes_per_s),
            false => (*size_bytes, speed.link_bytes_per_s),
        },
        Step::Clear { size_bytes, .. } => (*size_bytes, speed.memory_bytes_per_s),
        Step::Dispatch { bindings, .. } => {
            let bound = bindings.iter().map(|binding| binding.size_bytes);
            (bound.sum(), speed.memory_bytes_per_s)
        }
    };
    Duration::from_secs_f64(bytes as f64 / bytes_per_s.max(1) as f64)
}
