//! The plan that needs no driver call: it moves the blocks of a window into holes of other slabs.

use alloc::vec::Vec;

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

/// A block or a hole of the slab that the planner looks at.
#[derive(Clone, Copy, Debug)]
struct Piece {
    node: u32,
    size: u64,
    cost: u64,
    is_pinned: bool,
}

/// The tables of the search.
#[derive(Clone, Debug, Default)]
pub(super) struct Windows {
    /// The cheapest windows, in order.
    cheapest: Vec<Window>,
    /// The blocks and holes of one slab.
    pieces: Vec<Piece>,
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
        self.cheapest.clear();
        let most = query.pools.carver.unit.granules_floor(most_bytes).0;
        let size = query.size();
        let zone = query.growth.class.zone();
        let mut walked = 0;
        let mut looked = 0;
        for candidate in 0..draft.slabs.len() {
            let slab = draft.slabs[candidate];
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
            self.read_pieces(query, slab.index, most_block);
            walked += self.pieces.len();
            self.find_windows(slab.index, size, most);
        }
        self.cheapest
            .iter()
            .find_map(|window| try_window(draft, query, window))
    }

    fn read_pieces(&mut self, query: &Query<'_>, slab: u32, most_block: u64) {
        let carver = &query.pools.carver;
        let piece = |(index, node): (u32, &Node)| {
            let (is_live, size) = (node.is_live(), node.size().0);
            let may_move = || size <= most_block && (query.movable)(query.handle(index));
            Piece {
                node: index,
                size,
                cost: if is_live { size } else { 0 },
                is_pinned: is_live && !may_move(),
            }
        };
        self.pieces.clear();
        let nodes = carver.indexed_nodes_of(carver.slabs[slab].first);
        self.pieces.extend(nodes.map(piece));
    }

    /// Finds the shortest window from each piece on. A window must cost at most `most`. The
    /// cheapest windows of all slabs are kept.
    fn find_windows(&mut self, slab: u32, least: u64, most: u64) {
        let (mut size, mut cost, mut end) = (0, 0, 0);
        let mut start = 0;
        while start < self.pieces.len() {
            while end < self.pieces.len() && size < least && !self.pieces[end].is_pinned {
                size += self.pieces[end].size;
                cost += self.pieces[end].cost;
                end += 1;
            }
            if size >= least {
                let window = Window {
                    cost,
                    slab,
                    first: self.pieces[start].node,
                    pieces: (end - start) as u32,
                };
                if cost <= most {
                    keep_cheapest(&mut self.cheapest, window);
                }
            } else if end < self.pieces.len() {
                // No window that begins before a pinned block can extend past it.
                (size, cost, start, end) = (0, 0, end + 1, end + 1);
                continue;
            } else {
                return;
            }
            size -= self.pieces[start].size;
            cost -= self.pieces[start].cost;
            start += 1;
        }
    }
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

fn keep_cheapest(windows: &mut Vec<Window>, window: Window) {
    if windows.len() == MOST_WINDOWS {
        if windows.last().is_some_and(|last| *last <= window) {
            return;
        }
        windows.pop();
    }
    let index = windows.partition_point(|other| *other < window);
    windows.insert(index, window);
}
