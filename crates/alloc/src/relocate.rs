//! Moves a live block to another slab: its handle stays, its place changes.
//!
//! The caller copies the bytes. The tables change in one step: the block is always in exactly one
//! place, and a caller that stops has nothing to undo.

use super::nodes::{NONE, Node};
use super::{AllocError, Block, BlockId, Carver, SlabId};
use crate::units::Granules;

/// A place for a block: a slab and an offset from its start.
#[derive(Clone, Copy, Debug)]
pub struct Spot {
    slab: SlabId,
    offset_bytes: u64,
    /// The hole at planning time. It is only a hint for the search.
    hole: u32,
}

impl Spot {
    /// The spot at this offset, in bytes, of a slab.
    pub fn new(slab: SlabId, offset_bytes: u64) -> Spot {
        Spot::in_hole(slab, offset_bytes, NONE)
    }

    pub(super) fn in_hole(slab: SlabId, offset_bytes: u64, hole: u32) -> Spot {
        Spot {
            slab,
            offset_bytes,
            hole,
        }
    }

    /// The slab.
    pub fn slab(&self) -> SlabId {
        self.slab
    }

    /// The offset from the slab's start, in bytes.
    pub fn offset_bytes(&self) -> u64 {
        self.offset_bytes
    }
}

impl PartialEq for Spot {
    fn eq(&self, other: &Spot) -> bool {
        (self.slab, self.offset_bytes) == (other.slab, other.offset_bytes)
    }
}

impl Eq for Spot {}

/// The old and the new place of a block: the source and the target of the copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Relocated {
    /// The old place, which still has the bytes.
    pub from: Block,
    /// The new place.
    pub to: Block,
}

impl Carver {
    /// Moves a live block to a free range of another slab. The handle stays valid. The old range is
    /// a hole at once, so the caller must order the copy before any later use of that range. O(1)
    /// for a spot of a plan, else O(blocks and holes in the slab).
    ///
    /// ```
    /// use lapidary_alloc::{Carver, Spot};
    ///
    /// let mut carver = Carver::new(256)?;
    /// let first = carver.add_slab(4096)?;
    /// let block = carver.allocate(1000)?;
    /// let second = carver.add_slab(4096)?;
    /// let copy = carver.relocate(block, &Spot::new(second, 512))?;
    /// assert_eq!((copy.from.slab, copy.to.slab), (first, second));
    /// assert_eq!(carver.block(block)?, copy.to);
    /// carver.remove_slab(first)?;
    /// # Ok::<(), lapidary_alloc::AllocError>(())
    /// ```
    ///
    /// # Errors
    /// [`AllocError::StaleBlock`], [`AllocError::StaleSlab`], [`AllocError::NoHoleThere`] when the
    /// range is not free or lies in the block's own slab, [`AllocError::TableFull`].
    pub fn relocate(&mut self, block: BlockId, to: &Spot) -> Result<Relocated, AllocError> {
        let from = self.block(block)?;
        let slab = self.slabs.resolve(to.slab)?;
        let size = self.unit.granules_ceil(from.size_bytes);
        let offset = self.unit.granules_floor(to.offset_bytes);
        let is_aligned = self.unit.bytes(offset) == to.offset_bytes;
        let hole = self
            .hole_around(slab, to.hole, offset, size)
            .filter(|_| is_aligned && from.slab != to.slab)
            .ok_or(AllocError::NoHoleThere {
                slab: to.slab,
                offset_bytes: to.offset_bytes,
                size_bytes: from.size_bytes,
            })?;
        let zone = self.slabs[slab].zone;
        let taken = self.carve_at(zone, hole, offset, size)?;
        self.exchange(block, taken);
        let counters = &mut self.counters;
        counters.moves += 1;
        counters.moved_bytes += from.size_bytes;
        let to = self.block(block)?;
        Ok(Relocated { from, to })
    }

