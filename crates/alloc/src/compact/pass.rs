//! Compaction in slices, for programs that have spare time in each frame.
//!
//! A slice must cost little more than its copies, however many slabs there are. So the planner
//! looks only at the blocks and holes that the slice may concern.

use super::draft::{Candidate, Draft, Fate, LiveBlock};
use super::query::{MOST_NODES, Query};
use crate::Pools;
use crate::config::ZONES;

/// The most slabs to try in one pass, so that a pass ends soon.
const MOST_VICTIMS: usize = 16;

/// The planner first looks at holes of this many times the slice, then doubles the amount.
const FIRST_ROOM: u64 = 2;

/// The holes of each zone that the planner has looked at so far.
#[derive(Clone, Copy, Debug)]
struct Reach {
    /// The slabs from this index on, in the order of fullness, are entered.
    from: [usize; ZONES as usize],
    /// The granules of holes to enter the next time.
    next: [u64; ZONES as usize],
    /// The number of blocks and holes looked at.
    walked: usize,
}

impl Draft {
    /// Adds the moves of a slice to an empty list of steps.
    pub(super) fn pass(&mut self, query: &Query<'_>) {
        self.list_slabs(query.pools);
        self.steps.clear();
        // A move into an empty slab would gain nothing.
        self.slabs.retain(|slab| slab.live > 0);
        self.sort_slabs();
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
            // The slabs after a full one are full as well.
            if is_over || victim.live == victim.size {
                return;
            }
            // Blocks move only to later slabs of the order, which are fuller.
            self.fates[victim.index as usize] = Fate::Leaves;
            if candidate >= reach.from[victim.zone as usize] {
                self.room.leave_out(victim.index);
            }
            // A block that is larger than a slice can never leave.
            if self.list_blocks(query, &victim, most) {
                tried += 1;
                left -= self.drain(query, &victim, left, &mut reach);
            }
        }
    }

    /// Moves up to `most` granules of the listed blocks, if all of them have room elsewhere.
    /// Returns the number of granules.
    fn drain(
        &mut self,
        query: &Query<'_>,
        victim: &Candidate,
        most: u64,
        reach: &mut Reach,
    ) -> u64 {
        let (mark, first) = (self.room.mark(), self.steps.len());
        let is_whole = (0..self.blocks.len()).all(|block| {
            let live = self.blocks[block];
            self.find_place(query, &live, victim.index, reach)
        });
        let mut moved = victim.live;
        if !is_whole || moved > most {
            self.room.undo_to(mark);
            self.steps.truncate(first);
            moved = 0;
        }
        if is_whole && victim.live > most {
            for block in 0..self.blocks.len() {
                let live = self.blocks[block];
                let fits = moved + live.size <= most;
                if fits && self.find_place(query, &live, victim.index, reach) {
                    moved += live.size;
                }
            }
        }
        self.note_receivers(first);
        moved
    }

    /// As `place_elsewhere`, but enters more holes as long as there are any.
    fn find_place(
        &mut self,
        query: &Query<'_>,
        live: &LiveBlock,
        source: u32,
        reach: &mut Reach,
    ) -> bool {
        let zone = query.zone_of(live);
        loop {
            if self.place_elsewhere(query, live, source).is_some() {
                return true;
            }
            if !self.enter_more(query.pools, zone, reach) {
                return false;
            }
        }
    }

    /// Enters the holes of the next slabs of a zone. The fullest slabs come first, because their
    /// blocks are the least likely to move again. `false` if there are none.
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
