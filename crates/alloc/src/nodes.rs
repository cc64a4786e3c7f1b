//! The node table: one node of 32 bytes per block and per hole, two per cache line.
//!
//! ```text
//!          63        43 42                     0
//! place    | slab: 21    |  offset: 43 granules  |
//! extent   |L| slack: 17 |  size: 44 granules    |      L: the block is live
//! prev, next           the neighbours in the slab, by address
//! live:  tag = generation of the handle    hole:  up, down = its bin's list
//! ```
//!
//! A block and a hole never need the same extra fields, so these fields overlap. An unused node is
//! neither: its extent is zero, and `next` links it to the next unused node.

use alloc::vec::Vec;

use crate::units::Granules;

/// The index that names no node.
pub(super) const NONE: u32 = u32::MAX;

const OFFSET_BITS: u32 = 43;
const SIZE_BITS: u32 = 44;
const SLACK_BITS: u32 = 17;
const LIVE: u64 = 1 << 63;

/// The number of slabs that the `slab` field can tell apart.
pub(super) const MAX_SLABS: u32 = 1 << (64 - OFFSET_BITS);

const _: () = assert!(size_of::<Node>() == 32, "two nodes to a cache line");
const _: () = assert!(
    SIZE_BITS + SLACK_BITS < 64,
    "the live bit has a place of its own"
);
const _: () = assert!(
    super::bins::MAX_GRANULES.0 < 1 << SIZE_BITS,
    "the largest size has room"
);
const _: () = assert!(
    super::bins::MAX_GRANULES.0 <= 1 << OFFSET_BITS,
    "the largest offset has room"
);

/// A block, a hole or an unused entry; the module's drawing shows the fields.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(32))]
pub(super) struct Node {
    place: u64,
    extent: u64,
    /// The node before it in the slab.
    pub(super) prev: u32,
    /// The node after it in the slab.
    pub(super) next: u32,
    /// In a block: its generation. In a hole: the previous hole of the bin.
    pub(super) up: u32,
    /// In a hole: the next hole of the bin.
    pub(super) down: u32,
}

impl Node {
    pub(super) fn hole(slab: u32, offset: Granules, size: Granules, prev: u32, next: u32) -> Node {
        let place = u64::from(slab) << OFFSET_BITS | offset.0;
        Node {
            place,
            extent: size.0,
            prev,
            next,
            up: NONE,
            down: NONE,
        }
    }

    /// Turns the node into a block. `slack_bytes` is the part of `size` that was not asked for.
    #[inline]
    pub(super) fn set_live(&mut self, size: Granules, slack_bytes: u64, generation: u32) {
        debug_assert!(slack_bytes < 1 << SLACK_BITS);
        self.extent = LIVE | slack_bytes << SIZE_BITS | size.0;
        self.up = generation;
    }

    #[inline]
    pub(super) fn set_hole(&mut self, size: Granules) {
        self.extent = size.0;
    }

    /// Takes `size` granules off the front of a hole.
    #[inline]
    pub(super) fn shrink_front(&mut self, size: Granules) {
        debug_assert!(!self.is_live() && size.0 < self.extent);
        self.place += size.0;
        self.extent -= size.0;
    }

    #[inline]
    pub(super) fn is_live(&self) -> bool {
        self.extent & LIVE != 0
    }

    #[inline]
    pub(super) fn slab(&self) -> u32 {
        (self.place >> OFFSET_BITS) as u32
    }

    #[inline]
    pub(super) fn offset(&self) -> Granules {
        Granules(self.place & ((1 << OFFSET_BITS) - 1))
    }

    #[inline]
    pub(super) fn size(&self) -> Granules {
        Granules(self.extent & ((1 << SIZE_BITS) - 1))
    }

    #[inline]
    pub(super) fn slack_bytes(&self) -> u64 {
        (self.extent & !LIVE) >> SIZE_BITS
    }
}

/// All nodes, and the chain of the unused ones.
#[derive(Clone, Debug)]
pub(super) struct NodeTable {
    nodes: Vec<Node>,
    unused: u32,
}

impl NodeTable {
    pub(super) fn with_capacity(nodes: usize) -> NodeTable {
        NodeTable {
            nodes: Vec::with_capacity(nodes),
            unused: NONE,
        }
    }

    /// Stores `node` in an unused entry or in a new one. `None` when the table is full.
    #[inline]
    pub(super) fn insert(&mut self, node: Node) -> Option<u32> {
        let index = self.unused;
        if index != NONE {
            let entry = &mut self.nodes[index as usize];
            self.unused = entry.next;
            *entry = node;
            return Some(index);
        }
        let index = u32::try_from(self.nodes.len())
            .ok()
            .filter(|&index| index != NONE)?;
        self.nodes.push(node);
        Some(index)
    }

    #[inline]
    pub(super) fn remove(&mut self, index: u32) {
        let unused = self.unused;
        let node = &mut self[index];
        node.extent = 0;
        node.next = unused;
        self.unused = index;
    }

    /// The node, if it is a live block of this generation.
    #[inline]
    pub(super) fn live(&self, index: u32, generation: u32) -> Option<&Node> {
        self.nodes
            .get(index as usize)
            .filter(|node| node.is_live() && node.up == generation)
    }

    /// The entry at `index`, used or not.
    pub(super) fn get(&self, index: u32) -> Option<&Node> {
        self.nodes.get(index as usize)
    }

    /// Swaps two entries. The caller updates the links to them.
    pub(super) fn swap(&mut self, one: u32, other: u32) {
        self.nodes.swap(one as usize, other as usize);
    }

    /// The number of entries, used or not.
    pub(super) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Counts the unused entries along their chain. `None` if the chain does not end.
    pub(super) fn count_unused(&self) -> Option<usize> {
        let mut count = 0;
        let mut index = self.unused;
        while index != NONE {
            count += 1;
            let node = self
                .nodes
                .get(index as usize)
                .filter(|node| node.extent == 0)?;
            index = node.next;
            if count > self.nodes.len() {
                return None;
            }
        }
        Some(count)
    }
}

impl core::ops::Index<u32> for NodeTable {
    type Output = Node;
    #[inline]
    fn index(&self, index: u32) -> &Node {
        &self.nodes[index as usize]
    }
}

impl core::ops::IndexMut<u32> for NodeTable {
    #[inline]
    fn index_mut(&mut self, index: u32) -> &mut Node {
        &mut self.nodes[index as usize]
    }
}
