//! The carver: one index over the holes of many slabs.
//!
//! ```text
//! slab 0  [ block | hole | block | block |      hole      ]     offsets count from each slab's start
//! slab 1  [      block       |            hole            ]
//!                   ^ blocks and holes of a slab form a list by address
//! bins     ... 96: hole -> hole   97: -   98: hole ...          every hole is in the list of its bin
//! ```
//!
//! The carver is a segregated fit with exact splitting and immediate coalescing, like TLSF (Masmano
//! et al. 2004) and OffsetAllocator (Aaltonen). It differs in three points: the search begins in
//! the request's own bin, one index covers all slabs, and handles are checked.

use alloc::vec::Vec;

use super::bins::MAX_GRANULES;
use super::holes::{LOOKS, Zone};
use super::nodes::{NONE, Node, NodeTable};
use super::slabs::SlabTable;
use super::stats::Counters;
use super::{AllocError, Block, BlockId, SlabId};
use crate::units::{Granules, Unit};
use core::sync::atomic::{AtomicU32, Ordering};

/// The largest slab in bytes. A slab also has at most 2^43 granules.
pub(super) const MAX_SLAB_BYTES: u64 = 1 << 48;

/// Carves blocks out of any number of slabs. It only keeps the tables: the caller owns the memory.
///
/// The same calls lead to the same offsets. Allocating and freeing are O(1). Once the tables have
/// grown to the highest number of blocks and holes, the two take nothing from the heap.
///
/// ```
/// use lapidary_alloc::Carver;
///
/// let mut carver = Carver::new(256)?;
/// let slab = carver.add_slab(1 << 20)?;
/// let first = carver.allocate(1000)?;
/// let second = carver.allocate(5000)?;
/// let block = carver.block(second)?;
/// assert_eq!((block.slab, block.offset_bytes, block.size_bytes), (slab, 1024, 5120));
/// carver.free(first)?;
/// assert!(carver.free(first).is_err(), "a handle is good for one free");
/// # Ok::<(), lapidary_alloc::AllocError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Carver {
    pub(super) unit: Unit,
    max_slab_bytes: u64,
    pub(super) nodes: NodeTable,
    pub(super) slabs: SlabTable,
    /// The holes of each zone. A zone is a set of slabs; a request sees the holes of one zone.
    pub(super) zones: Vec<Zone>,
    pub(super) counters: Counters,
    generation: u32,
}

/// The generation at which the next carver begins to count.
static NEXT_ORIGIN: AtomicU32 = AtomicU32::new(0);

/// 2^32 divided by the golden ratio. Multiples of it lie far apart, so the handles of two carvers
/// carry different generations, and each carver recognizes the other's handles as foreign.
const ORIGIN_STEP: u32 = 0x9E37_79B9;

impl Carver {
    /// A carver without slabs, whose blocks begin and end at multiples of `unit_bytes`.
    ///
    /// # Errors
    /// [`AllocError::UnitSize`] unless `unit_bytes` is a power of two of at most 64 KiB.
    pub fn new(unit_bytes: u64) -> Result<Carver, AllocError> {
        Carver::with_zones(unit_bytes, 1)
    }

    pub(super) fn with_zones(unit_bytes: u64, zones: u8) -> Result<Carver, AllocError> {
        let unit = Unit::new(unit_bytes).ok_or(AllocError::UnitSize { unit_bytes })?;
        Ok(Carver::empty(unit, zones))
    }

    /// A carver without slabs, which knows no handle of another one.
    pub(super) fn empty(unit: Unit, zones: u8) -> Carver {
        let origin = NEXT_ORIGIN
            .fetch_add(1, Ordering::Relaxed)
            .wrapping_mul(ORIGIN_STEP);
        Carver {
            unit,
            max_slab_bytes: unit.bytes(MAX_GRANULES).min(MAX_SLAB_BYTES),
            nodes: NodeTable::with_capacity(0),
            slabs: SlabTable::new(),
            zones: (0..zones).map(|_| Zone::new()).collect(),
            counters: Counters::default(),
            generation: origin,
        }
    }

