//! The table of storages: where each one is, whether it has a value, and when it was used.

mod candidates;
mod copies;
mod rematerialize;

use std::sync::{Arc, Weak};

use rustc_hash::FxHashSet;

pub(crate) use self::candidates::Candidate;
pub(crate) use self::rematerialize::Whereabouts;
use super::copies::{Copies, Gone};
use super::place::Place;
use super::share::ShareId;
use super::storage::{Residency, Storage};
use super::tag::Tag;
use super::victims::{Clock, Uses};
use crate::alloc::BlockId;
use crate::driver::BufferId;
use crate::error::Error;
use crate::number_map::NumberMap;

/// One row of the table. A free slot belongs to no storage.
#[derive(Debug, Default)]
pub(super) struct Slot {
    pub(super) storage: Weak<Storage>,
    pub(super) size_bytes: u64,
    pub(super) place: Option<Place>,
    pub(super) block: Option<BlockId>,
    /// Why the storage has no value.
    pub(super) poison: Option<Arc<Error>>,
    /// The copies that are not on the device; most storages have none.
    pub(super) copies: Option<Box<Copies>>,
    pub(super) uses: Uses,
    /// The number of the last write to the storage. No two writes share a number.
    pub(super) writes: u64,
    /// The number of the last batch that writes to the storage; 0 for none.
    pub(super) written_in: u64,
    /// The storage's number. No other storage has it.
    pub(super) number: u64,
    /// Index of the tag of the storage's maker.
    pub(super) tag: u32,
    /// The share of the storage that has the block.
    pub(super) share: ShareId,
    /// The app binds the storage apart from others, which lie in other slabs.
    pub(super) is_apart: bool,
    /// The storage has left the device at least once.
    pub(super) was_evicted: bool,
}

impl Slot {
    /// Notes a write. The copies are out of date now; the caller drops them.
    pub(super) fn written(&mut self, number: u64) -> Option<Box<Copies>> {
        self.writes = number;
        self.copies.take()
    }

    /// Where the bytes of the storage are.
    pub(super) fn residency(&self) -> Residency {
        match (&self.poison, self.place) {
            (Some(_), _) => Residency::Poisoned,
            (None, Some(place)) if place.slab.is_none() => Residency::Imported,
            (None, Some(_)) => Residency::Device,
            (None, None) => (self.copies.as_deref()).map_or(Residency::Pending, Copies::residency),
        }
    }
}

/// Storages of a dry run that stand for those of the device, by the addresses of those. The weak
/// handles keep the addresses from being reused.
pub(crate) type Fakes = NumberMap<(Weak<Storage>, Arc<Storage>)>;

/// The table.
#[derive(Debug, Default)]
pub(crate) struct Slots {
    table: Vec<Slot>,
    free: Vec<u32>,
    /// Commands encoded so far: the clock of all uses.
    clock: Clock,
    /// The number of the batch that is being encoded, from 1.
    batch: u64,
    /// Writes so far, to all storages. Each write gets the next number. A number never repeats,
    /// even when a slot passes to another storage or a storage gets a new slot.
    writes: u64,
    /// The last number given to a storage.
    number: u64,
    /// Copies that are out of date. Dropping them may take a while.
    gone: Gone,
    /// Buffers of the app that no storage refers to any more.
    pub(super) forgotten: Vec<BufferId>,
}

impl Slots {
    pub(super) fn new() -> Self {
        Slots {
            batch: 1,
            ..Slots::default()
        }
    }

    /// The table of a dry run, with the fakes of these storages, and the rows of storages without
    /// a fake: they are to be freed.
    pub(super) fn fake(&self, fakes: &Fakes) -> (Slots, Vec<u32>) {
        let mut without_fake = Vec::new();
        let rows = (0..).zip(&self.table).map(|(index, slot)| {
            let storage = slot.storage.upgrade();
            let fake = storage.and_then(|storage| fakes.get(&(storage.address() as u64)));
            let is_in_use = slot.block.is_some() || slot.place.is_some() || slot.copies.is_some();
            match fake {
                Some((_, fake)) => fake.set_slot(index, slot.residency()),
                None if is_in_use || slot.poison.is_some() => without_fake.push(index),
                None => {}
            }
            Slot {
                storage: fake.map_or(Weak::new(), |(_, fake)| Arc::downgrade(fake)),
                poison: slot.poison.clone(),
                copies: None,
                written_in: 0,
                ..*slot
            }
        });
        let slots = Slots {
            table: rows.collect(),
            free: self.free.clone(),
            clock: self.clock,
            batch: 1,
            writes: self.writes,
            number: self.number,
            ..Slots::default()
        };
        (slots, without_fake)
    }

    /// The row of this index.
    #[inline]
    pub(super) fn at(&self, index: u32) -> &Slot {
        &self.table[index as usize]
    }

    #[inline]
    pub(super) fn at_mut(&mut self, index: u32) -> &mut Slot {
        &mut self.table[index as usize]
    }

