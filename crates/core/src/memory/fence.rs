//! What lies between storages while bugs are looked for: a fence behind each, poison where one was.
//!
//! ```text
//!   │ storage │pad│  fence  │ storage │pad│  fence  │  poison (was a storage)  │ …
//!                 └── at least FENCE_BYTES, up to the end of the granule
//! ```
//!
//! Blocks are neighbours, so the fence behind one is the fence before the next. This module only
//! says what has changed, in order; the engine fills and looks, by ops that stand in the queue
//! where the change was.

use std::collections::BTreeMap;
use std::sync::Arc;

use rustc_hash::FxHashSet;

use super::{Memory, Moved, Place, Storage, Tag};

/// A fence has at least so many bytes.
pub(crate) const FENCE_BYTES: u64 = 256;

/// What fences and freed blocks hold, word by word: a NaN in floats of every width, so that what is
/// computed from it shows.
pub(crate) const PATTERN: u32 = 0xffed_ffed;

/// A range of a slab that should hold the pattern.
#[derive(Clone, Debug)]
pub(crate) struct Zone {
    /// Its first byte.
    pub(crate) place: Place,
    pub(crate) size_bytes: u64,
    /// Where it begins, from the beginning of the block that it is a part of.
    pub(crate) from_bytes: u64,
    /// The size of the storage whose block that is, or was.
    pub(crate) of_bytes: u64,
    /// Who made that storage.
    pub(crate) tag: u32,
}

impl Zone {
    /// Slab by slab, in the order of places.
    pub(crate) fn order(&self) -> (Option<u32>, u64) {
        (self.place.slab, self.place.offset_bytes)
    }
}

/// What happened to a block.
#[derive(Debug)]
pub(crate) enum Change {
    /// A storage lies in it: this is its fence.
    Came(Zone),
    /// No longer: the whole block, and of it the fence.
    Went { block: Zone, fence: Zone },
    /// Some of what was freed before is about to be somebody else's.
    Reused(Zone),
}

/// What is watched.
#[derive(Debug)]
pub(super) struct Fences {
    /// Are freed blocks poisoned?
    poisons: bool,
    changes: Vec<Change>,
    /// What was freed and not given out again, by slab and offset.
    graves: BTreeMap<(u32, u64), Zone>,
}

impl Memory {
    /// From now on blocks have fences, and what is freed is poisoned. Before there is any.
    pub(crate) fn watch_blocks(&mut self, fences: bool, poisons: bool) {
        self.fence_bytes = if fences { FENCE_BYTES } else { 0 };
        self.fences = (fences || poisons).then(|| {
            Box::new(Fences {
                poisons,
                changes: Vec::new(),
                graves: BTreeMap::new(),
            })
        });
    }

    /// Has something changed that was not attended to?
    #[inline]
    pub(crate) fn has_changes(&self) -> bool {
        (self.fences.as_ref()).is_some_and(|fences| !fences.changes.is_empty())
    }

    /// What has changed, in order; it is the caller's to attend to.
    pub(crate) fn take_changes(&mut self) -> Vec<Change> {
        let fences = self.fences.as_mut();
        let mut changes =
            fences.map_or_else(Vec::new, |fences| std::mem::take(&mut fences.changes));
        // Of a slab that is gone there is nothing to see.
        changes.retain(|change| {
            let (Change::Came(zone) | Change::Reused(zone) | Change::Went { block: zone, .. }) =
                change;
            self.slab_number(zone.place).is_some()
        });
        changes
    }

    /// Who made what a zone is of.
    pub(crate) fn tag_of(&self, zone: &Zone) -> Option<Tag> {
        let entries = self.census.tags.entries();
        entries.get(zone.tag as usize)?.tag.clone()
    }

    /// Who made what lies right behind a zone.
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

    /// The fence behind a storage, from a byte of it on, if it has one.
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

    /// Every fence, and all that is poisoned, by slab.
    pub(crate) fn zones(&self) -> (Vec<Zone>, Vec<Zone>) {
        let Some(watched) = &self.fences else {
            return (Vec::new(), Vec::new());
        };
        let mut fences = Vec::new();
        if self.fence_bytes > 0 {
            let slots = 0..self.slots.len() as u32;
            fences.extend(slots.filter_map(|index| self.fence_of(index)));
        }
        (fences, watched.graves.values().cloned().collect())
    }

    /// What was filled was not, since a submission was refused: fences are made anew, and nothing
    /// is known of what was freed.
    pub(crate) fn fence_anew(&mut self) {
        let (fences, _) = self.zones();
        if let Some(watched) = &mut self.fences {
            watched.graves.clear();
            watched.changes = fences.into_iter().map(Change::Came).collect();
        }
    }

