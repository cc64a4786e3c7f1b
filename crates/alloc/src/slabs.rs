//! The slab table: dense indices with generations, and the list of empty slabs by age.

use alloc::vec::Vec;

use super::nodes::{MAX_SLABS, NONE};
use super::{AllocError, SlabId};
use crate::units::Granules;

/// The entry of one slab. `prev` and `next` link the empty slabs, longest unused first. In an
/// unused entry `next` is the next unused entry.
#[derive(Clone, Debug)]
pub(super) struct Slab {
    pub(super) size: Granules,
    /// The granules of its live blocks.
    pub(super) live: Granules,
    pub(super) blocks: u32,
    /// The node at offset 0, or `NONE` in an unused entry.
    pub(super) first: u32,
    pub(super) zone: u8,
    generation: u32,
    prev: u32,
    next: u32,
}

/// All slabs.
#[derive(Clone, Debug)]
pub(super) struct SlabTable {
    slabs: Vec<Slab>,
    unused: u32,
    oldest_empty: u32,
    newest_empty: u32,
}

impl SlabTable {
    pub(super) fn new() -> SlabTable {
        SlabTable {
            slabs: Vec::new(),
            unused: NONE,
            oldest_empty: NONE,
            newest_empty: NONE,
        }
    }

    /// The index that the next slab will get.
    pub(super) fn next_index(&self) -> Option<u32> {
        if self.unused != NONE {
            return Some(self.unused);
        }
        u32::try_from(self.slabs.len())
            .ok()
            .filter(|&index| index < MAX_SLABS)
    }

    /// Adds an empty slab at `next_index`.
    pub(super) fn insert(
        &mut self,
        index: u32,
        size: Granules,
        first: u32,
        zone: u8,
        generation: u32,
    ) -> SlabId {
        let slab = Slab {
            size,
            live: Granules(0),
            blocks: 0,
            first,
            zone,
            generation,
            prev: NONE,
            next: NONE,
        };
        if index == self.unused {
            self.unused = self.slabs[index as usize].next;
            self.slabs[index as usize] = slab;
        } else {
            debug_assert_eq!(index as usize, self.slabs.len());
            self.slabs.push(slab);
        }
        self.push_empty(index);
        SlabId { index, generation }
    }

    /// Removes an empty slab.
    pub(super) fn remove(&mut self, index: u32) {
        debug_assert_eq!(self[index].blocks, 0);
        self.unlink_empty(index);
        let unused = self.unused;
        let slab = &mut self[index];
        slab.first = NONE;
        slab.size = Granules(0);
        slab.next = unused;
        self.unused = index;
    }

    /// Counts a new block. The slab is no longer empty.
    #[inline]
    pub(super) fn add_block(&mut self, index: u32, size: Granules) {
        let slab = &mut self[index];
        slab.live.0 += size.0;
        slab.blocks += 1;
        if slab.blocks == 1 {
            self.unlink_empty(index);
        }
    }

    /// Counts a freed block. A slab that becomes empty is the last in the list of empty slabs.
    /// Returns its zone, and whether it is empty now.
    #[inline]
    pub(super) fn remove_block(&mut self, index: u32, size: Granules) -> (u8, bool) {
        let slab = &mut self[index];
        slab.live.0 -= size.0;
        slab.blocks -= 1;
        let (zone, is_empty) = (slab.zone, slab.blocks == 0);
        if is_empty {
            self.push_empty(index);
        }
        (zone, is_empty)
    }

    /// The slab's index, if the id is current.
    #[inline]
    pub(super) fn resolve(&self, id: SlabId) -> Result<u32, AllocError> {
        match self.slabs.get(id.index as usize) {
            Some(slab) if slab.first != NONE && slab.generation == id.generation => Ok(id.index),
            _ => Err(AllocError::StaleSlab(id)),
        }
    }

    #[inline]
    pub(super) fn id(&self, index: u32) -> SlabId {
        SlabId {
            index,
            generation: self[index].generation,
        }
    }

    /// The number of entries, used or not.
    pub(super) fn len(&self) -> usize {
        self.slabs.len()
    }

    /// All slabs, by index.
    pub(super) fn iter(&self) -> impl Iterator<Item = (SlabId, &Slab)> {
        (0..)
            .zip(&self.slabs)
            .filter(|(_, slab)| slab.first != NONE)
            .map(|(index, slab)| (self.id(index), slab))
    }

    /// The empty slabs, longest unused first.
    pub(super) fn empty(&self) -> impl Iterator<Item = SlabId> {
        let link = |index: u32| (index != NONE).then_some(index);
        let indices = core::iter::successors(link(self.oldest_empty), move |&index| {
            link(self[index].next)
        });
        indices.map(|index| self.id(index))
    }

    fn push_empty(&mut self, index: u32) {
        let newest = self.newest_empty;
        let slab = &mut self[index];
        slab.prev = newest;
        slab.next = NONE;
        if newest == NONE {
            self.oldest_empty = index;
        } else {
            self[newest].next = index;
        }
        self.newest_empty = index;
    }

    fn unlink_empty(&mut self, index: u32) {
        let Slab { prev, next, .. } = self[index];
        if prev == NONE {
            self.oldest_empty = next;
        } else {
            self[prev].next = next;
        }
        if next == NONE {
            self.newest_empty = prev;
        } else {
            self[next].prev = prev;
        }
    }
}

impl core::ops::Index<u32> for SlabTable {
    type Output = Slab;
    #[inline]
    fn index(&self, index: u32) -> &Slab {
        &self.slabs[index as usize]
    }
}

impl core::ops::IndexMut<u32> for SlabTable {
    #[inline]
    fn index_mut(&mut self, index: u32) -> &mut Slab {
        &mut self.slabs[index as usize]
    }
}
