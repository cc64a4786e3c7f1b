//! Canaries and poison, for finding bugs: a canary behind each storage, poison in freed blocks.
//!
//! ```text
//!   │ storage │pad│  canary │ storage │pad│  canary │  poison (was a storage)  │ …
//!                 └── at least CANARY_BYTES, up to the end of the granule
//! ```
//!
//! Blocks are neighbours, so the canary behind one block is also the canary before the next. This
//! module only lists the changes, in order. The engine fills and checks the zones by ops in the
//! queue, at the place of each change.

use super::freed::FreedRanges;
use super::place::Place;
use super::slabs::Slabs;
use super::slots::{Slot, Slots};
use super::storage::Storage;

/// Least size of a canary.
pub(crate) const CANARY_BYTES: u64 = 256;

/// The word that fills canaries and freed blocks. It is a NaN in floats of every width, so values
/// computed from it show.
pub(crate) const PATTERN: u32 = 0xffed_ffed;

/// A range of a slab that should hold the pattern.
#[derive(Clone, Debug)]
pub(crate) struct Zone {
    /// The place of its first byte.
    pub(crate) place: Place,
    pub(crate) size_bytes: u64,
    /// Offset in the block that the zone belongs to.
    pub(crate) from_bytes: u64,
    /// Size of the storage that has, or had, this block.
    pub(crate) of_bytes: u64,
    /// Index of the tag of that storage's maker.
    pub(crate) tag: u32,
}

impl Zone {
    /// The block at a place, of a storage of this size.
    pub(super) fn of_block(place: Place, size_bytes: u64, tag: u32, slabs: &Slabs) -> Zone {
        Zone {
            place,
            size_bytes: slabs.granted_bytes(size_bytes),
            from_bytes: 0,
            of_bytes: size_bytes,
            tag,
        }
    }

    /// The canary of a slot's storage; `None` if it has no block.
    fn of_canary(slot: &Slot, slabs: &Slabs) -> Option<Zone> {
        slot.block?;
        let block = Zone::of_block(slot.place?, slot.size_bytes, slot.tag, slabs);
        Some(block.canary(slabs))
    }

    /// The canary in a block. It has no bytes if there are no canaries.
    fn canary(&self, slabs: &Slabs) -> Zone {
        let end = self.place.offset_bytes + self.size_bytes;
        let from_bytes = match slabs.canary_bytes {
            0 => self.size_bytes,
            _ => self.of_bytes,
        };
        part(self, self.place.offset_bytes + from_bytes, end)
    }

    /// The sort key: by slab, then by offset.
    pub(crate) fn order(&self) -> (u64, u64) {
        let slab = self.place.slab.map_or(0, |slab| u64::from(slab) + 1);
        (slab, self.place.offset_bytes)
    }
}

/// A change of a block.
#[derive(Debug)]
pub(crate) enum Change {
    /// A storage got the block; this is its canary.
    Came(Zone),
    /// The storage left the block: the whole block, and the canary in it.
    Went { block: Zone, canary: Zone },
    /// A part of a freed block is about to go to another storage.
    Reused(Zone),
}

/// The watched zones; nothing while the engine looks for no bugs.
#[derive(Debug, Default)]
pub(crate) struct Canaries(Option<Box<Watched>>);

#[derive(Debug)]
struct Watched {
    /// Are freed blocks poisoned?
    poisons: bool,
    changes: Vec<Change>,
    /// Freed blocks that are still free.
    freed: FreedRanges,
}

impl Canaries {
    /// Begins to record changes, and with `poisons` to remember freed blocks.
    pub(super) fn watch(&mut self, poisons: bool) {
        self.0 = Some(Box::new(Watched {
            poisons,
            changes: Vec::new(),
            freed: FreedRanges::default(),
        }));
    }

    /// Are blocks watched?
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Are there changes that the engine has not taken?
    #[inline]
    pub(crate) fn has_changes(&self) -> bool {
        (self.0.as_ref()).is_some_and(|watched| !watched.changes.is_empty())
    }

    /// Takes the changes, in order; the caller handles them.
    pub(crate) fn take_changes(&mut self, slabs: &Slabs) -> Vec<Change> {
        let watched = self.0.as_mut();
        let mut changes =
            watched.map_or_else(Vec::new, |watched| std::mem::take(&mut watched.changes));
        // A released slab cannot be checked.
        changes.retain(|change| {
            let (Change::Came(zone) | Change::Reused(zone) | Change::Went { block: zone, .. }) =
                change;
            slabs.is_at(zone.place)
        });
        changes
    }