    /// Adds an empty slab. A size that is no multiple of the granule is rounded down. O(1).
    ///
    /// # Errors
    /// [`AllocError::SlabSize`] below one granule or above [`Carver::max_slab_bytes`],
    /// [`AllocError::TableFull`] when the tables have no free entry.
    pub fn add_slab(&mut self, size_bytes: u64) -> Result<SlabId, AllocError> {
        self.add_slab_in(0, size_bytes)
    }

    pub(super) fn add_slab_in(&mut self, zone: u8, size_bytes: u64) -> Result<SlabId, AllocError> {
        let size = self.unit.granules_floor(size_bytes);
        let limit_bytes = self.max_slab_bytes();
        if size == Granules(0) || size_bytes > limit_bytes {
            return Err(AllocError::SlabSize {
                size_bytes,
                limit_bytes,
            });
        }
        let bytes = self.unit.bytes(size);
        self.counters
            .reserved
            .now
            .checked_add(bytes)
            .ok_or(AllocError::TableFull)?;
        let index = self.slabs.next_index().ok_or(AllocError::TableFull)?;
        let hole = Node::hole(index, Granules(0), size, NONE, NONE);
        let first = self.nodes.insert(hole).ok_or(AllocError::TableFull)?;
        let own = &mut self.zones[zone as usize];
        own.empty.insert(&mut self.nodes, first);
        own.reserved_bytes += bytes;
        self.counters.reserved.raise(bytes);
        self.counters.slabs_created += 1;
        let generation = self.next_generation();
        Ok(self.slabs.insert(index, size, first, zone, generation))
    }

    /// Removes a slab without live blocks; its id is stale from then on. O(1).
    ///
    /// # Errors
    /// [`AllocError::SlabInUse`] while a block is live in it, [`AllocError::StaleSlab`] when it was
    /// removed before or belongs to another allocator.
    pub fn remove_slab(&mut self, slab: SlabId) -> Result<(), AllocError> {
        let index = self.slabs.resolve(slab)?;
        let entry = &self.slabs[index];
        if entry.blocks > 0 {
            return Err(AllocError::SlabInUse {
                slab,
                blocks: entry.blocks,
            });
        }
        let (first, size) = (entry.first, entry.size);
        debug_assert_eq!(
            self.nodes[first].size(),
            size,
            "the holes of an empty slab are one"
        );
        let bytes = self.unit.bytes(size);
        let zone = &mut self.zones[entry.zone as usize];
        zone.empty.remove(&mut self.nodes, first);
        zone.reserved_bytes -= bytes;
        self.nodes.remove(first);
        self.slabs.remove(index);
        self.counters.reserved.lower(bytes);
        self.counters.slabs_released += 1;
        Ok(())
    }

    /// Gives a slab without live blocks to another zone, whose requests then see its hole. O(1).
    ///
    /// # Errors
    /// As [`Carver::remove_slab`].
    pub(super) fn assign(&mut self, slab: SlabId, zone: u8) -> Result<(), AllocError> {
        let index = self.slabs.resolve(slab)?;
        let entry = &mut self.slabs[index];
        if entry.blocks > 0 {
            return Err(AllocError::SlabInUse {
                slab,
                blocks: entry.blocks,
            });
        }
        let (first, bytes) = (entry.first, self.unit.bytes(entry.size));
        let before = core::mem::replace(&mut entry.zone, zone);
        let zones = &mut self.zones;
        zones[before as usize].empty.remove(&mut self.nodes, first);
        zones[before as usize].reserved_bytes -= bytes;
        zones[zone as usize].empty.insert(&mut self.nodes, first);
        zones[zone as usize].reserved_bytes += bytes;
        Ok(())
    }

    /// Allocates a block of `size_bytes`, rounded up to whole granules, from a hole. A request of 0
    /// bytes gets one granule, so that no two blocks have the same offset. O(1).
    ///
    /// # Errors
    /// [`AllocError::NeedsSlab`] when the search finds no hole that fits, [`AllocError::NeverFits`]
    /// above [`Carver::max_slab_bytes`], [`AllocError::TableFull`] when the tables have no free
    /// entry.
    #[inline]
    pub fn allocate(&mut self, size_bytes: u64) -> Result<BlockId, AllocError> {
        self.allocate_in(0, size_bytes, u64::MAX, LOOKS)
    }

