//! Samples of the memory for whoever looks on, and should keep nothing alive by that.

use std::sync::{Arc, Weak};

use super::MemoryStats;
use crate::engine::Engine;

/// Takes samples of a device's memory for as long as the device is there: see
/// [`GpuMemory::sampler`](crate::GpuMemory::sampler). Cheap to clone, and at home on any thread.
#[derive(Clone, Debug)]
pub struct Sampler {
    engine: Weak<Engine>,
}

impl Sampler {
    pub(crate) fn of(engine: &Arc<Engine>) -> Self {
        Sampler {
            engine: Arc::downgrade(engine),
        }
    }

    /// The numbers of this moment; `None` once the last handle and the last buffer are gone.
    pub fn memory(&self) -> Option<MemoryStats> {
        let engine = self.engine.upgrade()?;
        Some(MemoryStats::of(&engine))
    }
}
