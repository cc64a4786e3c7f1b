//! Who has written to which bytes of the slabs, so that no share reads what another one left.
//!
//! This is recorded from the first share on; until then everything is in no share. A block that a
//! share gets is cleared if any part of it may hold bytes of another one. A new slab holds zeros.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use super::share::ShareId;
use super::{Memory, Place};

/// The bytes of one slab that were handed out since it was created: for each start, the end and the
/// share. Ranges do not overlap.
type Ranges = BTreeMap<u64, (u64, ShareId)>;

/// Who has written to which bytes, and what must be cleared.
#[derive(Clone, Debug, Default)]
pub(super) struct Previous {
    /// By the index of the slab.
    slabs: FxHashMap<u32, Ranges>,
    /// Blocks to clear before the next op that names them, with their sizes.
    unclean: Vec<(Place, u64)>,
}

impl Previous {
    /// Gives a range of a slab to a share. Returns whether another share may have left bytes there.
    fn hand_over(&mut self, slab: u32, start: u64, end: u64, to: ShareId) -> bool {
        let ranges = self.slabs.entry(slab).or_default();
        let before = ranges.range(..=start).next_back();
        let first = before.filter(|(_, (until, _))| *until > start);
        if first.is_some_and(|(_, &(until, owner))| owner == to && until >= end) {
            return false;
        }
        let first = first.map_or(start, |(&at, _)| at);
        let touched: Vec<(u64, (u64, ShareId))> = (ranges.range(first..end))
            .map(|(&at, &range)| (at, range))
            .collect();
        let (mut is_foreign, mut new) = (false, (start, end));
        for (at, (until, owner)) in touched {
            ranges.remove(&at);
            if owner == to {
                new = (new.0.min(at), new.1.max(until));
                continue;
            }
            is_foreign = true;
            if at < start {
                ranges.insert(at, (start, owner));
            }
            if until > end {
                ranges.insert(end, (until, owner));
            }
        }
        ranges.insert(new.0, (new.1, to));
        is_foreign
    }
}

impl Memory {
    /// From now on, records who has written to which bytes.
    pub(super) fn record_previous(&mut self) {
        if self.previous.is_some() {
            return;
        }
        let mut previous = Box::<Previous>::default();
        for (index, slab) in (0..).zip(&self.slabs) {
            if let Some(slab) = slab {
                previous.hand_over(index, 0, slab.size_bytes, ShareId::MAIN);
            }
        }
        self.previous = Some(previous);
    }

    /// A block at this place now belongs to a share.
    #[inline]
    pub(super) fn hand_over(&mut self, place: Place, size_bytes: u64, to: ShareId) {
        if self.previous.is_some() {
            self.hand_over_now(place, size_bytes, to);
        }
    }

    #[cold]
    fn hand_over_now(&mut self, place: Place, size_bytes: u64, to: ShareId) {
        let granted_bytes = self.granted_bytes(size_bytes);
        let (Some(previous), Some(slab)) = (&mut self.previous, place.slab) else {
            return;
        };
        let (start, end) = (place.offset_bytes, place.offset_bytes + granted_bytes);
        if previous.hand_over(slab, start, end, to) {
            previous.unclean.push((place, granted_bytes));
        }
    }

    /// Are there blocks to clear?
    #[inline]
    pub(crate) fn has_unclean(&self) -> bool {
        let previous = self.previous.as_deref();
        previous.is_some_and(|previous| !previous.unclean.is_empty())
    }

    /// The blocks to clear before the next op, with their sizes in bytes.
    pub(crate) fn take_unclean(&mut self) -> Vec<(Place, u64)> {
        let previous = self.previous.as_deref_mut();
        previous.map_or(Vec::new(), |previous| std::mem::take(&mut previous.unclean))
    }

    /// The ops that should have cleared these were refused.
    pub(crate) fn still_unclean(&mut self, places: Vec<(Place, u64)>) {
        if let Some(previous) = &mut self.previous {
            previous.unclean.extend(places);
        }
    }

    /// A slab is gone, or all of them.
    pub(super) fn forget_previous(&mut self, slab: Option<u32>) {
        if let Some(previous) = &mut self.previous {
            match slab {
                Some(slab) => {
                    previous.slabs.remove(&slab);
                    previous
                        .unclean
                        .retain(|(place, _)| place.slab != Some(slab));
                }
                None => {
                    previous.slabs.clear();
                    previous.unclean.clear();
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Hand-overs of random ranges, beside one entry a byte.
    #[test]
    fn a_range_is_foreign_if_any_byte_of_it_is() {
        let seed = fastrand::u64(..);
        let mut random = fastrand::Rng::with_seed(seed);
        let (mut previous, mut bytes) = (Previous::default(), vec![None; 200]);
        for round in 0..5000 {
            let start = random.u64(0..199);
            let end = random.u64(start + 1..=200);
            let to = ShareId(random.u32(0..3));
            let range = start as usize..end as usize;
            let wanted = bytes[range.clone()].iter().flatten().any(|one| *one != to);
            bytes[range].fill(Some(to));
            let is_foreign = previous.hand_over(0, start, end, to);
            assert_eq!(is_foreign, wanted, "seed {seed}, round {round}");
            let ranges = previous.slabs[&0].iter();
            let covered: u64 = ranges.clone().map(|(at, (until, _))| until - at).sum();
            assert_eq!(covered, bytes.iter().flatten().count() as u64);
            for (&at, &(until, owner)) in ranges {
                let known = &bytes[at as usize..until as usize];
                assert!(known.iter().all(|one| *one == Some(owner)), "seed {seed}");
            }
        }
    }
}
