//! The checker: verifies every invariant of the carver's tables from scratch. For tests.

use alloc::format;
use alloc::string::String;

use super::Carver;
use super::nodes::NONE;
use super::slabs::Slab;
use crate::units::Granules;

impl Carver {
    /// Walks all slabs and all bins and reports the first error.
    ///
    /// It checks these invariants:
    ///
    /// - The blocks and holes of every slab follow each other without gap or overlap, and fill it.
    /// - No two holes touch.
    /// - Every hole is in the list of its bin, and the lists hold only holes.
    /// - The bitmaps agree with the lists, and the counters with the slabs.
    /// - Every node is in use or in the chain of unused nodes.
    ///
    /// O(slabs + blocks + holes).
    ///
    /// # Errors
    /// A sentence that describes the first broken invariant.
    pub fn check_invariants(&self) -> Result<(), String> {
        let mut seen = Seen::default();
        for (id, slab) in self.slabs.iter() {
            self.check_slab(id.index, slab, &mut seen)
                .map_err(|what| format!("{id:?}: {what}"))?;
        }
        self.check_counters(&seen)?;
        let mut in_bins = 0;
        for zone in &self.zones {
            in_bins += zone.used.check(&self.nodes)?;
            let whole = zone.empty.check(&self.nodes)?;
            in_bins += whole;
            seen.empty_indexed += whole;
        }
        equal("holes in bins and in slabs", in_bins, seen.holes)?;
        let unused = self
            .nodes
            .count_unused()
            .ok_or("the chain of unused nodes is broken")?;
        equal(
            "nodes in use and unused, and all",
            seen.blocks + seen.holes + unused,
            self.nodes.len(),
        )?;
        let empty = self
            .slabs
            .iter()
            .filter(|(_, slab)| slab.blocks == 0)
            .count();
        equal(
            "slabs indexed as empty, and empty ones",
            seen.empty_indexed,
            empty,
        )?;
        let listed = self
            .slabs
            .empty()
            .take(empty + 1)
            .filter(|id| self.slabs[id.index].blocks == 0);
        equal(
            "slabs listed as empty, and empty ones",
            listed.count(),
            empty,
        )
    }

    fn check_slab(&self, slab_index: u32, slab: &Slab, seen: &mut Seen) -> Result<(), String> {
        let mut offset = Granules(0);
        let mut live = Granules(0);
        let mut blocks = 0;
        let (mut prev, mut prev_is_hole, mut index) = (NONE, false, slab.first);
        while index != NONE {
            let node = &self.nodes[index];
            equal("slab of a node", node.slab(), slab_index)?;
            equal("offset", node.offset(), offset)?;
            equal("link to the node before", node.prev, prev)?;
            if node.size() == Granules(0) || node.size() > slab.size {
                return Err(format!("node {index} has the size {:?}", node.size()));
            }
            if prev_is_hole && !node.is_live() {
                return Err(format!("nodes {prev} and {index} are holes that touch"));
            }
            if node.is_live() {
                live.0 += node.size().0;
                blocks += 1;
                seen.requested_bytes += self.unit.bytes(node.size()) - node.slack_bytes();
            } else {
                seen.holes += 1;
            }
            offset.0 += node.size().0;
            (prev, prev_is_hole, index) = (index, !node.is_live(), node.next);
        }
        equal("end of the last node, and slab size", offset, slab.size)?;
        equal("live blocks", blocks, slab.blocks)?;
        equal("live granules", live, slab.live)?;
        seen.blocks += blocks as usize;
        seen.granted_bytes += self.unit.bytes(live);
        seen.reserved_bytes += self.unit.bytes(slab.size);
        seen.slabs += 1;
        Ok(())
    }

    fn check_counters(&self, seen: &Seen) -> Result<(), String> {
        let counters = &self.counters;
        equal(
            "requested bytes",
            counters.requested.now,
            seen.requested_bytes,
        )?;
        equal("granted bytes", counters.granted.now(), seen.granted_bytes)?;
        equal("reserved bytes", counters.reserved.now, seen.reserved_bytes)?;
        equal("live blocks", counters.blocks.now(), seen.blocks as u64)?;
        equal(
            "slabs",
            counters.slabs_created - counters.slabs_released,
            seen.slabs,
        )
    }
}

/// The totals of the check over all slabs.
#[derive(Default)]
struct Seen {
    blocks: usize,
    holes: usize,
    empty_indexed: usize,
    slabs: u64,
    requested_bytes: u64,
    granted_bytes: u64,
    reserved_bytes: u64,
}

fn equal<T: PartialEq + core::fmt::Debug>(what: &str, found: T, expected: T) -> Result<(), String> {
    if found == expected {
        Ok(())
    } else {
        Err(format!("{what}: {found:?} is not {expected:?}"))
    }
}
