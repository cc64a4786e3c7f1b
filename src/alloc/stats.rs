//! Statistics as plain values. Counting them costs a few additions a call and nothing else.

use super::SlabId;

/// What an allocator holds, has held, and has done.
///
/// ```
/// use lapidary::alloc::Carver;
///
/// let mut carver = Carver::new(256)?;
/// carver.add_slab(4096)?;
/// let block = carver.allocate(1000)?;
/// let stats = carver.stats();
/// assert_eq!((stats.requested_bytes, stats.granted_bytes), (1000, 1024));
/// assert_eq!(stats.reserved_bytes, stats.granted_bytes + stats.cached_bytes);
/// # Ok::<(), lapidary::alloc::AllocError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct AllocStats {
    /// Bytes asked for by the live blocks.
    pub requested_bytes: u64,
    /// Bytes that the live blocks take, in whole granules.
    pub granted_bytes: u64,
    /// Bytes of all slabs.
    pub reserved_bytes: u64,
    /// Bytes of slabs that no block takes: `reserved_bytes - granted_bytes`.
    pub cached_bytes: u64,
    /// Blocks that are live.
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
    /// The share of free bytes that lie outside the largest hole: `1 - largest_hole_bytes /
    /// cached_bytes`, and 0 where nothing is free. Several empty slabs count as fragments too.
    pub fragmentation: f64,
    /// Slabs there are.
    pub slabs: u64,
    /// Slabs without a live block.
    pub empty_slabs: u64,
    /// Blocks allocated so far.
    pub allocations: u64,
    /// Blocks freed so far.
    pub frees: u64,
    /// Slabs added so far.
    pub slabs_created: u64,
    /// Slabs removed so far.
    pub slabs_released: u64,
}

/// What one slab holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlabInfo {
    /// The slab.
    pub slab: SlabId,
    /// Its size in bytes.
    pub size_bytes: u64,
    /// Bytes that its live blocks take.
    pub live_bytes: u64,
    /// Live blocks in it.
    pub blocks: u32,
    /// Bytes of the largest hole in it.
    pub largest_hole_bytes: u64,
}

/// The counters behind [`AllocStats`], in bytes except where the name says otherwise.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counters {
    pub(super) requested: Level,
    pub(super) granted: Level,
    pub(super) reserved: Level,
    pub(super) live_blocks: Level,
    pub(super) allocations: u64,
    pub(super) slabs_created: u64,
    pub(super) slabs_released: u64,
}

impl Counters {
    pub(super) fn reset_peaks(&mut self) {
        for level in [
            &mut self.requested,
            &mut self.granted,
            &mut self.reserved,
            &mut self.live_blocks,
        ] {
            level.peak = level.now;
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
