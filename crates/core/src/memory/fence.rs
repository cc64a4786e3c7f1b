//! Fences and poison, for finding bugs: a fence behind each storage, poison in freed blocks.
//!
//! ```text
//!   │ storage │pad│  fence  │ storage │pad│  fence  │  poison (was a storage)  │ …
//!                 └── at least FENCE_BYTES, up to the end of the granule
//! ```
//!
//! Blocks are neighbours, so the fence behind one block is also the fence before the next. This
//! module only lists the changes, in order. The engine fills and checks the zones by ops in the
//! queue, at the place of each change.

use std::sync::Arc;

use rustc_hash::FxHashSet;

use super::graves::Graves;
use super::{Memory, Moved, Place, Storage, Tag};

/// Least size of a fence.
pub(crate) const FENCE_BYTES: u64 = 256;

/// The word that fills fences and freed blocks. It is a NaN in floats of every width, so values
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
    /// The sort key: by slab, then by offset.
    pub(crate) fn order(&self) -> (u64, u64) {
        let slab = self.place.slab.map_or(0, |slab| u64::from(slab) + 1);
        (slab, self.place.offset_bytes)
    }
}

/// A change of a block.
#[derive(Debug)]
pub(crate) enum Change {
    /// A storage got the block; this is its fence.
    Came(Zone),
    /// The storage left the block: the whole block, and the fence in it.
    Went { block: Zone, fence: Zone },
    /// A part of a freed block is about to go to another storage.
    Reused(Zone),
}

/// The watched zones.
#[derive(Debug)]
pub(super) struct Fences {
    /// Are freed blocks poisoned?
    poisons: bool,
    changes: Vec<Change>,
    /// Freed blocks that are still free.
    graves: Graves,
}

impl Memory {
    /// Turns on fences, and poison in freed blocks. Call it before the first block exists.
    pub(crate) fn watch_blocks(&mut self, fences: bool, poisons: bool) {
        self.fence_bytes = if fences { FENCE_BYTES } else { 0 };
        self.fences = (fences || poisons).then(|| {
            Box::new(Fences {
                poisons,
                changes: Vec::new(),
                graves: Graves::default(),
            })
        });
    }

    /// Are there changes that the engine has not taken?
    #[inline]
    pub(crate) fn has_changes(&self) -> bool {
        (self.fences.as_ref()).is_some_and(|fences| !fences.changes.is_empty())
    }

    /// Takes the changes, in order; the caller handles them.
    pub(crate) fn take_changes(&mut self) -> Vec<Change> {
        let fences = self.fences.as_mut();
        let mut changes =
            fences.map_or_else(Vec::new, |fences| std::mem::take(&mut fences.changes));
        // A released slab cannot be checked.
        changes.retain(|change| {
            let (Change::Came(zone) | Change::Reused(zone) | Change::Went { block: zone, .. }) =
                change;
            self.slab_number(zone.place).is_some()
        });
        changes
    }

    /// The tag of the maker of the storage that a zone belongs to.
    pub(crate) fn tag_of(&self, zone: &Zone) -> Option<Tag> {
        let entries = self.census.tags.entries();
        entries.get(zone.tag as usize)?.tag.clone()
    }

    /// The tag of the storage right behind a zone.
    pub(crate) fn tag_behind(&self, zone: &Zone) -> Option<Tag> {
        let end_bytes = zone.place.offset_bytes + zone.size_bytes;
        let behind = self.slots.iter().find(|slot| {
            slot.place.is_some_and(|place| {
                place.buffer == zone.place.buffer && place.offset_bytes == end_bytes
            })
        });
        let entries = self.census.tags.entries();
        entries.get(behind?.tag as usize)?.tag.clone()
    }

    /// The part of the fence behind a storage from byte `from_bytes` of the storage on, if it has a
    /// fence.
    pub(crate) fn fence_behind(&self, storage: &Storage, from_bytes: u64) -> Option<Zone> {
        if self.fence_bytes == 0 {
            return None;
        }
        let index = storage.slot()?;
        let fence = self.fence_of(index)?;
        let more_bytes = fence.from_bytes.checked_sub(from_bytes)?;
        let offset_bytes = fence.place.offset_bytes - more_bytes;
        Some(Zone {
            place: Place {
                offset_bytes,
                ..fence.place
            },
            size_bytes: fence.size_bytes + more_bytes,
            from_bytes,
            ..fence
        })
    }

    /// All fences, and all poisoned zones, by slab.
    pub(crate) fn zones(&self) -> (Vec<Zone>, Vec<Zone>) {
        let Some(watched) = &self.fences else {
            return (Vec::new(), Vec::new());
        };
        let mut fences = Vec::new();
        if self.fence_bytes > 0 {
            let slots = 0..self.slots.len() as u32;
            fences.extend(slots.filter_map(|index| self.fence_of(index)));
        }
        (fences, watched.graves.all())
    }

    /// A submission was refused, so the last fills did not happen. All fences are filled again, and
    /// the poisoned zones are forgotten.
    pub(crate) fn fence_anew(&mut self) {
        let (fences, _) = self.zones();
        if let Some(watched) = &mut self.fences {
            watched.graves.forget(None);
            watched.changes = fences.into_iter().map(Change::Came).collect();
        }
    }

