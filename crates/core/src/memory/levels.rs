//! What each change of a block means for the counters, the shares, the watermarks and the canaries.

use std::sync::Arc;

use super::Memory;
use super::canary::Zone;
use super::copies::Copies;
use super::history::Event;
use super::place::Place;
use super::share::ShareId;
use super::storage::{Residency, Storage};

impl Memory {
    /// The storage of a slot has a block from now on.
    pub(super) fn gained(&mut self, index: u32, storage: &Storage, place: Place) {
        let tag = self.census.tag_index(storage);
        let granted_bytes = self.slabs.granted_bytes(storage.size_bytes());
        let Some((class, slab)) = self.slabs.slab_of(place) else {
            return;
        };
        let slot = self.slots.at_mut(index);
        let is_back = slot.copies.is_some();
        (slot.tag, slot.share) = (tag, storage.share());
        if slot.share != ShareId::MAIN {
            self.shares.gained(slot.share, granted_bytes, is_back);
        }
        (self.census).gained(class, slot, granted_bytes, is_back);
        if self.events.is_on() {
            let (number, bytes) = (slot.number, slot.size_bytes);
            let offset_bytes = place.offset_bytes;
            self.events.push(match is_back {
                true => Event::Restore {
                    storage: number,
                    tag,
                    bytes,
                    slab,
                    offset_bytes,
                },
                false => Event::Alloc {
                    storage: number,
                    tag,
                    bytes,
                    slab,
                    offset_bytes,
                },
            });
        }
        if self.canaries.is_on() {
            self.canaries.came(slot, &self.slabs);
        }
        if self.watermarks.has_any() {
            let device_bytes = self.slabs.live_bytes();
            self.watermarks.rose(device_bytes, &self.shares);
        }
    }

    /// The storage of a slot is about to lose its block. Its bytes are then at `to`; `None` when
    /// the storage is gone.
    #[inline]
    pub(super) fn lost(&mut self, index: u32, to: Option<Residency>) {
        let slot = self.slots.at(index);
        let (number, tag, bytes, share) = (slot.number, slot.tag, slot.size_bytes, slot.share);
        let Some(place) = slot.place else { return };
        let Some((class, _)) = self.slabs.slab_of(place) else {
            return;
        };
        if self.canaries.is_on() {
            let block = Zone::of_block(place, bytes, tag, &self.slabs);
            self.canaries.went(block, &self.slabs);
        }
        let granted_bytes = self.slabs.granted_bytes(bytes);
        if share != ShareId::MAIN {
            self.shares.lost(share, granted_bytes, to.is_some());
        }
        if self.watermarks.has_any() {
            let device_bytes = self.slabs.live_bytes();
            (self.watermarks).falls(share, granted_bytes, device_bytes, &self.shares);
        }
        (self.census).lost(class, slot, granted_bytes, to.is_some());
        if self.events.is_on() {
            self.events.push(match to {
                Some(to) => Event::Evict {
                    storage: number,
                    bytes,
                    to,
                },
                None => Event::Free {
                    storage: number,
                    bytes,
                },
            });
        }
    }

    /// The slot now belongs to another storage.
    pub(super) fn donated(&mut self, index: u32, heir: &Storage) {
        let tag = self.census.tag_index(heir);
        let number = self.slots.next_number();
        let slot = self.slots.at_mut(index);
        let (before, donor, bytes) = (slot.tag, slot.number, slot.size_bytes);
        (slot.tag, slot.number) = (tag, number);
        if slot.block.is_none() {
            return;
        }
        self.census.retagged(before, tag, bytes);
        self.events.push(Event::Donate {
            storage: donor,
            heir: number,
            tag,
            bytes,
        });
    }

    /// A block has been moved.
    pub(super) fn was_moved(&mut self, index: u32, from: Place, to: Place) {
        let slot = self.slots.at(index);
        let (number, bytes) = (slot.number, slot.size_bytes);
        let (Some((before, _)), Some((after, slab))) =
            (self.slabs.slab_of(from), self.slabs.slab_of(to))
        else {
            return;
        };
        let granted_bytes = self.slabs.granted_bytes(bytes);
        self.census.moved(before, after, granted_bytes);
        self.events.push(Event::Move {
            storage: number,
            bytes,
            slab,
            offset_bytes: to.offset_bytes,
        });
        if self.canaries.is_on() {
            self.canaries.came(self.slots.at(index), &self.slabs);
        }
    }

    /// A storage was named, so it counts for another tag.
    pub(crate) fn renamed(&mut self, storage: &Storage) {
        let Some(index) = storage.slot() else { return };
        let after = self.census.tag_index(storage);
        let slot = self.slots.at_mut(index);
        let (before, bytes) = (slot.tag, slot.size_bytes);
        slot.tag = after;
        if slot.block.is_some() && before != after {
            self.census.retagged(before, after, bytes);
        }
    }

    /// Adds a storage off the device, with its copies.
    pub(crate) fn back(&mut self, storage: &Arc<Storage>, copies: Copies) {
        let tag = self.census.tag_index(storage);
        let index = self.slots.back(storage, copies);
        self.slots.at_mut(index).tag = tag;
    }

    /// Bytes were uploaded to a storage.
    pub(crate) fn uploaded(&mut self, storage: &Storage, bytes: u64) {
        if let Some(storage) = self.number_of(storage) {
            self.events.push(Event::Upload { storage, bytes });
        }
    }

    /// Bytes of a storage were read by the host.
    pub(crate) fn was_read(&mut self, storage: &Storage, bytes: u64) {
        if let Some(storage) = self.number_of(storage) {
            self.events.push(Event::Read { storage, bytes });
        }
    }

    /// The number of a storage in events, while events are recorded.
    fn number_of(&self, storage: &Storage) -> Option<u64> {
        let slot = (self.slots.row(storage)).filter(|_| self.events.is_on())?;
        Some(slot.number)
    }
}
