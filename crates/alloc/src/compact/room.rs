//! The holes that a plan may fill, and a log to undo a trial.
//!
//! Planning begins with a copy of the holes. The plan takes from the copy what its steps will take
//! from the slabs, so later steps see the result of earlier ones.

use alloc::vec::Vec;

use super::sorted::Sorted;
use crate::config::ZONES;

/// A free range of a slab, in granules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Hole {
    pub(super) size: u64,
    pub(super) slab: u32,
    pub(super) offset: u64,
    /// The node of the hole. After a part was taken, the rest has the same node.
    pub(super) node: u32,
}

/// A part of a hole that was taken, so that it can be put back.
#[derive(Clone, Copy, Debug)]
struct Taken {
    zone: u8,
    hole: Hole,
    size: u64,
}

/// All holes by zone. Each list is sorted by size.
#[derive(Clone, Debug, Default)]
pub(super) struct Room {
    zones: [Sorted; ZONES as usize],
    /// Holes that are not sorted in yet.
    entered: [Vec<Hole>; ZONES as usize],
    log: Vec<Taken>,
}

impl Room {
    pub(super) fn clear(&mut self) {
        self.zones.iter_mut().for_each(Sorted::clear);
        self.entered.iter_mut().for_each(Vec::clear);
        self.log.clear();
    }

    /// Enters a hole; [`Room::sort`] must follow the last one.
    pub(super) fn push(&mut self, zone: u8, hole: Hole) {
        self.entered[zone as usize].push(hole);
    }

    /// Sorts in the entered holes. It may be called during a trial.
    pub(super) fn sort(&mut self) {
        for (sorted, entered) in self.zones.iter_mut().zip(&mut self.entered) {
            if !entered.is_empty() {
                sorted.empty_into(entered);
                // No two holes of a slab begin at the same offset.
                entered.sort_unstable_by_key(|hole| (hole.size, hole.slab, hole.offset));
                sorted.fill(entered);
                entered.clear();
            }
        }
    }

    /// The size of the largest hole outside a slab.
    pub(super) fn largest_outside(&self, slab: u32) -> u64 {
        let zones = self.zones.iter();
        let largest = zones.map(|holes| holes.largest(|hole| hole.slab != slab));
        largest.max().unwrap_or(0)
    }

    /// Takes `size` off the front of the smallest hole of a zone that is large enough and lies in
    /// an `allowed` slab.
    pub(super) fn take(
        &mut self,
        zone: u8,
        size: u64,
        allowed: impl Fn(u32) -> bool,
    ) -> Option<Hole> {
        let holes = &mut self.zones[zone as usize];
        let hole = holes.take(size, |hole| allowed(hole.slab))?;
        self.log.push(Taken { zone, hole, size });
        if hole.size > size {
            holes.insert(rest(&hole, size));
        }
        Some(hole)
    }

    /// The length of the log, for [`Room::undo_to`].
    pub(super) fn mark(&self) -> usize {
        self.log.len()
    }

    /// Puts back everything that was taken since `mark`.
    pub(super) fn undo_to(&mut self, mark: usize) {
        while self.log.len() > mark {
            let Some(Taken { zone, hole, size }) = self.log.pop() else {
                return;
            };
            let holes = &mut self.zones[zone as usize];
            if hole.size > size {
                holes.remove(&rest(&hole, size));
            }
            holes.insert(hole);
        }
    }

    /// Drops the holes of a slab, so that no block moves into it. Parts taken before stay taken.
    pub(super) fn leave_out(&mut self, slab: u32) {
        self.log.clear();
        for holes in &mut self.zones {
            holes.retain(|hole| hole.slab != slab);
        }
    }
}

/// The rest of a hole after `size` is taken off its front.
fn rest(hole: &Hole, size: u64) -> Hole {
    Hole {
        size: hole.size - size,
        offset: hole.offset + size,
        ..*hole
    }
}
