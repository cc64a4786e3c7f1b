//! The plan that needs no driver call: it moves the blocks of a window into holes of other slabs.

use alloc::collections::BinaryHeap;
use alloc::vec::Vec;
use core::cmp::Reverse;

use super::draft::{Draft, LiveBlock};
use super::query::{MOST_NODES, MOST_SLABS, Query};
use crate::nodes::Node;
use crate::units::Granules;

/// The most windows to try. A window is a range of the request's size that moves could empty.
pub(super) const MOST_WINDOWS: usize = 40;

/// Neighbours in a slab that together are at least as long as the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Window {
    /// The live granules in the window, which have to be copied.
    cost: u64,
    slab: u32,
    /// The first node of the window. `pieces` is the number of its nodes.
    first: u32,
    pieces: u32,
}

/// The tables of the search.
#[derive(Clone, Debug, Default)]
pub(super) struct Windows {
    found: Vec<Reverse<Window>>,
}

impl Windows {
    /// Finds the window that takes the fewest copies and whose blocks all fit elsewhere.
    ///
    /// Returns the bytes to copy, `most_bytes` at most.
    pub(super) fn plan(
        &mut self,
        draft: &mut Draft,
        query: &Query<'_>,
        most_bytes: u64,
    ) -> Option<u64> {
        self.found.clear();
        let most = query.pools.carver.unit.granules_floor(most_bytes).0;
        let size = query.size();
        let zone = query.growth.class.zone();
        let mut walked = 0;
        let mut looked = 0;
        for slab in &draft.slabs {
            let serves = query.anywhere || slab.zone == zone;
            if !serves || slab.size < size || slab.live == 0 || slab.live == slab.size {
                continue;
            }
            looked += 1;
            if looked > MOST_SLABS || walked > MOST_NODES {
                break;
            }
            // A block that no hole fits is as good as pinned.
            let most_block = draft.room.largest_outside(slab.index);
            walked += self.find_windows(query, slab.index, most_block, most);
        }
        // Few windows are tried, so the others need no order.
        let mut cheapest = BinaryHeap::from(core::mem::take(&mut self.found));
        let mut tries = core::iter::from_fn(|| cheapest.pop()).take(MOST_WINDOWS);
        let moved_bytes = tries.find_map(|Reverse(window)| try_window(draft, query, &window));
        self.found = cheapest.into_vec();
        moved_bytes
    }

    /// Finds the shortest window from each block and hole of a slab on. A window must cost at most
    /// `most`, and no larger block than `most_block` can leave it. Returns the number of blocks and
    /// holes.
    fn find_windows(&mut self, query: &Query<'_>, slab: u32, most_block: u64, most: u64) -> usize {
        let carver = &query.pools.carver;
        let least = query.size();
        let nodes = || carver.indexed_nodes_of(carver.slabs[slab].first);
        let (mut size, mut cost, mut pieces) = (0, 0, 0);
        let (mut starts, mut walked) = (nodes(), 0);
        for (index, node) in nodes() {
            walked += 1;
            let may_move = || node.size().0 <= most_block && (query.movable)(query.handle(index));
            if node.is_live() && !may_move() {
                // No window that begins before a pinned block can extend past it.
                starts.nth(pieces);
                (size, cost, pieces) = (0, 0, 0);
                continue;
            }
            size += node.size().0;
            cost += cost_of(node);
            pieces += 1;
            while size >= least {
                let Some((first, start)) = starts.next() else {
                    break;
                };
                if cost <= most {
                    self.found.push(Reverse(Window {
                        cost,
                        slab,
                        first,
                        pieces: pieces as u32,
                    }));
                }
                size -= start.size().0;
                cost -= cost_of(start);
                pieces -= 1;
            }
        }
        walked
    }
}

/// The granules to copy when a window has this block or hole.
fn cost_of(node: &Node) -> u64 {
    if node.is_live() { node.size().0 } else { 0 }
}

/// Moves the blocks of a window elsewhere, or none of them.
fn try_window(draft: &mut Draft, query: &Query<'_>, window: &Window) -> Option<u64> {
    let carver = &query.pools.carver;
    draft.steps.clear();
    draft.blocks.clear();
    let pieces = carver.indexed_nodes_of(window.first);
    let live = pieces
        .take(window.pieces as usize)
        .filter(|(_, node)| node.is_live());
    draft.blocks.extend(live.map(LiveBlock::new));
    draft.sort_blocks();
    for block in 0..draft.blocks.len() {
        let live = draft.blocks[block];
        if draft.place_elsewhere(query, &live, window.slab).is_none() {
            draft.room.undo_to(0);
            return None;
        }
    }
    Some(carver.unit.bytes(Granules(window.cost)))
}
