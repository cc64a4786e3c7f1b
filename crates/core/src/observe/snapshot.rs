//! Everything there is to know of the memory at one moment: what it is counted as, where every
//! block is, who made it, and what happened before.

use crate::engine::Engine;
use crate::memory::{EvictedStorage, Moment, SlabMap, Tag};

use super::stats::{HOLDERS, MemoryStats};

/// The memory at one moment: see [`GpuMemory::snapshot`](crate::GpuMemory::snapshot). With the
/// feature `snapshot` it is written to files and read from them.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct Snapshot {
    /// When it was taken, by the clock of `moments`: nanoseconds since the device was opened; 0 in
    /// a browser.
    pub taken_at_ns: u64,
    /// When it was taken, in milliseconds since 1970; 0 in a browser.
    pub taken_unix_ms: u64,
    /// Blocks are whole numbers of so many bytes, and so are their offsets.
    pub granule_bytes: u64,
    /// The numbers.
    pub stats: MemoryStats,
    /// Who made what: blocks and moments name tags by their place here. `None` stands for all those
    /// of which there were too many to keep apart.
    pub tags: Vec<Option<Tag>>,
    /// Every slab, block by block.
    pub slabs: Vec<SlabMap>,
    /// What is not on the device.
    pub evicted: Vec<EvictedStorage>,
    /// The names of the kernels that moments name by their place here.
    #[cfg_attr(feature = "serde", serde(default))]
    pub kernels: Vec<String>,
    /// How many earlier events were forgotten.
    pub dropped: u64,
    /// What happened, the oldest first: nothing, unless
    /// [`GpuMemory::keep_history`](crate::GpuMemory::keep_history) was called.
    pub moments: Vec<Moment>,
}

impl Snapshot {
    pub(crate) fn of(engine: &Engine) -> Self {
        let (taken_at_ns, report, map) = engine.snapshot(HOLDERS);
        Snapshot {
            taken_at_ns,
            taken_unix_ms: unix_ms(),
            granule_bytes: map.granule_bytes,
            stats: MemoryStats::from_report(engine, report),
            tags: map.tags,
            slabs: map.slabs,
            evicted: map.evicted,
            kernels: map.kernels,
            dropped: map.dropped,
            moments: map.moments,
        }
    }

    /// Who made what names this tag: as it prints, or `others` for all of those that were too many.
    pub fn tag_name(&self, tag: u32) -> String {
        match self.tags.get(tag as usize) {
            Some(Some(tag)) => tag.to_string(),
            _ => "others".into(),
        }
    }
}

#[cfg(not(target_arch = "wasm32"))]
fn unix_ms() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| {
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    })
}

#[cfg(target_arch = "wasm32")]
fn unix_ms() -> u64 {
    0
}
