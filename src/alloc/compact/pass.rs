//! Compaction a slice at a time, for programs that have a moment to spare in every frame.

use super::{Candidate, Fate, MOST_NODES, Planner, Query, Tenant};
use crate::alloc::{BlockId, Growth, Pools, Step};

/// How many slabs are tried in one pass: it must be over soon.
const MOST_VICTIMS: usize = 16;

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
            growth: Growth::NOTHING,
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
        let mut left = granules(query, query.limit_bytes);
        let (mut tried, mut walked) = (0, 0);
        for candidate in 0..self.slabs.len() {
            let victim = self.slabs[candidate];
            if victim.live == 0 || self.fates[victim.index as usize] != Fate::Stays {
                continue;
            }
            walked += query.pools.carver.slabs[victim.index].blocks as usize;
            if tried == MOST_VICTIMS || walked > MOST_NODES || left == 0 {
                return;
            }
            // Only slabs that come later in the order are fuller.
            self.fates[victim.index as usize] = Fate::Leaves;
            if self.may_drain(query, &victim) {
                tried += 1;
                left -= self.drain(query, &victim, left);
            }
        }
    }

    /// Lists the blocks of a slab. `false` if one of them can never leave, being pinned or larger
    /// than a slice.
    fn may_drain(&mut self, query: &Query<'_>, victim: &Candidate) -> bool {
        let carver = &query.pools.carver;
        let most = granules(query, query.limit_bytes);
        self.blocks.clear();
        let nodes = carver.indexed_nodes_of(carver.slabs[victim.index].first);
        for (index, node) in nodes.filter(|(_, node)| node.is_live()) {
            if node.size().0 > most || !(query.movable)(query.handle(index)) {
                return false;
            }
            self.blocks.push(Tenant {
                size: node.size().0,
                node: index,
            });
        }
        self.blocks.sort_unstable_by(|one, other| other.cmp(one));
        true
    }

    /// Moves up to `most` granules of the listed blocks, if there is room for all of them. Returns
    /// how many.
    fn drain(&mut self, query: &Query<'_>, victim: &Candidate, most: u64) -> u64 {
        let (mark, first) = (self.room.mark(), self.steps.len());
        let is_whole = (0..self.blocks.len()).all(|block| {
            let tenant = self.blocks[block];
            self.rehouse(query, &tenant, victim.index).is_some()
        });
        self.room.undo_to(mark);
        self.steps.truncate(first);
        if !is_whole {
            return 0;
        }
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

fn granules(query: &Query<'_>, bytes: u64) -> u64 {
    query.pools.carver.unit.granules_floor(bytes).0
}