    /// As [`Carver::allocate`], in one zone. The search looks at `looks` holes of the request's own
    /// bin. It splits an empty slab of more than `empty_limit_bytes` only if the request is in the
    /// slab's own bin.
    #[inline(never)]
    pub(super) fn allocate_in(
        &mut self,
        zone: u8,
        size_bytes: u64,
        empty_limit_bytes: u64,
        looks: u32,
    ) -> Result<BlockId, AllocError> {
        let limit_bytes = self.max_slab_bytes();
        if size_bytes > limit_bytes {
            return Err(AllocError::NeverFits {
                requested_bytes: size_bytes,
                limit_bytes,
            });
        }
        let size = Granules(self.unit.granules_ceil(size_bytes).0.max(1));
        let empty_limit = self.unit.granules_floor(empty_limit_bytes);
        let hole = self.zones[zone as usize].find(&self.nodes, size, empty_limit, looks);
        let Some(hole) = hole else {
            return Err(AllocError::NeedsSlab {
                requested_bytes: size_bytes,
            });
        };
        let index = self.split(zone, hole, size)?;
        let granted_bytes = self.unit.block_bytes(size);
        let generation = self.next_generation();
        let node = &mut self.nodes[index];
        node.set_live(size, granted_bytes - size_bytes, generation);
        self.slabs.add_block(node.slab(), size);
        self.counters.requested.raise(size_bytes);
        self.counters.granted.raise(granted_bytes);
        self.counters.blocks.raise(1);
        Ok(BlockId { index, generation })
    }

    /// Frees a block. Its range merges with the adjacent holes at once. O(1).
    ///
    /// # Errors
    /// [`AllocError::StaleBlock`] when the block was freed before or belongs to another allocator.
    pub fn free(&mut self, block: BlockId) -> Result<(), AllocError> {
        let BlockId { index, generation } = block;
        let node = self
            .nodes
            .live(index, generation)
            .ok_or(AllocError::StaleBlock(block))?;
        let size = node.size();
        let granted_bytes = self.unit.block_bytes(size);
        self.counters
            .requested
            .lower(granted_bytes - node.slack_bytes());
        self.counters.granted.lower(granted_bytes);
        self.counters.blocks.lower(1);
        let (zone, slab_is_empty) = self.slabs.remove_block(node.slab(), size);
        self.merge(zone, index, slab_is_empty);
        Ok(())
    }

    /// The place and the size of a block. O(1).
    ///
    /// # Errors
    /// [`AllocError::StaleBlock`] when the block was freed or belongs to another allocator.
    #[inline]
    pub fn block(&self, block: BlockId) -> Result<Block, AllocError> {
        let node = self
            .nodes
            .live(block.index, block.generation)
            .ok_or(AllocError::StaleBlock(block))?;
        let size_bytes = self.unit.block_bytes(node.size());
        Ok(Block {
            slab: self.slabs.id(node.slab()),
            offset_bytes: self.unit.block_bytes(node.offset()),
            size_bytes,
            requested_bytes: size_bytes - node.slack_bytes(),
        })
    }

    /// The granule in bytes.
    pub fn unit_bytes(&self) -> u64 {
        self.unit.size_bytes()
    }

    /// The largest slab and the largest request in bytes: 2^48 bytes or 2^43 granules, whichever is
    /// less.
    #[inline]
    pub fn max_slab_bytes(&self) -> u64 {
        self.max_slab_bytes
    }

    /// The slabs without live blocks, longest unused first. Each step of the iterator is O(1).
    pub fn empty_slabs(&self) -> impl Iterator<Item = SlabId> {
        self.slabs.empty()
    }

    /// The nodes of one slab by address. `first` is the node at the slab's start.
    pub(super) fn nodes_of(&self, first: u32) -> impl Iterator<Item = &Node> {
        let node = |index: u32| (index != NONE).then(|| &self.nodes[index]);
        core::iter::successors(node(first), move |last| node(last.next))
    }

