//! The state of the memory at one moment: statistics, every block with its maker, and the history.

use crate::dtype::DType;
use crate::engine::{Engine, MemoryStats};
use crate::memory::{EvictedStorage, Moment, SlabMap, Tag};

/// The memory at one moment: see [`GpuMemory::snapshot`](crate::GpuMemory::snapshot). The feature
/// `snapshot` writes it to files and reads it.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct Snapshot {
    /// Time of the snapshot on the clock of `moments`: nanoseconds since the device was opened. 0
    /// in a browser.
    pub taken_at_ns: u64,
    /// Time of the snapshot in milliseconds since 1970; 0 in a browser.
    pub taken_unix_ms: u64,
    /// Sizes and offsets of blocks are multiples of this.
    pub granule_bytes: u64,
    /// The statistics.
    pub stats: MemoryStats,
    /// The makers. Blocks and moments hold an index into this list. `None` stands for all makers
    /// beyond the limit.
    pub tags: Vec<Option<Tag>>,
    /// Every slab of the device, block by block.
    pub slabs: Vec<SlabMap>,
    /// Every slab in the host's memory, block by block. Those that are
    /// [`Live`](crate::stats::BlockState::Live) have bytes that are nowhere else.
    #[cfg_attr(
        feature = "serde",
        serde(default, skip_serializing_if = "Vec::is_empty")
    )]
    pub host_slabs: Vec<SlabMap>,
    /// The storages that are not on the device.
    pub evicted: Vec<EvictedStorage>,
    /// The types of elements, with the numbers of the storages of tensors that have them. Storages
    /// of buffers are not among them.
    #[cfg_attr(feature = "serde", serde(default))]
    pub types: Vec<(DType, Vec<u64>)>,
    /// The names of the kernels. Moments hold an index into this list.
    #[cfg_attr(feature = "serde", serde(default))]
    pub kernels: Vec<String>,
    /// Number of earlier events that were dropped.
    pub dropped: u64,
    /// The events, oldest first. Empty unless
    /// [`GpuMemory::keep_history`](crate::GpuMemory::keep_history) was called.
    pub moments: Vec<Moment>,
}

impl Snapshot {
    pub(crate) fn take(engine: &Engine) -> Self {
        let (taken_at_ns, stats, map) = engine.snapshot();
        let history = map.history;
        Snapshot {
            taken_at_ns,
            taken_unix_ms: unix_ms(),
            granule_bytes: map.granule_bytes,
            stats,
            tags: history.tags,
            slabs: map.slabs,
            host_slabs: map.host_slabs,
            evicted: map.evicted,
            types: map.types,
            kernels: history.kernels,
            dropped: history.dropped,
            moments: history.moments,
        }
    }

    /// The printed form of the maker at this index; `others` for the makers beyond the limit. It
    /// has no control characters, and is of bounded length, whatever name the app gave.
    pub fn tag_name(&self, tag: u32) -> String {
        match self.tags.get(tag as usize) {
            Some(Some(tag)) => tag.to_string(),
            _ => "others".into(),
        }
    }
}

fn unix_ms() -> u64 {
    if cfg!(target_arch = "wasm32") {
        return 0;
    }
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| {
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    })
}
