//! Memory statistics for observers that must not keep the device alive.

use std::sync::Arc;

use super::Snapshot;
use crate::engine::{Engine, MemoryStats, WeakEngine};

/// Takes memory statistics while the device exists: see
/// [`GpuMemory::sampler`](crate::GpuMemory::sampler). Cheap to clone and usable on any thread.
#[derive(Clone, Debug)]
pub struct Sampler {
    engine: WeakEngine,
}

impl Sampler {
    pub(crate) fn new(engine: &Arc<Engine>) -> Self {
        Sampler {
            engine: engine.downgrade_device(),
        }
    }

    /// The statistics of this moment; `None` once the last handle and the last buffer are dropped.
    pub fn memory(&self) -> Option<MemoryStats> {
        let engine = self.engine.upgrade()?;
        Some(engine.own().report())
    }

    /// As [`GpuMemory::snapshot`](crate::GpuMemory::snapshot); `None` as for
    /// [`memory`](Sampler::memory).
    pub fn snapshot(&self) -> Option<Snapshot> {
        let engine = self.engine.upgrade()?;
        Some(Snapshot::take(engine.own()))
    }
}