    /// All rows, with those of no storage.
    pub(super) fn rows(&self) -> &[Slot] {
        &self.table
    }

    pub(super) fn rows_mut(&mut self) -> &mut [Slot] {
        &mut self.table
    }

    /// The row of a storage that got one.
    #[inline]
    pub(super) fn row(&self, storage: &Storage) -> Option<&Slot> {
        storage.slot().map(|index| &self.table[index as usize])
    }

    #[inline(always)] // As `Memory::take_block`.
    pub(super) fn add(
        &mut self,
        storage: &Arc<Storage>,
        place: Option<Place>,
        block: Option<BlockId>,
    ) -> u32 {
        let index = self.free.pop().unwrap_or_else(|| {
            self.table.push(Slot::default());
            (self.table.len() - 1) as u32
        });
        self.writes += 1;
        let number = self.next_number();
        // `free` left all other fields empty.
        let slot = &mut self.table[index as usize];
        (slot.tag, slot.share) = (0, ShareId::MAIN);
        slot.storage = Arc::downgrade(storage);
        slot.size_bytes = storage.size_bytes();
        slot.place = place;
        slot.block = block;
        slot.uses = Uses::new(self.clock);
        slot.writes = self.writes;
        slot.written_in = 0;
        slot.number = number;
        index
    }

    /// Empties a row, which belongs to no storage from now on. Returns its block, which is the
    /// caller's, and whether the storage lay in a buffer of the app.
    #[inline]
    pub(super) fn free(&mut self, index: u32) -> (Option<BlockId>, bool) {
        let slot = &mut self.table[index as usize];
        let imported = slot.place.take().filter(|place| place.slab.is_none());
        if let Some(place) = imported {
            self.forgotten.push(place.buffer);
        }
        slot.poison = None;
        (slot.is_apart, slot.was_evicted) = (false, false);
        if let Some(past) = slot.copies.take() {
            self.gone.push(past);
        }
        slot.storage = Weak::new();
        self.free.push(index);
        (slot.block.take(), imported.is_some())
    }

    /// Has a slot a storage that may be moved?
    pub(super) fn is_unpinned(&self, index: u32) -> bool {
        let slot = self.table.get(index as usize);
        let storage = slot.and_then(|slot| slot.storage.upgrade());
        storage.is_some_and(|storage| storage.pins() == 0)
    }

    /// A number for a storage, which no other storage has.
    pub(super) fn next_number(&mut self) -> u64 {
        self.number += 1;
        self.number
    }

    /// The command that is being encoded names the storage, to write to it or only to read it.
    /// Returns the storage's place.
    #[inline]
    pub(super) fn record_operand(&mut self, storage: &Storage, is_written: bool) -> Option<Place> {
        let slot = &mut self.table[storage.slot()? as usize];
        slot.uses.touch(self.clock);
        if is_written {
            slot.written_in = self.batch;
            self.writes += 1;
            if let Some(past) = slot.written(self.writes) {
                self.gone.push(past);
            }
        }
        slot.place
    }

    /// The next batch begins.
    pub(super) fn next_batch(&mut self) {
        self.batch += 1;
    }

    /// Drops copies later, where no thread waits.
    pub(super) fn forget(&mut self, copies: Option<Box<Copies>>) {
        self.gone.extend(copies);
    }

    /// The clock of uses, in commands.
    pub(crate) fn now(&self) -> Clock {
        self.clock
    }

    /// A command has been encoded, so the clock advances.
    pub(crate) fn tick(&mut self) {
        self.clock = self.clock.wrapping_add(1);
    }

    /// A command uses the storage, wherever it is.
    pub(crate) fn used(&mut self, storage: &Storage) {
        if let Some(index) = storage.slot() {
            self.table[index as usize].uses.touch(self.clock);
        }
    }

    /// A write to the storage has been encoded, so its copies are out of date.
    pub(crate) fn written(&mut self, storage: &Storage) {
        if let Some(index) = storage.slot() {
            self.writes += 1;
            let slot = &mut self.table[index as usize];
            self.gone.extend(slot.written(self.writes));
        }
    }

    /// The storages that the batch writes to.
    pub(crate) fn written_in_batch(&self) -> Vec<Arc<Storage>> {
        let is_written = |slot: &Slot| slot.written_in == self.batch;
        self.storages(is_written).collect()
    }

    /// The number of the last write to a storage; 0 for none. No two writes share a number.
    pub(crate) fn writes_to(&self, storage: &Storage) -> u64 {
        let slot = self.row(storage);
        slot.map_or(0, |slot| slot.writes)
    }

    /// The numbers of the last writes to all living storages.
    pub(crate) fn live_writes(&self) -> FxHashSet<u64> {
        let live = self.table.iter();
        let live = live.filter(|slot| slot.storage.strong_count() > 0);
        live.map(|slot| slot.writes).collect()
    }