    /// Fills the fence of a damaged zone again, so that the same damage is not reported twice.
    pub(crate) fn mend(&mut self, zone: &Zone) {
        let is_it = |fence: &Zone| fence.place == zone.place && fence.size_bytes == zone.size_bytes;
        let slots = 0..self.slots.len() as u32;
        let fence = slots.filter_map(|index| self.fence_of(index)).find(is_it);
        if let (Some(watched), Some(fence)) = (&mut self.fences, fence) {
            watched.changes.push(Change::Came(fence));
        }
    }

    /// Does the storage have a block that no command has written to?
    pub(crate) fn is_unwritten(&self, storage: &Storage) -> bool {
        let slot = storage.slot().map(|index| &self.slots[index as usize]);
        slot.is_some_and(|slot| {
            slot.block.is_some() && slot.written_in == 0 && slot.copies.is_none()
        })
    }

    /// All living storages that ever got a place.
    pub(crate) fn alive(&self) -> Vec<Arc<Storage>> {
        let slots = self.slots.iter();
        slots.filter_map(|slot| slot.storage.upgrade()).collect()
    }

    /// The numbers of the last writes to all living storages.
    pub(crate) fn live_writes(&self) -> FxHashSet<u64> {
        let live = self
            .slots
            .iter()
            .filter(|slot| slot.storage.strong_count() > 0);
        live.map(|slot| slot.writes).collect()
    }

    /// Forgets a damaged poisoned zone, so that the damage is not reported twice.
    pub(crate) fn forget_grave(&mut self, zone: &Zone) {
        if let Some(watched) = &mut self.fences {
            watched.graves.remove(zone.place);
        }
    }

    /// A storage got a block.
    #[cold]
    pub(super) fn came(&mut self, index: u32) {
        let fence = self.fence_of(index);
        if let (Some(watched), Some(fence)) = (&mut self.fences, fence) {
            watched.changes.push(Change::Came(fence));
        }
    }

    /// The storage of a slot is about to lose its block.
    #[cold]
    pub(super) fn went(&mut self, index: u32) {
        let slot = &self.slots[index as usize];
        if let Some(place) = slot.place {
            self.left(place, slot.size_bytes, slot.tag);
        }
    }

    /// A moved storage has left its old place; the copy out of it is recorded.
    pub(crate) fn moved_away(&mut self, moved: &Moved) {
        let owner = self.owners.get(moved.block.index());
        let slot = owner.and_then(|&owner| self.slots.get(owner as usize));
        let tag = slot.map_or(0, |slot| slot.tag);
        self.left(moved.from, moved.size_bytes, tag);
    }

    fn left(&mut self, place: Place, size_bytes: u64, tag: u32) {
        let block = Zone {
            place,
            size_bytes: self.granted_bytes(size_bytes),
            from_bytes: 0,
            of_bytes: size_bytes,
            tag,
        };
        let fence = self.fence_in(&block);
        let (Some(watched), Some(_)) = (&mut self.fences, place.slab) else {
            return;
        };
        if watched.poisons {
            watched.graves.insert(block.clone());
        }
        watched.changes.push(Change::Went { block, fence });
    }

    /// Another storage took over the block as it is, so the last `Went` does not count.
    pub(super) fn stays(&mut self) {
        if let Some(watched) = &mut self.fences {
            if let Some(Change::Went { block, .. }) = watched.changes.pop() {
                watched.graves.remove(block.place);
            }
        }
    }

    /// A storage is about to get this range.
    #[cold]
    pub(super) fn reuse(&mut self, place: Place, size_bytes: u64) {
        let end = place.offset_bytes + self.granted_bytes(size_bytes);
        let (Some(watched), Some(slab)) = (&mut self.fences, place.slab) else {
            return;
        };
        let overlapping = (watched.graves).take_overlapping(slab, place.offset_bytes, end);
        for grave in overlapping {
            let whole = (
                grave.place.offset_bytes,
                grave.place.offset_bytes + grave.size_bytes,
            );
            let (from, to) = (whole.0.max(place.offset_bytes), whole.1.min(end));
            for (from, to) in [(whole.0, from), (to, whole.1)] {
                if from < to {
                    watched.graves.insert(part(&grave, from, to));
                }
            }
            watched.changes.push(Change::Reused(part(&grave, from, to)));
        }
    }

    /// Forgets a released slab, or all slabs (`None`).
    pub(super) fn unwatch(&mut self, slab: Option<u32>) {
        if let Some(watched) = &mut self.fences {
            watched.graves.forget(slab);
            if slab.is_none() {
                watched.changes.clear();
            }
        }
    }

    fn fence_of(&self, index: u32) -> Option<Zone> {
        let slot = &self.slots[index as usize];
        slot.block?;
        let block = Zone {
            place: slot.place?,
            size_bytes: self.granted_bytes(slot.size_bytes),
            from_bytes: 0,
            of_bytes: slot.size_bytes,
            tag: slot.tag,
        };
        Some(self.fence_in(&block))
    }

    fn fence_in(&self, block: &Zone) -> Zone {
        let end = block.place.offset_bytes + block.size_bytes;
        let from_bytes = match self.fence_bytes {
            0 => block.size_bytes,
            _ => block.of_bytes,
        };
        part(block, block.place.offset_bytes + from_bytes, end)
    }

    fn slab_number(&self, place: Place) -> Option<u32> {
        let slab = self.slabs.get(place.slab? as usize)?.as_ref()?;
        (slab.buffer == place.buffer).then_some(slab.number)
    }
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
