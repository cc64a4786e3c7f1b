//! The draft of a plan: the slabs, the holes that are still free, and the steps so far.
//!
//! Every plan begins with a list of the slabs and their holes. Here are the parts that all plans
//! use: the list, the move of a block into a hole, and the release of empty slabs.

use alloc::vec::Vec;
use core::cmp::Reverse;

use super::query::{MOST_NODES, Query};
use super::room::{Hole, Room};
use super::step::Step;
use crate::config::{Growth, ZONES};
use crate::nodes::Node;
use crate::slabs::Slab;
use crate::units::Granules;
use crate::{Pools, SlabId, Spot};

/// A slab at the start of planning. Sizes are in granules.
#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate {
    pub(super) index: u32,
    pub(super) zone: u8,
    pub(super) size: u64,
    pub(super) live: u64,
}

/// A block of a slab that the plan empties. Sizes are in granules.
#[derive(Clone, Copy, Debug)]
pub(super) struct LiveBlock {
    pub(super) size: u64,
    pub(super) offset: u64,
    pub(super) node: u32,
}

impl LiveBlock {
    pub(super) fn new((index, node): (u32, &Node)) -> Self {
        LiveBlock {
            size: node.size().0,
            offset: node.offset().0,
            node: index,
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Fate {
    #[default]
    Stays,
    Receives,
    Leaves,
}

/// The tables of a plan. They keep their capacity.
#[derive(Clone, Debug, Default)]
pub(super) struct Draft {
    pub(super) steps: Vec<Step>,
    pub(super) room: Room,
    pub(super) slabs: Vec<Candidate>,
    pub(super) blocks: Vec<LiveBlock>,
    /// By slab index, whether the plan releases the slab or moves blocks into it.
    pub(super) fates: Vec<Fate>,
    /// The empty slabs with their bytes, the smallest first.
    empty: Vec<(u64, SlabId)>,
}

impl Draft {
    /// Lists the slabs, and enters the holes of those with the most free bytes.
    pub(super) fn survey(&mut self, pools: &Pools) {
        self.list_slabs(pools);
        (self.slabs).sort_unstable_by_key(|slab| (Reverse(slab.size - slab.live), slab.index));
        let mut walked = 0;
        for index in 0..self.slabs.len() {
            let slab = self.slabs[index];
            if slab.size == slab.live || walked > MOST_NODES {
                break;
            }
            walked += self.enter_holes(pools, &slab);
        }
        self.room.sort();
    }

    /// Lists the slabs. Each has the fate `Stays`, and no holes are entered.
    pub(super) fn list_slabs(&mut self, pools: &Pools) {
        let slabs = &pools.carver.slabs;
        self.room.clear();
        self.slabs.clear();
        let candidate = |(id, slab): (SlabId, &Slab)| Candidate {
            index: id.index,
            zone: slab.zone,
            size: slab.size.0,
            live: slab.live.0,
        };
        self.slabs.extend(slabs.iter().map(candidate));
        self.fates.clear();
        self.fates.resize(slabs.len(), Fate::Stays);
    }

    /// Enters the holes of a slab; [`Room::sort`](super::room::Room::sort) must follow. Returns the
    /// number of blocks and holes that it visited.
    pub(super) fn enter_holes(&mut self, pools: &Pools, slab: &Candidate) -> usize {
        let carver = &pools.carver;
        let mut walked = 0;
        for (index, node) in carver.indexed_nodes_of(carver.slabs[slab.index].first) {
            walked += 1;
            if !node.is_live() {
                let hole = Hole {
                    size: node.size().0,
                    slab: slab.index,
                    offset: node.offset().0,
                    node: index,
                };
                self.room.push(slab.zone, hole);
            }
        }
        walked
    }

    /// Sorts the emptiest slab first.
    pub(super) fn sort_slabs(&mut self) {
        // Thousandths are exact enough for this choice.
        let order = |slab: &Candidate| (slab.live * 1000 / slab.size, slab.live, slab.index);
        self.slabs.sort_unstable_by_key(order);
    }

    /// Sorts the largest block first, since the fewest holes fit it. Blocks of one size keep the
    /// order of their addresses: neighbours can then stay neighbours, and one copy moves both.
    pub(super) fn sort_blocks(&mut self) {
        // No two blocks of a slab begin at the same offset.
        (self.blocks).sort_unstable_by_key(|block| (Reverse(block.size), block.offset));
    }

    /// Lists the blocks of a slab that is to be emptied, sorted. `false` if one cannot leave,
    /// because it is pinned or larger than `most` granules.
    pub(super) fn list_blocks(&mut self, query: &Query<'_>, victim: &Candidate, most: u64) -> bool {
        let carver = &query.pools.carver;
        self.blocks.clear();
        let nodes = carver.indexed_nodes_of(carver.slabs[victim.index].first);
        for (index, node) in nodes.filter(|(_, node)| node.is_live()) {
            if node.size().0 > most || !(query.movable)(query.handle(index)) {
                return false;
            }
            self.blocks.push(LiveBlock::new((index, node)));
        }
        self.sort_blocks();
        true
    }

    /// The slabs into which the steps from the index `first` on move blocks must stay.
    pub(super) fn note_receivers(&mut self, first: usize) {
        for step in &self.steps[first..] {
            if let Step::Move { to, .. } = step {
                self.fates[to.slab().index as usize] = Fate::Receives;
            }
        }
    }

    /// Takes a hole for a block in a slab that stays, other than `source`. The slab has the block's
    /// own class, or any class if the query allows it. Adds the step.
    pub(super) fn place_elsewhere(
        &mut self,
        query: &Query<'_>,
        live: &LiveBlock,
        source: u32,
    ) -> Option<u32> {
        let pools = query.pools;
        let own = query.zone_of(live);
        let others = (0..ZONES).filter(|&zone| query.anywhere && zone != own);
        let fates = &self.fates;
        let allowed = |slab: u32| slab != source && fates[slab as usize] != Fate::Leaves;
        let room = &mut self.room;
        let hole = core::iter::once(own)
            .chain(others)
            .find_map(|zone| room.take(zone, live.size, allowed))?;
        let offset_bytes = pools.carver.unit.bytes(Granules(hole.offset));
        self.steps.push(Step::Move {
            block: query.handle(live.node),
            to: Spot::in_hole(pools.carver.slabs.id(hole.slab), offset_bytes, hole.node),
        });
        Some(hole.slab)
    }

    /// Releases empty slabs of at least `excess_bytes` together, or all of them. Returns their
    /// bytes.
    ///
    /// It releases as few slabs as possible, since the program may need each again. Close to a hard
    /// limit it releases the longest unused first: a large slab is hard to create again there.
    pub(super) fn release(&mut self, query: &Query<'_>, excess_bytes: u64) -> u64 {
        let pools = query.pools;
        self.empty.clear();
        if excess_bytes > 0 {
            for slab in pools.empty_slabs() {
                let bytes = pools.slab_bytes(slab);
                // The longest unused comes last, also among slabs of one size.
                let place = match query.is_tight {
                    true => 0,
                    false => self.empty.partition_point(|(other, _)| *other < bytes),
                };
                self.empty.insert(place, (bytes, slab));
            }
        }
        let mut released_bytes = 0;
        while released_bytes < excess_bytes {
            let after = match query.is_tight {
                true => self.empty.len(),
                false => after_best(&self.empty, excess_bytes - released_bytes),
            };
            let Some(index) = after.checked_sub(1) else {
                break;
            };
            let (bytes, slab) = self.empty.remove(index);
            self.steps.push(Step::Release(slab));
            released_bytes += bytes;
        }
        released_bytes
    }

    /// Adds the last step: it creates the slab for the request. If the plan releases a slab of that
    /// size, that slab stays instead. A device may still be busy with it, and memory that it holds
    /// is not there for another slab before it has finished.
    pub(super) fn end_with_slab(&mut self, query: &Query<'_>) {
        let Growth {
            class, slab_bytes, ..
        } = query.growth;
        // A slab that was created after a release may have taken its room.
        let last = self.steps.iter().rposition(|step| match step {
            Step::Release(slab) => query.pools.slab_bytes(*slab) == slab_bytes,
            step => matches!(step, Step::Create(_)),
        });
        match last.map(|last| (last, self.steps[last])) {
            Some((last, Step::Release(slab))) => {
                self.steps.remove(last);
                self.steps.push(Step::Assign { slab, class });
            }
            _ => self.steps.push(Step::Create(query.growth)),
        }
    }
}

/// The index after the smallest slab that is large enough alone, else after the largest slab.
fn after_best(by_size: &[(u64, SlabId)], excess_bytes: u64) -> usize {
    let enough = by_size.partition_point(|(bytes, _)| *bytes < excess_bytes);
    match by_size.get(enough) {
        Some((best_bytes, _)) => by_size.partition_point(|(bytes, _)| bytes <= best_bytes),
        None => by_size.len(),
    }
}
