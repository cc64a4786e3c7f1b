//! The index of holes: one list per bin, and the search of a segregated fit.

use alloc::format;
use alloc::string::String;

use super::bins::{BIN_COUNT, BinMap, bin_of};
use super::nodes::{NONE, Node, NodeTable};
use crate::units::Granules;

/// The most holes of the request's own bin to look at. The list is not sorted, so only this limit
/// keeps the search O(1). The hole that was freed last is at the head of the list.
pub(super) const LOOKS: u32 = 8;

/// The holes that a request of one kind may take: holes in slabs in use, and whole empty slabs.
#[derive(Clone, Debug)]
pub(super) struct Zone {
    /// Holes in slabs with live blocks.
    pub(super) used: HoleIndex,
    /// Holes that fill an empty slab.
    pub(super) empty: HoleIndex,
    /// Bytes of all slabs in the zone.
    pub(super) reserved_bytes: u64,
}

impl Zone {
    pub(super) fn new() -> Zone {
        Zone {
            used: HoleIndex::new(),
            empty: HoleIndex::new(),
            reserved_bytes: 0,
        }
    }

    /// The index to which a hole belongs.
    #[inline]
    pub(super) fn index_mut(&mut self, slab_is_empty: bool) -> &mut HoleIndex {
        if slab_is_empty {
            &mut self.empty
        } else {
            &mut self.used
        }
    }

    /// Finds a hole of at least `size`. It takes an empty slab of more than `empty_limit` only if
    /// the slab is in the size's own bin. O(1).
    ///
    /// The search looks first at the holes of the size's own bin. TLSF's good fit and
    /// OffsetAllocator round the search up to the next bin. They miss the block that was just
    /// freed, and split a larger one. Then the search takes the lowest bin above, and prefers slabs
    /// in use to empty slabs.
    #[inline]
    pub(super) fn find(
        &self,
        nodes: &NodeTable,
        size: Granules,
        empty_limit: Granules,
        looks: u32,
    ) -> Option<u32> {
        let own = self.used.find_in_own_bin(nodes, size, looks);
        if let Some(hole) = own.or_else(|| self.empty.find_in_own_bin(nodes, size, looks)) {
            return Some(hole);
        }
        let used = self.used.find_above(size);
        let empty = self.empty.find_above(size);
        let empty = empty.filter(|&(_, slab)| nodes[slab].size() <= empty_limit);
        match (used, empty) {
            (Some((bin, hole)), Some((empty_bin, _))) if bin <= empty_bin => Some(hole),
            (used, empty) => empty.or(used).map(|(_, hole)| hole),
        }
    }
}

/// The holes, each in the list of its bin.
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

    /// Unlinks `node` from its list.
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

    /// Changes a hole's size. The hole moves to another list only if its bin changes.
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

    /// A hole of at least `size` among the first `looks` holes of the size's own bin.
    #[inline]
    fn find_in_own_bin(&self, nodes: &NodeTable, size: Granules, mut looks: u32) -> Option<u32> {
        let mut index = self.heads[bin_of(size)];
        while index != NONE && looks > 0 {
            let node = &nodes[index];
            if node.size() >= size {
                return Some(index);
            }
            index = node.down;
            looks -= 1;
        }
        None
    }

    /// The first hole of the lowest bin above the size's own. Every hole there fits.
    #[inline]
    fn find_above(&self, size: Granules) -> Option<(usize, u32)> {
        let bin = self.map.first_from(bin_of(size) + 1)?;
        Some((bin, self.heads[bin]))
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
        core::iter::successors(link(self.heads[bin]), move |&index| link(nodes[index].down))
    }

    /// Checks every list: each hole must be in its bin and linked both ways. Returns the number of
    /// holes.
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