    /// The nodes from `first` to the end of its slab, each with its index.
    pub(super) fn indexed_nodes_of(&self, first: u32) -> impl Iterator<Item = (u32, &Node)> {
        let node = |index: u32| (index != NONE).then(|| (index, &self.nodes[index]));
        core::iter::successors(node(first), move |(_, last)| node(last.next))
    }

    /// Whether a search without a limit on its looks finds a hole. O(holes of the request's own
    /// bin).
    pub(super) fn has_hole(&self, zone: u8, size_bytes: u64, empty_limit_bytes: u64) -> bool {
        let size = Granules(self.unit.granules_ceil(size_bytes).0.max(1));
        let empty_limit = self.unit.granules_floor(empty_limit_bytes);
        let zone = &self.zones[zone as usize];
        zone.find(&self.nodes, size, empty_limit, u32::MAX)
            .is_some()
    }

    /// The next generation. The counter counts allocations and slabs, not the uses of one entry. So
    /// a stale handle could match a live block only 2^32 allocations later, in the same entry.
    #[inline]
    fn next_generation(&mut self) -> u32 {
        self.generation = self.generation.wrapping_add(1);
        self.generation
    }

    /// Makes a node of the first `size` granules of a hole. The node is in no bin.
    ///
    /// The rest keeps the hole's node. If the rest also stays in the same bin, the lists do not
    /// change.
    #[inline]
    pub(super) fn split(&mut self, zone: u8, hole: u32, size: Granules) -> Result<u32, AllocError> {
        let zone = &mut self.zones[zone as usize];
        let whole = self.nodes[hole];
        debug_assert!(!whole.is_live() && whole.size() >= size);
        let slab_is_empty = whole.prev == NONE && whole.next == NONE;
        if whole.size() == size {
            zone.index_mut(slab_is_empty).remove(&mut self.nodes, hole);
            return Ok(hole);
        }
        let front = Node::hole(whole.slab(), whole.offset(), size, whole.prev, hole);
        let front = self.nodes.insert(front).ok_or(AllocError::TableFull)?;
        match whole.prev {
            NONE => self.slabs[whole.slab()].first = front,
            prev => self.nodes[prev].next = front,
        }
        let shrink = |node: &mut Node| {
            node.prev = front;
            node.shrink_front(size);
        };
        if slab_is_empty {
            zone.empty.remove(&mut self.nodes, hole);
            shrink(&mut self.nodes[hole]);
            zone.used.insert(&mut self.nodes, hole);
        } else {
            zone.used.resize(&mut self.nodes, hole, shrink);
        }
        Ok(front)
    }

    /// Turns a live block into a hole, together with the holes on both sides.
    #[inline]
    pub(super) fn merge(&mut self, zone: u8, index: u32, slab_is_empty: bool) {
        let zone = &mut self.zones[zone as usize];
        let Node { prev, mut next, .. } = self.nodes[index];
        let mut size = self.nodes[index].size();
        if next != NONE && !self.nodes[next].is_live() {
            zone.used.remove(&mut self.nodes, next);
            size.0 += self.nodes[next].size().0;
            let after = self.nodes[next].next;
            self.nodes.remove(next);
            next = after;
        }
        let mut merged = index;
        if prev != NONE && !self.nodes[prev].is_live() {
            size.0 += self.nodes[prev].size().0;
            self.nodes.remove(index);
            merged = prev;
        }
        let grow = |node: &mut Node| {
            node.next = next;
            node.set_hole(size);
        };
        if merged == prev && !slab_is_empty {
            zone.used.resize(&mut self.nodes, merged, grow);
        } else {
            if merged == prev {
                zone.used.remove(&mut self.nodes, merged);
            }
            grow(&mut self.nodes[merged]);
            zone.index_mut(slab_is_empty)
                .insert(&mut self.nodes, merged);
        }
        if next != NONE {
            self.nodes[next].prev = merged;
        }
    }
}
