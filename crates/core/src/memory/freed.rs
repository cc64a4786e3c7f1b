//! The freed ranges that hold the pattern, while diagnostics poison freed blocks.

use super::Place;
use super::canary::Zone;

/// Freed blocks that are still free: for each slab a list, sorted by offset. The lists are short,
/// so an insertion moves few ranges.
#[derive(Debug, Default)]
pub(super) struct FreedRanges(Vec<Vec<Zone>>);

impl FreedRanges {
    /// All ranges, by slab and offset.
    pub(super) fn all(&self) -> Vec<Zone> {
        self.0.iter().flatten().cloned().collect()
    }

    pub(super) fn insert(&mut self, zone: Zone) {
        let Some(slab) = zone.place.slab.map(|slab| slab as usize) else {
            return;
        };
        if self.0.len() <= slab {
            self.0.resize_with(slab + 1, Vec::new);
        }
        let zones = &mut self.0[slab];
        match place_in(zones, zone.place.offset_bytes) {
            Ok(index) => zones[index] = zone,
            Err(index) => zones.insert(index, zone),
        }
    }

    /// Removes the range that begins at a place, if there is one.
    pub(super) fn remove(&mut self, place: Place) {
        if let Some(zones) = place.slab.and_then(|slab| self.0.get_mut(slab as usize)) {
            if let Ok(index) = place_in(zones, place.offset_bytes) {
                zones.remove(index);
            }
        }
    }

    /// Takes the ranges that have bytes in common with `from..end` of a slab.
    pub(super) fn take_overlapping(&mut self, slab: u32, from: u64, end: u64) -> Vec<Zone> {
        let Some(zones) = self.0.get_mut(slab as usize) else {
            return Vec::new();
        };
        let first = zones.partition_point(|zone| end_of(zone) <= from);
        let after = zones.partition_point(|zone| zone.place.offset_bytes < end);
        zones.drain(first.min(after)..after).collect()
    }

    /// Forgets the ranges of a slab, or of all slabs (`None`).
    pub(super) fn forget(&mut self, slab: Option<u32>) {
        match slab {
            Some(slab) => self.0.get_mut(slab as usize).map_or((), Vec::clear),
            None => self.0.clear(),
        }
    }
}

/// The index of the range that begins at an offset, or where it would stand.
fn place_in(zones: &[Zone], offset_bytes: u64) -> Result<usize, usize> {
    zones.binary_search_by_key(&offset_bytes, |zone| zone.place.offset_bytes)
}

fn end_of(zone: &Zone) -> u64 {
    zone.place.offset_bytes + zone.size_bytes
}
