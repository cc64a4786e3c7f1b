//! Compaction a slice at a time, for programs that have a moment to spare in every frame.

use super::{Candidate, Fate, MOST_NODES, MOST_SLABS, Planner, Query, Tenant};
use crate::alloc::{BlockId, Growth, Pools, SlabClass, Step};

impl Pools {
    /// Moves of at most `limit_bytes` bytes that empty slabs: those first that give the most for
    /// each byte moved. Only slabs that can be emptied altogether, if not at once then by further
    /// calls, lose blocks; they go to fuller slabs, so that calls come to an end. No steps when
    /// nothing is worth it.
    ///
    /// The emptied slabs stay; [`Pools::empty_slabs`] has them.
    pub fn plan_pass<'a>(
        &self,
        planner: &'a mut Planner,
        limit_bytes: u64,
        movable: &dyn Fn(BlockId) -> bool,
    ) -> &'a [Step] {
        let query = Query {
            pools: self,
            growth: Growth {
                class: SlabClass::Small,
                slab_bytes: 0,
                least_bytes: 0,
            },
            limit_bytes,
            anywhere: false,
            movable,
        };
        planner.pass(&query);
        &planner.steps
    }
}

impl Planner {
    fn pass(&mut self, query: &Query<'_>) {
        self.survey(query.pools);
        self.steps.clear();
        // An empty slab that receives blocks would gain nothing.
        for slab in &self.slabs {
            if slab.live == 0 {
                self.fates[slab.index as usize] = Fate::Leaves;
            }
        }
        let ratio = |slab: &Candidate| slab.live * 1000 / slab.size;
        self.slabs
            .sort_unstable_by_key(|slab| (ratio(slab), slab.live, slab.index));
        let mut left = query.pools.carver.unit.granules_floor(query.limit_bytes).0;
        let (mut looked, mut walked) = (0, 0);
        for candidate in 0..self.slabs.len() {
            let victim = self.slabs[candidate];
            if victim.live == 0 || self.fates[victim.index as usize] != Fate::Stays {
                continue;
            }
            looked += 1;
            walked += query.pools.carver.slabs[victim.index].blocks as usize;
            if looked > MOST_SLABS || walked > MOST_NODES || left == 0 {
                return;
            }
            left -= self.drain(query, &victim, left);
        }
    }

    /// Moves up to `most` granules out of a slab whose blocks all fit elsewhere. Returns how many.
    fn drain(&mut self, query: &Query<'_>, victim: &Candidate, most: u64) -> u64 {
        let carver = &query.pools.carver;
        let (mark, first) = (self.room.mark(), self.steps.len());
        self.blocks.clear();
        let nodes = carver.indexed_nodes_of(carver.slabs[victim.index].first);
        self.blocks.extend(
            nodes
                .filter(|(_, node)| node.is_live())
                .map(|(index, node)| Tenant {
                    size: node.size().0,
                    node: index,
                }),
        );
        self.blocks.sort_unstable_by(|one, other| other.cmp(one));
        let slice = query.pools.carver.unit.granules_floor(query.limit_bytes).0;
        if self
            .blocks
            .first()
            .is_some_and(|largest| largest.size > slice)
        {
            return 0;
        }
        // Only slabs that come later in the order are fuller.
        self.fates[victim.index as usize] = Fate::Leaves;
        let is_whole = (0..self.blocks.len()).all(|block| {
            let tenant = self.blocks[block];
            (query.movable)(query.handle(tenant.node))
                && self.rehouse(query, &tenant, victim.index).is_some()
        });
        if !is_whole {
            self.room.undo_to(mark);
            self.steps.truncate(first);
            return 0;
        }
        // They all fit; now for as many as this slice may move.
        self.room.undo_to(mark);
        self.steps.truncate(first);
        let mut moved = 0;
        for block in 0..self.blocks.len() {
            let tenant = self.blocks[block];
            if moved + tenant.size > most {
                continue;
            }
            if let Some(slab) = self.rehouse(query, &tenant, victim.index) {
                self.fates[slab as usize] = Fate::Receives;
                moved += tenant.size;
            }
        }
        moved
    }
}