    /// The start of the smallest hole of a slab with room for a block of `size_bytes`. `None` if no
    /// hole has room, or the slab was removed. O(blocks and holes in the slab).
    ///
    /// ```
    /// use lapidary_alloc::{Carver, Spot};
    ///
    /// let mut carver = Carver::new(256)?;
    /// let slab = carver.add_slab(4096)?;
    /// let block = carver.allocate(1000)?;
    /// assert_eq!(carver.spot_in(slab, 3072), Some(Spot::new(slab, 1024)));
    /// assert_eq!(carver.spot_in(slab, 3073), None);
    /// # Ok::<(), lapidary_alloc::AllocError>(())
    /// ```
    pub fn spot_in(&self, slab: SlabId, size_bytes: u64) -> Option<Spot> {
        let first = self.slabs[self.slabs.resolve(slab).ok()?].first;
        let size = Granules(self.unit.granules_ceil(size_bytes).0.max(1));
        let holes = self.indexed_nodes_of(first);
        let fitting = holes.filter(|(_, node)| !node.is_live() && node.size() >= size);
        let (hole, node) = fitting.min_by_key(|(_, node)| node.size())?;
        Some(Spot::in_hole(slab, self.unit.bytes(node.offset()), hole))
    }

    /// The hole that contains the whole range. The search looks at `hint` first.
    fn hole_around(&self, slab: u32, hint: u32, offset: Granules, size: Granules) -> Option<u32> {
        let end = offset.0.checked_add(size.0)?;
        let has_range = |node: &Node| {
            let (start, length) = (node.offset().0, node.size().0);
            !node.is_live()
                && length > 0
                && node.slab() == slab
                && start <= offset.0
                && end <= start + length
        };
        if self.nodes.get(hint).is_some_and(has_range) {
            return Some(hint);
        }
        let mut index = self.slabs[slab].first;
        while index != NONE && !has_range(&self.nodes[index]) {
            index = self.nodes[index].next;
        }
        Some(index).filter(|&index| index != NONE)
    }

    /// As `split`, but anywhere in a hole. The parts before and after the range stay holes.
    fn carve_at(
        &mut self,
        zone: u8,
        hole: u32,
        offset: Granules,
        size: Granules,
    ) -> Result<u32, AllocError> {
        let whole = self.nodes[hole];
        let gap = Granules(offset.0 - whole.offset().0);
        if gap == Granules(0) {
            return self.split(zone, hole, size);
        }
        let slab_is_empty = whole.prev == NONE && whole.next == NONE;
        let taken = Node::hole(whole.slab(), offset, size, hole, whole.next);
        let taken = self.nodes.insert(taken).ok_or(AllocError::TableFull)?;
        let end = Granules(offset.0 + size.0);
        let rest = Granules(whole.size().0 - gap.0 - size.0);
        let mut last = taken;
        if rest > Granules(0) {
            let behind = Node::hole(whole.slab(), end, rest, taken, whole.next);
            let Some(behind) = self.nodes.insert(behind) else {
                self.nodes.remove(taken);
                return Err(AllocError::TableFull);
            };
            self.nodes[taken].next = behind;
            last = behind;
        }
        if whole.next != NONE {
            self.nodes[whole.next].prev = last;
        }
        let zone = &mut self.zones[zone as usize];
        zone.index_mut(slab_is_empty).remove(&mut self.nodes, hole);
        self.nodes[hole].set_hole(gap);
        self.nodes[hole].next = taken;
        zone.used.insert(&mut self.nodes, hole);
        if last != taken {
            zone.used.insert(&mut self.nodes, last);
        }
        Ok(taken)
    }

    /// Gives a live block the place of `taken`, a range of another slab that is in no bin. The
    /// block's old range becomes a hole. The nodes swap places, so the handle stays valid.
    fn exchange(&mut self, block: BlockId, taken: u32) {
        let index = block.index;
        let node = self.nodes[index];
        let (size, slack_bytes) = (node.size(), node.slack_bytes());
        self.nodes.swap(index, taken);
        self.nodes[index].set_live(size, slack_bytes, block.generation);
        self.nodes[taken].set_hole(size);
        for moved in [index, taken] {
            let Node { prev, next, .. } = self.nodes[moved];
            match prev {
                NONE => {
                    let slab = self.nodes[moved].slab();
                    self.slabs[slab].first = moved;
                }
                prev => self.nodes[prev].next = moved,
            }
            if next != NONE {
                self.nodes[next].prev = moved;
            }
        }
        self.slabs.add_block(self.nodes[index].slab(), size);
        let (zone, slab_is_empty) = self.slabs.remove_block(node.slab(), size);
        self.merge(zone, taken, slab_is_empty);
    }
}
