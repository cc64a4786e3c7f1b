//! Who has written to which bytes of the slabs, so that no share reads what another one left.
//!
//! This is recorded from the first share on; until then everything is in no share. A block that a
//! share gets is cleared if any part of it may hold bytes of another one. A new slab holds zeros.

use super::place::Place;
use super::share::ShareId;
use super::slabs::Slab;

/// The most blocks to clear that moves leave behind them.
const MOST_UNCLEAN: usize = 64;

/// Bytes of a slab that were handed out since it was created, and the share that they went to.
#[derive(Clone, Copy, Debug)]
struct Range {
    start: u64,
    end: u64,
    owner: ShareId,
}

/// Who has written to which bytes; nothing until there is a share.
#[derive(Clone, Debug, Default)]
pub(crate) struct Previous(Option<Box<PreviousRanges>>);

/// Who has written to which bytes, and what must be cleared.
#[derive(Clone, Debug, Default)]
struct PreviousRanges {
    /// By the index of the slab: its ranges, in order. They do not overlap.
    slabs: Vec<Vec<Range>>,
    /// A slab and one of its ranges: mostly the next block lies there.
    likely: Option<(u32, Range)>,
    /// Blocks to clear before the next op that names them, with their sizes.
    unclean: Vec<(Place, u64)>,
}

impl Range {
    /// Whether it is of this share, and has all of these bytes.
    #[inline]
    fn is_around(&self, start: u64, end: u64, share: ShareId) -> bool {
        self.owner == share && self.start <= start && end <= self.end
    }
}

/// The indices of the first of these ranges that has bytes between `start` and `end`, and of the
/// one after the last.
fn overlapping(ranges: &[Range], start: u64, end: u64) -> (usize, usize) {
    let first = ranges.partition_point(|range| range.end <= start);
    let others = ranges[first..].iter().take_while(|range| range.start < end);
    (first, first + others.count())
}

/// The parts of these ranges that lie before `start`, and after `end`.
fn outside(ranges: &[Range], start: u64, end: u64) -> [Option<Range>; 2] {
    let before = ranges.first().filter(|range| range.start < start);
    let after = ranges.last().filter(|range| range.end > end);
    [
        before.map(|&range| Range {
            end: start,
            ..range
        }),
        after.map(|&range| Range {
            start: end,
            ..range
        }),
    ]
}

impl PreviousRanges {
    /// Gives a range of a slab to a share. Returns whether another share may have left bytes there.
    #[inline]
    fn hand_over(&mut self, slab: u32, start: u64, end: u64, to: ShareId) -> bool {
        match &self.likely {
            Some((of, range)) if *of == slab && range.is_around(start, end, to) => false,
            _ => self.hand_over_unlikely(slab, start, end, to),
        }
    }

    #[inline(never)]
    fn hand_over_unlikely(&mut self, index: u32, start: u64, end: u64, to: ShareId) -> bool {
        let slab = index as usize;
        if self.slabs.len() <= slab {
            self.slabs.resize_with(slab + 1, Vec::new);
        }
        let ranges = &mut self.slabs[slab];
        let is_own = |range: &Range| range.owner == to;
        let (mut first, mut last) = overlapping(ranges, start, end);
        let around = ranges[first..last].first().copied();
        let around = around.filter(|one| one.is_around(start, end, to));
        self.likely = around.map(|around| (index, around));
        if around.is_some() {
            // A block comes back to its share.
            return false;
        }
        // Neighbours of one owner become one range, so there are few.
        let touches = |range: &&Range| is_own(range) && (range.end == start || range.start == end);
        if ranges[..first].last().filter(touches).is_some() {
            first -= 1;
        }
        if ranges.get(last).filter(touches).is_some() {
            last += 1;
        }
        let mut new = Range {
            start,
            end,
            owner: to,
        };
        let replaced = &ranges[first..last];
        let is_foreign = !replaced.iter().all(is_own);
        for own in replaced.iter().filter(|range| is_own(range)) {
            new.start = new.start.min(own.start);
            new.end = new.end.max(own.end);
        }
        let [before, after] =
            outside(replaced, start, end).map(|part| part.filter(|part| !is_own(part)));
        match (is_foreign, last - first) {
            (false, 1) => ranges[first] = new,
            _ => {
                ranges.drain(first..last);
                for part in [after, Some(new), before].into_iter().flatten() {
                    ranges.insert(first, part);
                }
            }
        }
        is_foreign
    }

    /// A range of a slab holds zeros.
    fn cleared(&mut self, slab: u32, start: u64, end: u64) {
        self.likely = None;
        let Some(ranges) = self.slabs.get_mut(slab as usize) else {
            return;
        };
        let (first, last) = overlapping(ranges, start, end);
        let parts = outside(&ranges[first..last], start, end);
        ranges.splice(first..last, parts.into_iter().flatten());
    }
}

