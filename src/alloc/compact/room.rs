//! The holes that a plan may fill, and a log that takes a trial back.
//!
//! A copy of the holes as they are when planning begins. A plan takes from the copy what its steps
//! will take from the slabs, so that later steps of it see what earlier ones leave.

use crate::alloc::config::ZONES;

/// A free range of a slab, in granules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Hole {
    pub(super) size: u64,
    pub(super) slab: u32,
    pub(super) offset: u64,
    /// The hole's node, and after a part of it was taken still that of the rest.
    pub(super) node: u32,
}

/// A part of a hole that was taken, to be put back.
#[derive(Clone, Copy, Debug)]
struct Taken {
    zone: u8,
    hole: Hole,
    size: u64,
}

/// All holes by zone, each list in the order of size.
#[derive(Clone, Debug, Default)]
pub(super) struct Room {
    zones: [Vec<Hole>; ZONES as usize],
    log: Vec<Taken>,
}

impl Room {
    pub(super) fn clear(&mut self) {
        self.zones.iter_mut().for_each(Vec::clear);
        self.log.clear();
    }

    /// Enters a hole; [`Room::sort`] must follow the last one.
    pub(super) fn push(&mut self, zone: u8, hole: Hole) {
        self.zones[zone as usize].push(hole);
    }

    pub(super) fn sort(&mut self) {
        self.zones
            .iter_mut()
            .for_each(|holes| holes.sort_unstable());
    }

    /// Takes `size` off the front of the smallest hole of a zone that has it, among those of slabs
    /// that are `allowed`.
    pub(super) fn take(
        &mut self,
        zone: u8,
        size: u64,
        allowed: impl Fn(u32) -> bool,
    ) -> Option<Hole> {
        let holes = &mut self.zones[zone as usize];
        let least = holes.partition_point(|hole| hole.size < size);
        let fits = least + holes[least..].iter().position(|hole| allowed(hole.slab))?;
        let hole = holes.remove(fits);
        self.log.push(Taken { zone, hole, size });
        if hole.size > size {
            self.insert(zone, rest(&hole, size));
        }
        Some(hole)
    }

    /// How much was taken so far: a point to come back to.
    pub(super) fn mark(&self) -> usize {
        self.log.len()
    }

    /// Puts back all that was taken since `mark`.
    pub(super) fn undo_to(&mut self, mark: usize) {
        while self.log.len() > mark {
            let Some(Taken { zone, hole, size }) = self.log.pop() else {
                return;
            };
            let holes = &mut self.zones[zone as usize];
            if let Ok(index) = holes.binary_search(&rest(&hole, size)) {
                holes.remove(index);
            }
            self.insert(zone, hole);
        }
    }

    fn insert(&mut self, zone: u8, hole: Hole) {
        let holes = &mut self.zones[zone as usize];
        let index = holes.partition_point(|other| *other < hole);
        holes.insert(index, hole);
    }
}

/// What is left of a hole when `size` is taken off its front.
fn rest(hole: &Hole, size: u64) -> Hole {
    Hole {
        size: hole.size - size,
        offset: hole.offset + size,
        ..*hole
    }
}