    /// Whatever is a fence of what was looked at is to be made anew, so that damage is not seen
    /// again.
    pub(crate) fn mend(&mut self, zone: &Zone) {
        let is_it = |fence: &Zone| fence.place == zone.place && fence.size_bytes == zone.size_bytes;
        let slots = 0..self.slots.len() as u32;
        let fence = slots.filter_map(|index| self.fence_of(index)).find(is_it);
        if let (Some(watched), Some(fence)) = (&mut self.fences, fence) {
            watched.changes.push(Change::Came(fence));
        }
    }

    /// Has a storage a block, and nobody has written to it?
    pub(crate) fn is_unwritten(&self, storage: &Storage) -> bool {
        let slot = storage.slot().map(|index| &self.slots[index as usize]);
        slot.is_some_and(|slot| {
            slot.block.is_some() && slot.written_in == 0 && slot.copies.is_none()
        })
    }

    /// All storages that were ever given a place, and are alive.
    pub(crate) fn alive(&self) -> Vec<Arc<Storage>> {
        let slots = self.slots.iter();
        slots.filter_map(|slot| slot.storage.upgrade()).collect()
    }

    /// The last writes to all storages that there are.
    pub(crate) fn live_writes(&self) -> FxHashSet<u64> {
        let live = self
            .slots
            .iter()
            .filter(|slot| slot.storage.strong_count() > 0);
        live.map(|slot| slot.writes).collect()
    }

    /// What was seen to be damaged is not to be seen again.
    pub(crate) fn forget_grave(&mut self, zone: &Zone) {
        if let (Some(watched), Some(slab)) = (&mut self.fences, zone.place.slab) {
            watched.graves.remove(&(slab, zone.place.offset_bytes));
        }
    }

    /// A storage has a block from now on.
    #[cold]
    pub(super) fn came(&mut self, index: u32) {
        let fence = self.fence_of(index);
        if let (Some(watched), Some(fence)) = (&mut self.fences, fence) {
            watched.changes.push(Change::Came(fence));
        }
    }

    /// The storage of a slot loses its block, which it still has.
    #[cold]
    pub(super) fn went(&mut self, index: u32) {
        let slot = &self.slots[index as usize];
        if let Some(place) = slot.place {
            self.left(place, slot.size_bytes, slot.tag);
        }
    }

    /// A storage that was moved has left its old place, from which it was copied.
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
        let (Some(watched), Some(slab)) = (&mut self.fences, place.slab) else {
            return;
        };
        if watched.poisons {
            let at = (slab, place.offset_bytes);
            watched.graves.insert(at, block.clone());
        }
        watched.changes.push(Change::Went { block, fence });
    }

    /// A storage has lost its block to another one that takes it as it is.
    pub(super) fn stays(&mut self) {
        if let Some(watched) = &mut self.fences {
            if let Some(Change::Went { block, .. }) = watched.changes.pop() {
                let slab = block.place.slab.unwrap_or(0);
                watched.graves.remove(&(slab, block.place.offset_bytes));
            }
        }
    }

    /// This range is about to be somebody's.
    #[cold]
    pub(super) fn reuse(&mut self, place: Place, size_bytes: u64) {
        let end = place.offset_bytes + self.granted_bytes(size_bytes);
        let (Some(watched), Some(slab)) = (&mut self.fences, place.slab) else {
            return;
        };
        let before = watched.graves.range(..(slab, end)).rev();
        let overlapping = before.take_while(|((of, at), grave)| {
            *of == slab && at + grave.size_bytes > place.offset_bytes
        });
        let overlapping: Vec<_> = overlapping.map(|(at, _)| *at).collect();
        for at in overlapping {
            let Some(grave) = watched.graves.remove(&at) else {
                continue;
            };
            let (from, to) = (
                at.1.max(place.offset_bytes),
                (at.1 + grave.size_bytes).min(end),
            );
            for (from, to) in [(at.1, from), (to, at.1 + grave.size_bytes)] {
                if from < to {
                    watched.graves.insert((slab, from), part(&grave, from, to));
                }
            }
            watched.changes.push(Change::Reused(part(&grave, from, to)));
        }
    }

    /// A slab is given back, or all are (`None`).
    pub(super) fn unwatch(&mut self, slab: Option<u32>) {
        if let Some(watched) = &mut self.fences {
            watched
                .graves
                .retain(|(of, _), _| slab.is_some_and(|slab| slab != *of));
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

/// What of a zone lies between two offsets in its slab.
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