impl Previous {
    /// From now on, records who has written to which bytes. These are the slabs so far.
    pub(super) fn record(&mut self, slabs: &[Option<Slab>]) {
        if self.0.is_some() {
            return;
        }
        let mut ranges = Box::<PreviousRanges>::default();
        for (index, slab) in (0..).zip(slabs) {
            if let Some(slab) = slab {
                ranges.hand_over(index, 0, slab.size_bytes, ShareId::MAIN);
            }
        }
        self.0 = Some(ranges);
    }

    /// Is it recorded who writes?
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// A block of this size at this place now belongs to a share.
    #[inline]
    pub(super) fn hand_over(&mut self, place: Place, granted_bytes: u64, to: ShareId) {
        let (Some(ranges), Some(slab)) = (&mut self.0, place.slab) else {
            return;
        };
        let (start, end) = (place.offset_bytes, place.offset_bytes + granted_bytes);
        if ranges.hand_over(slab, start, end, to) {
            ranges.unclean.push((place, granted_bytes));
        }
    }

    /// Are there blocks to clear?
    #[inline]
    pub(crate) fn has_unclean(&self) -> bool {
        let ranges = self.0.as_deref();
        ranges.is_some_and(|ranges| !ranges.unclean.is_empty())
    }

    /// Must blocks be cleared before a move of `size_bytes` between these places? That is so if one
    /// of them lies there, or if they are many: each move looks through them.
    #[inline]
    pub(crate) fn is_any_unclean(&self, places: [Place; 2], size_bytes: u64) -> bool {
        let unclean = self.0.as_deref().map_or(&[][..], |ranges| &ranges.unclean);
        let mut looked_at = unclean.iter();
        unclean.len() > MOST_UNCLEAN
            || looked_at.any(|(one, bytes)| {
                places.iter().any(|place| {
                    place.buffer == one.buffer
                        && place.offset_bytes < one.offset_bytes + bytes
                        && one.offset_bytes < place.offset_bytes + size_bytes
                })
            })
    }

    /// The host has cleared a block that is free.
    pub(crate) fn cleared(&mut self, place: Place, granted_bytes: u64) {
        if let (Some(ranges), Some(slab)) = (&mut self.0, place.slab) {
            ranges.cleared(slab, place.offset_bytes, place.offset_bytes + granted_bytes);
        }
    }

    /// Whether the newest entry of what is still to be cleared covers a block of this size here. An
    /// entry may be older than the block: then it may be shorter.
    #[inline]
    pub(crate) fn is_unclean(&self, place: Place, size_bytes: u64) -> bool {
        let last = self.0.as_deref().and_then(|ranges| ranges.unclean.last());
        last.is_some_and(|(last, bytes)| *last == place && *bytes >= size_bytes)
    }

    /// The blocks to clear before the next op, with their sizes in bytes.
    pub(crate) fn take_unclean(&mut self) -> Vec<(Place, u64)> {
        let ranges = self.0.as_deref_mut();
        ranges.map_or(Vec::new(), |ranges| std::mem::take(&mut ranges.unclean))
    }

    /// A slab is gone, or all of them.
    pub(super) fn forget(&mut self, slab: Option<u32>) {
        let Some(ranges) = &mut self.0 else { return };
        ranges.likely = None;
        match slab {
            Some(slab) => {
                if let Some(of_slab) = ranges.slabs.get_mut(slab as usize) {
                    of_slab.clear();
                }
                (ranges.unclean).retain(|(place, _)| place.slab != Some(slab));
            }
            None => {
                ranges.slabs.clear();
                ranges.unclean.clear();
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
        let (mut previous, mut bytes) = (PreviousRanges::default(), vec![None; 200]);
        previous.slabs.push(Vec::new());
        for round in 0..5000 {
            let start = random.u64(0..199);
            let end = random.u64(start + 1..=200);
            let to = ShareId(random.u32(0..3));
            let range = start as usize..end as usize;
            if random.u32(0..4) == 0 {
                bytes[range].fill(None);
                previous.cleared(0, start, end);
            } else {
                let wanted = bytes[range.clone()].iter().flatten().any(|one| *one != to);
                bytes[range].fill(Some(to));
                let is_foreign = previous.hand_over(0, start, end, to);
                assert_eq!(is_foreign, wanted, "seed {seed}, round {round}");
            }
            let ranges = &previous.slabs[0];
            assert!(ranges.is_sorted_by(|one, next| one.end <= next.start));
            let covered: u64 = ranges.iter().map(|range| range.end - range.start).sum();
            assert_eq!(covered, bytes.iter().flatten().count() as u64);
            for range in ranges {
                let known = &bytes[range.start as usize..range.end as usize];
                assert!(
                    known.iter().all(|one| *one == Some(range.owner)),
                    "seed {seed}"
                );
            }
        }
    }
}
