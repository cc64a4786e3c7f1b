//! The last events in memory, with their makers.

use crate::engine::Engine;
use crate::memory::{Moment, Tag};

/// The last events in memory: see [`GpuMemory::history`](crate::GpuMemory::history).
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct History {
    /// The events, oldest first.
    pub moments: Vec<Moment>,
    /// The makers. Events hold an index into this list. `None` stands for all makers beyond the
    /// limit.
    pub tags: Vec<Option<Tag>>,
    /// The names of the kernels. Events hold an index into this list.
    pub kernels: Vec<String>,
    /// Number of earlier events that were dropped.
    pub dropped: u64,
}

impl History {
    pub(crate) fn take(engine: &Engine) -> Self {
        let (moments, tags, dropped) = engine.history();
        History {
            moments,
            tags,
            kernels: engine.kernels(),
            dropped,
        }
    }
}
