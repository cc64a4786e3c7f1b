//! Other allocators' results on a trace. Only the bookkeeping of their known rules is simulated.
//! They have no budget, move nothing and release nothing. Frees take effect at once.

mod apart;
mod buckets;
mod heap;
mod interface;
mod torch;

use std::time::{Duration, Instant};

use super::outcome::{LAST_THIRD, Outcome, Point, stretches};
use super::trace::{Event, Trace};
use interface::Policy;

/// An allocator that can be named in arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reference {
    /// PyTorch's caching allocator for CUDA: segments of 2 and 20 MiB, best fit, splitting.
    Pytorch,
    /// A free list for each power of two.
    Buckets,
    /// Best fit on one heap that grows at its end.
    Heap,
    /// A buffer for each tensor, destroyed with it.
    Apart,
}

impl Reference {
    pub const ALL: [Reference; 4] = [
        Reference::Pytorch,
        Reference::Buckets,
        Reference::Heap,
        Reference::Apart,
    ];

    /// The name in tables.
    pub fn title(self) -> &'static str {
        match self {
            Reference::Pytorch => "PyTorch's rules",
            Reference::Buckets => "powers of two",
            Reference::Heap => "best fit, one heap",
            Reference::Apart => "a buffer a tensor",
        }
    }

    /// The name for programs.
    pub fn name(self) -> &'static str {
        match self {
            Reference::Pytorch => "pytorch",
            Reference::Buckets => "buckets",
            Reference::Heap => "heap",
            Reference::Apart => "apart",
        }
    }

    fn policy(self) -> Box<dyn Policy> {
        match self {
            Reference::Pytorch => Box::new(torch::Torch::default()),
            Reference::Buckets => Box::new(buckets::Buckets::default()),
            Reference::Heap => Box::new(heap::Heap::default()),
            Reference::Apart => Box::new(apart::Apart::default()),
        }
    }
}

/// Runs a trace. Reads of operators have no effect here.
pub fn run(trace: &Trace, reference: Reference) -> Outcome {
    let mut policy = reference.policy();
    let mut outcome = Outcome {
        peak_live_bytes: trace.peak_live_bytes,
        ..Outcome::default()
    };
    let mut sizes = vec![0; trace.storages];
    let mut live_bytes = 0_u64;
    let mut early_buffers = 0;
    let mut elapsed = Duration::ZERO;
    for (number, (first, end)) in stretches(trace.events.len()).enumerate() {
        if number == LAST_THIRD {
            early_buffers = policy.buffers_created();
        }
        let mut point = Point::default();
        let start = Instant::now();
        for event in &trace.events[first..end] {
            match *event {
                Event::Alloc { id, bytes } => {
                    policy.alloc(id, bytes);
                    sizes[id] = bytes;
                    live_bytes += bytes;
                }
                Event::Free { id } => {
                    policy.free(id);
                    live_bytes -= sizes[id];
                }
                Event::Run { .. } => continue,
            }
            point.live_bytes = point.live_bytes.max(live_bytes);
            point.reserved_bytes = point.reserved_bytes.max(policy.reserved_bytes());
        }
        elapsed += start.elapsed();
        // A range without events keeps the levels before it.
        point.live_bytes = point.live_bytes.max(live_bytes);
        point.reserved_bytes = point.reserved_bytes.max(policy.reserved_bytes());
        outcome.curve.push(point);
    }
    let reserved = outcome.curve.iter().map(|point| point.reserved_bytes);
    outcome.peak_reserved_bytes = reserved.max().unwrap_or(0);
    outcome.buffers_created = policy.buffers_created();
    outcome.buffers_created_last_third = outcome.buffers_created - early_buffers;
    outcome.ns_per_event = elapsed.as_nanos() as f64 / trace.events.len().max(1) as f64;
    outcome
}
