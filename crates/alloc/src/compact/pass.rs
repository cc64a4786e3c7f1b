//! Compaction a slice at a time, for programs that have a moment to spare in every frame.
//!
//! A slice must cost little more than its copies, whatever there is: so of the slabs' blocks and
//! holes only those are looked at that the slice may concern.

use super::{Candidate, Fate, MOST_NODES, Planner, Query, Step, Tenant};
use crate::config::ZONES;
use crate::{BlockId, Growth, Pools};

/// How many slabs are tried in one pass: it must be over soon.
const MOST_VICTIMS: usize = 16;

/// At first the holes of so many times the slice are looked at, then of twice as many, ...
const FIRST_ROOM: u64 = 2;

/// How far the holes of each zone have been looked at.
#[derive(Clone, Copy, Debug)]
struct Reach {
    /// The slabs from here on in the order of fullness have been entered.
    from: [usize; ZONES as usize],
    /// How many granules of holes are entered the next time.
    next: [u64; ZONES as usize],
    /// Blocks and holes looked at.
    walked: usize,
}

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
            is_tight: false,
            movable,
        };
        planner.pass(&query);
        &planner.steps
    }
}

impl Planner {
    fn pass(&mut self, query: &Query<'_>) {
        self.list_slabs(query.pools);
        self.steps.clear();
        // An empty slab that receives blocks would gain nothing.
        self.slabs.retain(|slab| slab.live > 0);
        let ratio = |slab: &Candidate| slab.live * 1000 / slab.size;
        self.slabs
            .sort_unstable_by_key(|slab| (ratio(slab), slab.live, slab.index));
        let most = granules(query, query.limit_bytes);
        let mut reach = Reach {
            from: [self.slabs.len(); ZONES as usize],
            next: [most.saturating_mul(FIRST_ROOM); ZONES as usize],
            walked: 0,
        };
        let mut left = most;
        let (mut tried, mut walked) = (0, 0);
        for candidate in 0..self.slabs.len() {
            let victim = self.slabs[candidate];
            if self.fates[victim.index as usize] != Fate::Stays {
                continue;
            }
            walked += query.pools.carver.slabs[victim.index].blocks as usize;
            let is_over = tried == MOST_VICTIMS || walked > MOST_NODES || left == 0;
            // Only full ones follow one that is full.
            if is_over || victim.live == victim.size {
                return;
            }
            // Only slabs that come later in the order are fuller.
            self.fates[victim.index as usize] = Fate::Leaves;
            if candidate >= reach.from[victim.zone as usize] {
                self.room.leave_out(victim.index);
            }
            if self.may_drain(query, &victim) {
                tried += 1;
                left -= self.drain(query, &victim, left, &mut reach);
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
            self.blocks.push(Tenant::new((index, node)));
        }
        self.sort_blocks();
        true
    }

    /// Moves up to `most` granules of the listed blocks, if there is room for all of them. Returns
    /// how many.
    fn drain(
        &mut self,
        query: &Query<'_>,
        victim: &Candidate,
        most: u64,
        reach: &mut Reach,
    ) -> u64 {
        let (mark, first) = (self.room.mark(), self.steps.len());
        let is_whole = (0..self.blocks.len()).all(|block| {
            let tenant = self.blocks[block];
            self.house(query, &tenant, victim.index, reach)
        });
        let mut moved = victim.live;
        if !is_whole || moved > most {
            self.room.undo_to(mark);
            self.steps.truncate(first);
            moved = 0;
        }
        if is_whole && victim.live > most {
            for block in 0..self.blocks.len() {
                let tenant = self.blocks[block];
                let fits = moved + tenant.size <= most;
                if fits && self.house(query, &tenant, victim.index, reach) {
                    moved += tenant.size;
                }
            }
        }
        for step in &self.steps[first..] {
            if let Step::Move { to, .. } = step {
                self.fates[to.slab().index as usize] = Fate::Receives;
            }
        }
        moved
    }

    /// As `rehouse`, looking at more holes as long as there are any.
    fn house(
        &mut self,
        query: &Query<'_>,
        tenant: &Tenant,
        source: u32,
        reach: &mut Reach,
    ) -> bool {
        let zone = query.zone_of(tenant);
        loop {
            if self.rehouse(query, tenant, source).is_some() {
                return true;
            }
            if !self.enter_more(query.pools, zone, reach) {
                return false;
            }
        }
    }

    /// Enters the holes of the next slabs of a zone, the fullest first: what lies in those is the
    /// least likely to move again. `false` if there are none.
    fn enter_more(&mut self, pools: &Pools, zone: u8, reach: &mut Reach) -> bool {
        let Reach { from, next, walked } = reach;
        let (from, next) = (&mut from[zone as usize], &mut next[zone as usize]);
        let mut entered = 0;
        while entered < *next && *walked <= MOST_NODES && *from > 0 {
            let slab = self.slabs[*from - 1];
            if self.fates[slab.index as usize] == Fate::Leaves {
                break;
            }
            *from -= 1;
            if slab.zone == zone && slab.live < slab.size {
                *walked += self.enter_holes(pools, &slab);
                entered += slab.size - slab.live;
            }
        }
        *next = next.saturating_mul(2);
        self.room.sort();
        entered > 0
    }
}

fn granules(query: &Query<'_>, bytes: u64) -> u64 {
    query.pools.carver.unit.granules_floor(bytes).0
}