    /// Does the storage have a block that no command has written to?
    pub(crate) fn is_unwritten(&self, storage: &Storage) -> bool {
        let slot = self.row(storage);
        slot.is_some_and(|slot| {
            slot.block.is_some() && slot.written_in == 0 && slot.copies.is_none()
        })
    }

    /// The living storages whose rows are `wanted`.
    fn storages(&self, wanted: impl Fn(&Slot) -> bool) -> impl Iterator<Item = Arc<Storage>> {
        let slots = self.table.iter().filter(move |slot| wanted(slot));
        slots.filter_map(|slot| slot.storage.upgrade())
    }

    /// The pinned storages in slabs, with their rows. O(storages).
    pub(super) fn pinned(&self) -> impl Iterator<Item = (&Slot, Arc<Storage>)> {
        let in_slabs = self.table.iter().filter(|slot| slot.block.is_some());
        let living = in_slabs.filter_map(|slot| Some((slot, slot.storage.upgrade()?)));
        living.filter(|(_, storage)| storage.pins() > 0)
    }

    /// All living storages that ever got a place.
    pub(crate) fn alive(&self) -> Vec<Arc<Storage>> {
        self.storages(|_| true).collect()
    }

    /// Where a storage is, if it has a place.
    pub(crate) fn find(&self, storage: &Storage) -> Option<Place> {
        self.row(storage)?.place
    }

    /// The block of a storage that lies in a slab.
    pub(crate) fn block_of(&self, storage: &Storage) -> Option<BlockId> {
        self.row(storage)?.block
    }

    /// The app binds a storage apart from others. That ends when it leaves its block.
    pub(crate) fn keep_apart(&mut self, storage: &Storage) {
        if let Some(index) = storage.slot() {
            self.at_mut(index).is_apart = true;
        }
    }

    /// Does the storage lie in a slab, with a value?
    pub(crate) fn in_slab(&self, storage: &Storage) -> bool {
        let slot = self.row(storage);
        slot.is_some_and(|slot| slot.block.is_some() && slot.poison.is_none())
    }

    /// Does the storage lie in a buffer of the app?
    pub(crate) fn is_imported(&self, storage: &Storage) -> bool {
        let slot = self.row(storage);
        slot.is_some_and(|slot| slot.place.is_some() && slot.block.is_none())
    }

    /// The maker of an import that overlaps this range, if there is one.
    pub(crate) fn overlapping_import(
        &self,
        buffer: BufferId,
        offset_bytes: u64,
        size_bytes: u64,
    ) -> Option<Tag> {
        let overlaps = |slot: &&Slot| {
            slot.place.is_some_and(|place| {
                place.slab.is_none()
                    && place.buffer == buffer
                    && place.offset_bytes < offset_bytes + size_bytes
                    && offset_bytes < place.offset_bytes + slot.size_bytes
            })
        };
        let mut overlapping = self.table.iter().filter(overlaps);
        // An import without holders is no obstacle; it only waits on the dead list.
        let storage = overlapping.find_map(|slot| slot.storage.upgrade())?;
        Some(storage.tag())
    }

    /// The imported buffers that no storage lies in any more. The batch must not name them.
    pub(crate) fn take_forgotten_imports(&mut self) -> Vec<BufferId> {
        let mut forgotten = std::mem::take(&mut self.forgotten);
        forgotten.retain(|buffer| {
            let here = |slot: &Slot| slot.place.is_some_and(|place| place.buffer == *buffer);
            !self.table.iter().any(here)
        });
        forgotten
    }

    /// Why the storage has no value, if it has none.
    pub(crate) fn poison_of(&self, storage: &Storage) -> Option<Arc<Error>> {
        self.row(storage)?.poison.clone()
    }

    /// The storage has no value from now on. It keeps its place, if it has one.
    pub(crate) fn poison(&mut self, storage: &Arc<Storage>, cause: &Arc<Error>) {
        let slot = match storage.slot() {
            Some(slot) => slot,
            None => {
                let slot = self.add(storage, None, None);
                storage.set_slot(slot, Residency::Poisoned);
                slot
            }
        };
        self.table[slot as usize].poison = Some(cause.clone());
        // Rematerializers that read this storage need the value from before.
        self.written(storage);
        storage.set_residency(Residency::Poisoned);
    }

    /// Every storage is off the device, which is lost with every place on it. Returns those that
    /// had a place, and that the loss concerns.
    pub(super) fn leave_device(&mut self) -> Vec<Arc<Storage>> {
        self.forgotten.clear();
        let mut had_place = Vec::new();
        for slot in &mut self.table {
            slot.block = None;
            let was_there = slot.place.take().is_some();
            let Some(storage) = slot.storage.upgrade() else {
                continue;
            };
            // The submission that met the loss has already poisoned the storages that it should
            // have written.
            let is_lost = |error: &Arc<Error>| matches!(**error, Error::DeviceLost { .. });
            let is_concerned = slot.poison.as_ref().is_none_or(is_lost);
            if is_concerned && was_there && slot.copies.is_none() {
                had_place.push(storage);
            }
        }
        had_place
    }
}
