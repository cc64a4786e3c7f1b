//! The last things that happened to memory, and who made what they happened to.

use crate::engine::Engine;
use crate::memory::{Moment, Tag};

/// The last things that happened to memory: see [`GpuMemory::history`](crate::GpuMemory::history).
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct History {
    /// What happened, the oldest first.
    pub moments: Vec<Moment>,
    /// The tags that events name by their place here; `None` for all those of which there were too
    /// many to keep apart.
    pub tags: Vec<Option<Tag>>,
    /// The names of the kernels that events name by their place here.
    pub kernels: Vec<String>,
    /// How many earlier events were forgotten to make room for these.
    pub dropped: u64,
}

impl History {
    pub(crate) fn of(engine: &Engine) -> Self {
        let (moments, tags, dropped) = engine.history();
        History {
            moments,
            tags,
            kernels: engine.kernels(),
            dropped,
        }
    }
}
