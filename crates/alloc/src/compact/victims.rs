//! The plan that releases slabs: it moves the blocks of whole slabs into holes of other slabs.
//! Blocks that fit in no hole move into new slabs.

use super::draft::{Candidate, Draft, Fate, LiveBlock};
use super::query::{MOST_NODES, MOST_SLABS, Query};
use super::step::Step;
use crate::config::Growth;
use crate::units::Granules;

/// The reserved and the moved bytes during planning.
#[derive(Clone, Copy, Debug)]
struct Tally {
    reserved_bytes: u64,
    moved_bytes: u64,
}

impl Draft {
    /// Releases empty slabs and then empties further slabs, until at most `target_bytes` are
    /// reserved. Slabs that free the most for each byte copied come first. `false` if that takes
    /// more than `most_bytes` of copies or cannot be done; the steps then get as near as the search
    /// found.
    pub(super) fn plan_victims(
        &mut self,
        query: &Query<'_>,
        target_bytes: u64,
        most_bytes: u64,
    ) -> bool {
        let pools = query.pools;
        self.steps.clear();
        let mut tally = Tally {
            reserved_bytes: pools.reserved_bytes(),
            moved_bytes: 0,
        };
        let excess_bytes = tally.reserved_bytes.saturating_sub(target_bytes);
        tally.reserved_bytes -= self.release(query, excess_bytes);
        for step in &self.steps {
            if let Step::Release(slab) = step {
                self.fates[slab.index as usize] = Fate::Leaves;
            }
        }
        self.sort_slabs();
        let (mut looked, mut walked) = (0, 0);
        for candidate in 0..self.slabs.len() {
            if tally.reserved_bytes <= target_bytes {
                break;
            }
            let victim = self.slabs[candidate];
            if victim.live == 0 || self.fates[victim.index as usize] != Fate::Stays {
                continue;
            }
            let live_bytes = pools.carver.unit.bytes(Granules(victim.live));
            if live_bytes > most_bytes - tally.moved_bytes {
                continue;
            }
            looked += 1;
            walked += pools.carver.slabs[victim.index].blocks as usize;
            if looked > MOST_SLABS || walked > MOST_NODES {
                return false;
            }
            if let Some(after) = self.empty_out(query, &victim, tally) {
                tally = after;
            }
        }
        tally.reserved_bytes <= target_bytes
    }

    /// Moves all blocks out of one slab and releases it. If that is impossible, it changes nothing.
    fn empty_out(&mut self, query: &Query<'_>, victim: &Candidate, tally: Tally) -> Option<Tally> {
        let carver = &query.pools.carver;
        let unit = &carver.unit;
        let slab_bytes = unit.bytes(Granules(victim.size));
        // New slabs must fit under the limit, and together be smaller than the victim.
        let room_bytes = query.limit_bytes.checked_sub(tally.reserved_bytes)?;
        let most_new_bytes = room_bytes.min(slab_bytes.saturating_sub(1));
        let most_after_bytes = tally.reserved_bytes - slab_bytes + most_new_bytes;
        if query.pools.granted_bytes() > most_after_bytes {
            return None;
        }
        if !self.list_blocks(query, victim, u64::MAX) {
            return None;
        }
        let (mark, steps) = (self.room.mark(), self.steps.len());
        let (mut stranded, mut new_bytes) = (0, 0);
        for block in 0..self.blocks.len() {
            let live = self.blocks[block];
            if self.place_elsewhere(query, &live, victim.index).is_none() {
                self.blocks[stranded] = live;
                stranded += 1;
                new_bytes += unit.bytes(Granules(live.size));
                if new_bytes > most_new_bytes {
                    self.room.undo_to(mark);
                    self.steps.truncate(steps);
                    return None;
                }
            }
        }
        self.blocks.truncate(stranded);
        self.create_for_stranded(query);
        self.note_receivers(steps);
        self.fates[victim.index as usize] = Fate::Leaves;
        self.steps
            .push(Step::Release(carver.slabs.id(victim.index)));
        Some(Tally {
            reserved_bytes: tally.reserved_bytes + new_bytes - slab_bytes,
            moved_bytes: tally.moved_bytes + unit.bytes(Granules(victim.live)),
        })
    }

    /// Moves the listed blocks, which fit in no hole, into new slabs: one slab per zone. Close to a
    /// hard limit each block gets a slab alone, which can be released as soon as that block is
    /// freed. The new slabs are as large as the blocks.
    fn create_for_stranded(&mut self, query: &Query<'_>) {
        let unit = &query.pools.carver.unit;
        // The blocks are sorted by size, so blocks of one zone are neighbours.
        let share =
            |a: &LiveBlock, b: &LiveBlock| !query.is_tight && query.zone_of(a) == query.zone_of(b);
        for together in self.blocks.chunk_by(share) {
            let size: u64 = together.iter().map(|live| live.size).sum();
            let slab_bytes = unit.bytes(Granules(size));
            self.steps.push(Step::Create(Growth {
                class: query.class_of(&together[0]),
                slab_bytes,
                least_bytes: slab_bytes,
            }));
            let mut offset = 0;
            for live in together {
                self.steps.push(Step::MoveToNew {
                    block: query.handle(live.node),
                    offset_bytes: unit.bytes(Granules(offset)),
                });
                offset += live.size;
            }
        }
    }
}
