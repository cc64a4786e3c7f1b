//! Statistics as plain values. Counting costs a few additions per call.

use super::{AllocError, Carver, SlabId};
use crate::units::Granules;

/// The present, the highest and the total counts of an allocator.
///
/// ```
/// use lapidary_alloc::Carver;
///
/// let mut carver = Carver::new(256)?;
/// carver.add_slab(4096)?;
/// let block = carver.allocate(1000)?;
/// let stats = carver.stats();
/// assert_eq!((stats.requested_bytes, stats.granted_bytes), (1000, 1024));
/// assert_eq!(stats.reserved_bytes, stats.granted_bytes + stats.cached_bytes);
/// # Ok::<(), lapidary_alloc::AllocError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct AllocStats {
    /// Bytes that the callers of the live blocks asked for.
    pub requested_bytes: u64,
    /// Bytes that the live blocks take, in whole granules.
    pub granted_bytes: u64,
    /// Bytes of all slabs.
    pub reserved_bytes: u64,
    /// Bytes of slabs outside live blocks: `reserved_bytes - granted_bytes`.
    pub cached_bytes: u64,
    /// Live blocks.
    pub live_blocks: u64,
    /// The highest `requested_bytes` since the last reset.
    pub peak_requested_bytes: u64,
    /// The highest `granted_bytes` since the last reset.
    pub peak_granted_bytes: u64,
    /// The highest `reserved_bytes` since the last reset.
    pub peak_reserved_bytes: u64,
    /// The highest `live_blocks` since the last reset.
    pub peak_live_blocks: u64,
    /// Bytes of the largest hole, over all slabs.
    pub largest_hole_bytes: u64,
    /// The share of free bytes outside the largest hole: `1 - largest_hole_bytes / cached_bytes`,
    /// or 0 if no byte is free. With several empty slabs, all but the largest hole count as
    /// fragments.
    pub fragmentation: f64,
    /// Present slabs.
    pub slabs: u64,
    /// Slabs without a live block.
    pub empty_slabs: u64,
    /// Blocks allocated so far.
    pub allocations: u64,
    /// Blocks freed so far.
    pub frees: u64,
    /// Bytes granted to all blocks so far.
    pub allocated_bytes: u64,
    /// Moves of a live block to another slab so far.
    pub moves: u64,
    /// Bytes of the blocks moved so far.
    pub moved_bytes: u64,
    /// Slabs added so far.
    pub slabs_created: u64,
    /// Slabs removed so far.
    pub slabs_released: u64,
}

/// The contents of one slab.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlabInfo {
    /// The slab.
    pub slab: SlabId,
    /// Its size in bytes.
    pub size_bytes: u64,
    /// Bytes of its live blocks.
    pub live_bytes: u64,
    /// The number of its live blocks.
    pub blocks: u32,
    /// Bytes of the largest hole in it.
    pub largest_hole_bytes: u64,
}

impl Carver {
    /// The contents of a slab. O(blocks and holes in it).
    ///
    /// # Errors
    /// [`AllocError::StaleSlab`] when the slab was removed or belongs to another allocator.
    pub fn slab(&self, slab: SlabId) -> Result<SlabInfo, AllocError> {
        let entry = &self.slabs[self.slabs.resolve(slab)?];
        let (mut live, mut largest_hole) = (Granules(0), Granules(0));
        for node in self.nodes_of(entry.first) {
            if node.is_live() {
                live.0 += node.size().0;
            } else {
                largest_hole = largest_hole.max(node.size());
            }
        }
        Ok(SlabInfo {
            slab,
            size_bytes: self.unit.bytes(entry.size),
            live_bytes: self.unit.bytes(live),
            blocks: entry.blocks,
            largest_hole_bytes: self.unit.bytes(largest_hole),
        })
    }

    /// The contents of all slabs, by index. Each step is O(blocks and holes in one slab).
    pub fn slabs(&self) -> impl Iterator<Item = SlabInfo> {
        self.slabs.iter().filter_map(|(id, _)| self.slab(id).ok())
    }