    /// The part of the canary behind a storage, from byte `from_bytes` of the storage on, if it has
    /// one.
    pub(crate) fn behind(
        storage: &Storage,
        from_bytes: u64,
        slots: &Slots,
        slabs: &Slabs,
    ) -> Option<Zone> {
        if slabs.canary_bytes == 0 {
            return None;
        }
        let canary = Zone::of_canary(slots.row(storage)?, slabs)?;
        let more_bytes = canary.from_bytes.checked_sub(from_bytes)?;
        let offset_bytes = canary.place.offset_bytes - more_bytes;
        Some(Zone {
            place: Place {
                offset_bytes,
                ..canary.place
            },
            size_bytes: canary.size_bytes + more_bytes,
            from_bytes,
            ..canary
        })
    }

    /// All canaries, and all poisoned zones, by slab.
    pub(crate) fn zones(&self, slots: &Slots, slabs: &Slabs) -> (Vec<Zone>, Vec<Zone>) {
        let Some(watched) = &self.0 else {
            return (Vec::new(), Vec::new());
        };
        let mut canaries = Vec::new();
        if slabs.canary_bytes > 0 {
            canaries.extend(all_canaries(slots, slabs));
        }
        (canaries, watched.freed.all())
    }

    /// A submission was refused, so the last fills did not happen. All canaries are filled again,
    /// and the poisoned zones are forgotten.
    pub(crate) fn fill_again(&mut self, slots: &Slots, slabs: &Slabs) {
        let (canaries, _) = self.zones(slots, slabs);
        if let Some(watched) = &mut self.0 {
            watched.freed.forget(None);
            watched.changes = canaries.into_iter().map(Change::Came).collect();
        }
    }

    /// Forgets a damaged poisoned zone, so that the damage is not reported twice.
    pub(crate) fn forget_freed(&mut self, zone: &Zone) {
        if let Some(watched) = &mut self.0 {
            watched.freed.remove(zone.place);
        }
    }

    /// The storage of a slot got a block.
    #[cold]
    pub(super) fn came(&mut self, slot: &Slot, slabs: &Slabs) {
        self.fill(Zone::of_canary(slot, slabs));
    }

    /// Fills the canary of a damaged zone again, so that the same damage is not reported twice.
    pub(crate) fn refill(&mut self, zone: &Zone, slots: &Slots, slabs: &Slabs) {
        let is_it =
            |canary: &Zone| canary.place == zone.place && canary.size_bytes == zone.size_bytes;
        self.fill(all_canaries(slots, slabs).find(is_it));
    }

    fn fill(&mut self, canary: Option<Zone>) {
        if let (Some(watched), Some(canary)) = (&mut self.0, canary) {
            watched.changes.push(Change::Came(canary));
        }
    }

    /// A storage leaves its block, or has left it for another one.
    #[cold]
    pub(super) fn went(&mut self, block: Zone, slabs: &Slabs) {
        let (Some(watched), Some(_)) = (&mut self.0, block.place.slab) else {
            return;
        };
        if watched.poisons {
            watched.freed.insert(block.clone());
        }
        let canary = block.canary(slabs);
        watched.changes.push(Change::Went { block, canary });
    }

    /// Another storage took over the block as it is, so the last `Went` does not count.
    pub(super) fn stays(&mut self) {
        if let Some(watched) = &mut self.0 {
            if let Some(Change::Went { block, .. }) = watched.changes.pop() {
                watched.freed.remove(block.place);
            }
        }
    }

    /// A storage is about to get `granted_bytes` at this place.
    #[cold]
    pub(super) fn reuse(&mut self, place: Place, granted_bytes: u64) {
        let end = place.offset_bytes + granted_bytes;
        let (Some(watched), Some(slab)) = (&mut self.0, place.slab) else {
            return;
        };
        let overlapping = (watched.freed).take_overlapping(slab, place.offset_bytes, end);
        for zone in overlapping {
            let start = zone.place.offset_bytes;
            let whole = (start, start + zone.size_bytes);
            let (from, to) = (whole.0.max(place.offset_bytes), whole.1.min(end));
            for (from, to) in [(whole.0, from), (to, whole.1)] {
                if from < to {
                    watched.freed.insert(part(&zone, from, to));
                }
            }
            watched.changes.push(Change::Reused(part(&zone, from, to)));
        }
    }

    /// Forgets a released slab, or all slabs (`None`).
    pub(super) fn forget(&mut self, slab: Option<u32>) {
        if let Some(watched) = &mut self.0 {
            watched.freed.forget(slab);
            if slab.is_none() {
                watched.changes.clear();
            }
        }
    }
}

/// The canaries of all storages that have a block.
fn all_canaries(slots: &Slots, slabs: &Slabs) -> impl Iterator<Item = Zone> {
    (slots.rows().iter()).filter_map(|slot| Zone::of_canary(slot, slabs))
}

/// The part of a zone between two offsets in its slab.
fn part(zone: &Zone, from: u64, to: u64) -> Zone {
    Zone {
        place: Place {
            offset_bytes: from,
            ..zone.place
        },
        size_bytes: to - from,
        from_bytes: zone.from_bytes + (from - zone.place.offset_bytes),
        ..*zone
    }
}
