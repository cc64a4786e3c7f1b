//! The index of holes: a list for every bin, and the search of a segregated fit.

use super::bins::{BIN_COUNT, BinMap, bin_of};
use super::nodes::{NONE, Node, NodeTable};
use crate::units::Granules;

/// How many holes of the request's own bin are looked at. The list is in no order, so a bound is
/// what keeps the search O(1); the block that was just freed is at its head.
const LOOKS: u32 = 8;

/// The holes of some slabs, each in the list of its bin.
#[derive(Clone, Debug)]
pub(super) struct HoleIndex {
    map: BinMap,
    heads: [u32; BIN_COUNT],
}

impl HoleIndex {
    pub(super) fn new() -> HoleIndex {
        HoleIndex {
            map: BinMap::default(),
            heads: [NONE; BIN_COUNT],
        }
    }

    /// Puts the hole at the head of its bin's list.
    #[inline]
    pub(super) fn insert(&mut self, nodes: &mut NodeTable, index: u32) {
        let bin = bin_of(nodes[index].size());
        let head = self.heads[bin];
        let node = &mut nodes[index];
        node.up = NONE;
        node.down = head;
        if head == NONE {
            self.map.set(bin);
        } else {
            nodes[head].up = index;
        }
        self.heads[bin] = index;
    }

    /// Takes the hole out of its bin's list.
    #[inline]
    pub(super) fn remove(&mut self, nodes: &mut NodeTable, index: u32) {
        let node = nodes[index];
        self.unlink(nodes, &node);
    }

    /// Closes the list over `node`.
    #[inline]
    fn unlink(&mut self, nodes: &mut NodeTable, node: &Node) {
        let (up, down) = (node.up, node.down);
        if down != NONE {
            nodes[down].up = up;
        }
        if up != NONE {
            nodes[up].down = down;
            return;
        }
        let bin = bin_of(node.size());
        self.heads[bin] = down;
        if down == NONE {
            self.map.clear(bin);
        }
    }

    /// Changes a hole's size, and moves it to another list only where its bin changes.
    #[inline]
    pub(super) fn resize(
        &mut self,
        nodes: &mut NodeTable,
        index: u32,
        change: impl FnOnce(&mut Node),
    ) {
        let node = &mut nodes[index];
        let before = *node;
        change(node);
        if bin_of(node.size()) == bin_of(before.size()) {
            return;
        }
        self.unlink(nodes, &before);
        self.insert(nodes, index);
    }

    /// A hole of at least `size`. O(1).
    ///
    /// First among the holes of the size's own bin: rounding the search up to the next bin, as
    /// TLSF's good fit and OffsetAllocator do, misses the very block that was just freed and
    /// splits a larger one instead. Every hole of a higher bin fits.
    #[inline]
    pub(super) fn find(&self, nodes: &NodeTable, size: Granules) -> Option<u32> {
        let bin = bin_of(size);
        let mut index = self.heads[bin];
        let mut looks = LOOKS;
        while index != NONE && looks > 0 {
            let node = &nodes[index];
            if node.size() >= size {
                return Some(index);
            }
            index = node.down;
            looks -= 1;
        }
        self.map.first_from(bin + 1).map(|bin| self.heads[bin])
    }

    /// The size of the largest hole. O(holes in the highest bin in use).
    pub(super) fn largest(&self, nodes: &NodeTable) -> Granules {
        let Some(bin) = self.map.last() else {
            return Granules(0);
        };
        self.list(nodes, bin)
            .map(|index| nodes[index].size())
            .max()
            .unwrap_or_default()
    }

    /// The holes of one bin, in the order of the search.
    pub(super) fn list<'a>(
        &self,
        nodes: &'a NodeTable,
        bin: usize,
    ) -> impl Iterator<Item = u32> + 'a {
        let link = |index: u32| (index != NONE).then_some(index);
        std::iter::successors(link(self.heads[bin]), move |&index| link(nodes[index].down))
    }

    /// Walks every list: each hole must be in its bin, linked both ways. Returns their number.
    pub(super) fn check(&self, nodes: &NodeTable) -> Result<usize, String> {
        let mut count = 0;
        if !self.map.is_consistent() {
            return Err("the two levels of the bitmap disagree".into());
        }
        for bin in 0..BIN_COUNT {
            if self.map.contains(bin) != (self.heads[bin] != NONE) {
                return Err(format!("bin {bin}: the bitmap and the list disagree"));
            }
            let mut up = NONE;
            for index in self.list(nodes, bin) {
                let node = &nodes[index];
                if node.is_live() || bin_of(node.size()) != bin || node.up != up {
                    return Err(format!(
                        "bin {bin}: node {index} is not a hole linked there"
                    ));
                }
                up = index;
                count += 1;
                if count > nodes.len() {
                    return Err(format!("bin {bin}: the list does not end"));
                }
            }
        }
        Ok(count)
    }
}
