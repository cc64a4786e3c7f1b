//! The start of every plan: a list of the slabs and their holes. And the step that every plan
//! consists of: a block and the hole that it moves to.

use super::room::Hole;
use super::{Candidate, Fate, MOST_NODES, Planner, Query, Step, Tenant};
use crate::config::ZONES;
use crate::order::Key;
use crate::slabs::Slab;
use crate::units::Granules;
use crate::{Pools, SlabId, Spot};

impl Planner {
    /// Lists the slabs, and enters the holes of those with the most free bytes.
    pub(super) fn survey(&mut self, pools: &Pools) {
        self.list_slabs(pools);
        self.sort_slabs(|slab| (u64::MAX - (slab.size - slab.live), 0, slab.index.into()));
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

    /// Sorts the slabs by a key.
    pub(super) fn sort_slabs(&mut self, key: fn(&Candidate) -> Key) {
        self.sorter.smallest_first(&mut self.slabs, key);
    }

    /// Sorts the largest block first, since the fewest holes fit it. Blocks of one size keep the
    /// order of their addresses: neighbours can then stay neighbours, and one copy moves both.
    pub(super) fn sort_blocks(&mut self) {
        self.sorter.smallest_first(&mut self.blocks, |block| {
            (u64::MAX - block.size, block.offset, 0)
        });
    }

    /// Takes a hole for a block in a slab that stays, other than `source`. The slab has the block's
    /// own class, or any class if the query allows it. Adds the step.
    pub(super) fn rehouse(
        &mut self,
        query: &Query<'_>,
        tenant: &Tenant,
        source: u32,
    ) -> Option<u32> {
        let pools = query.pools;
        let own = query.zone_of(tenant);
        let others = (0..ZONES).filter(|&zone| query.anywhere && zone != own);
        let fates = &self.fates;
        let allowed = |slab: u32| slab != source && fates[slab as usize] != Fate::Leaves;
        let room = &mut self.room;
        let hole = core::iter::once(own)
            .chain(others)
            .find_map(|zone| room.take(zone, tenant.size, allowed))?;
        let offset_bytes = pools.carver.unit.bytes(Granules(hole.offset));
        self.steps.push(Step::Move {
            block: query.handle(tenant.node),
            to: Spot::in_hole(pools.carver.slabs.id(hole.slab), offset_bytes, hole.node),
        });
        Some(hole.slab)
    }
}