    /// All statistics at once. O(slabs + holes in the highest bin in use).
    pub fn stats(&self) -> AllocStats {
        let Counters {
            requested,
            granted,
            reserved,
            blocks,
            ..
        } = self.counters;
        let indices = self.zones.iter().flat_map(|zone| [&zone.used, &zone.empty]);
        let largest_hole = indices
            .map(|index| index.largest(&self.nodes))
            .max()
            .unwrap_or_default();
        let largest_hole_bytes = self.unit.bytes(largest_hole);
        let cached_bytes = reserved.now - granted.now();
        let whole = largest_hole_bytes as f64 / cached_bytes.max(1) as f64;
        AllocStats {
            requested_bytes: requested.now,
            granted_bytes: granted.now(),
            reserved_bytes: reserved.now,
            cached_bytes,
            live_blocks: blocks.now(),
            peak_requested_bytes: requested.peak,
            peak_granted_bytes: granted.peak,
            peak_reserved_bytes: reserved.peak,
            peak_live_blocks: blocks.peak,
            largest_hole_bytes,
            fragmentation: if cached_bytes == 0 { 0.0 } else { 1.0 - whole },
            slabs: self.counters.slabs_created - self.counters.slabs_released,
            empty_slabs: self.empty_slabs().count() as u64,
            allocations: blocks.raised,
            frees: blocks.lowered,
            allocated_bytes: granted.raised,
            moves: self.counters.moves,
            moved_bytes: self.counters.moved_bytes,
            slabs_created: self.counters.slabs_created,
            slabs_released: self.counters.slabs_released,
        }
    }

    /// Sets every peak to the present level. O(1).
    pub fn reset_peaks(&mut self) {
        self.counters.reset_peaks();
    }
}

/// The counters behind [`AllocStats`], in bytes unless the name says otherwise.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counters {
    pub(super) requested: Level,
    pub(super) granted: Flow,
    pub(super) reserved: Level,
    pub(super) blocks: Flow,
    pub(super) moves: u64,
    pub(super) moved_bytes: u64,
    pub(super) slabs_created: u64,
    pub(super) slabs_released: u64,
}

impl Counters {
    /// After all blocks and slabs are gone. Totals and peaks stay.
    pub(super) fn emptied(mut self) -> Self {
        self.requested.now = 0;
        self.reserved.now = 0;
        self.granted.lower(self.granted.now());
        self.blocks.lower(self.blocks.now());
        self.slabs_released = self.slabs_created;
        self
    }

    pub(super) fn reset_peaks(&mut self) {
        for level in [&mut self.requested, &mut self.reserved] {
            level.peak = level.now;
        }
        for flow in [&mut self.granted, &mut self.blocks] {
            flow.peak = flow.now();
        }
    }
}

/// A level and its high-water mark.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Level {
    pub(super) now: u64,
    pub(super) peak: u64,
}

impl Level {
    #[inline]
    pub(super) fn raise(&mut self, by: u64) {
        self.now += by;
        self.peak = self.peak.max(self.now);
    }

    #[inline]
    pub(super) fn lower(&mut self, by: u64) {
        self.now -= by;
    }
}

/// A level that also counts all that was added and all that was removed.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Flow {
    pub(super) raised: u64,
    pub(super) lowered: u64,
    pub(super) peak: u64,
}

impl Flow {
    #[inline]
    pub(super) fn raise(&mut self, by: u64) {
        self.raised = self.raised.wrapping_add(by);
        self.peak = self.peak.max(self.now());
    }

    #[inline]
    pub(super) fn lower(&mut self, by: u64) {
        self.lowered = self.lowered.wrapping_add(by);
    }

    /// The level now.
    #[inline]
    pub(super) fn now(&self) -> u64 {
        self.raised.wrapping_sub(self.lowered)
    }
}
