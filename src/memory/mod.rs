//! Storages and where they are: the table of slots, the slabs behind the places, the accounts.
//!
//! ```text
//!   Storage ──slot──► Slot { block, place } ──► Slab { buffer, last use } ──► BufferId
//!                          └── alloc::Pools decides which block
//! ```
//!
//! This room decides and counts. It never waits and never submits: where a slab must be created,
//! or a submission awaited, it says so, and the engine's walk does it. Everything here happens
//! under the engine's lock, in the hands of the one thread whose turn it is.

mod report;
mod storage;
mod text;

use std::sync::mpsc::Receiver;
use std::sync::{Arc, Weak};

use crate::alloc::{AllocError, BlockId, Growth, PoolConfig, Pools, SlabId};
use crate::driver::{BufferId, Caps};
use crate::error::{Error, Result};

pub(crate) use report::MemoryReport;
pub use report::{Holder, SlabUse};
pub(crate) use storage::TenantId;
pub(crate) use storage::{Dead, DeadList, Storage};
pub use storage::{Residency, Tag};
pub(crate) use text::{printable, printable_end};

/// Where a storage's bytes are at this moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) buffer: BufferId,
    /// A multiple of the device's storage offset alignment.
    pub(crate) offset_bytes: u64,
    /// Index of the slab; `None` in an imported buffer.
    slab: Option<u32>,
}

#[derive(Debug)]
struct Slot {
    storage: Weak<Storage>,
    size_bytes: u64,
    place: Option<Place>,
    block: Option<BlockId>,
    /// Why the bytes are not what they should be.
    poison: Option<Arc<Error>>,
}

#[derive(Debug)]
struct Slab {
    id: SlabId,
    buffer: BufferId,
    size_bytes: u64,
    /// The last submission that names it.
    last_serial: u64,
    /// The batch that is being encoded names it.
    in_batch: bool,
}

/// A slab that was given back while submissions still use it.
#[derive(Debug)]
struct Retiring {
    serial: u64,
    size_bytes: u64,
}

/// All storages of one engine.
#[derive(Debug)]
pub(crate) struct Memory {
    pools: Pools,
    slabs: Vec<Option<Slab>>,
    /// Slabs that the batch names.
    batch_slabs: Vec<u32>,
    slots: Vec<Slot>,
    free_slots: Vec<u32>,
    retiring: Vec<Retiring>,
    imported_bytes: u64,
    /// Buffers of the app that a storage has left.
    forgotten: Vec<BufferId>,
    peak_reserved_bytes: u64,
    /// No slab can be created: any hole will do, in slabs of any kind.
    pub(crate) anywhere: bool,
    /// Blocks freed so far.
    freed: u64,
    dead: Receiver<Dead>,
    dead_list: Arc<DeadList>,
}

impl Memory {
    pub(crate) fn new(caps: &Caps, dead_list: Arc<DeadList>, dead: Receiver<Dead>) -> Result<Self> {
        let config = PoolConfig::new(caps.offset_alignment_bytes, caps.max_buffer_bytes);
        let pools = Pools::new(config).map_err(|error| Error::Option {
            option: "device limits",
            reason: error.to_string(),
        })?;
        Ok(Memory {
            pools,
            slabs: Vec::new(),
            batch_slabs: Vec::new(),
            slots: Vec::new(),
            free_slots: Vec::new(),
            retiring: Vec::new(),
            imported_bytes: 0,
            forgotten: Vec::new(),
            peak_reserved_bytes: 0,
            anywhere: false,
            freed: 0,
            dead,
            dead_list,
        })
    }

    /// Frees the places of storages that are gone. Calls `kernel` for custom kernels that are.
    pub(crate) fn bury(&mut self, mut kernel: impl FnMut(u64)) {
        for _ in 0..self.dead_list.take_waiting() {
            match self.dead.try_recv() {
                Ok(Dead::Slot(slot)) => self.free_slot(slot),
                Ok(Dead::Kernel(id)) => kernel(id),
                Err(_) => break,
            }
        }
    }

    /// Gives a pending storage a block of the slabs there are. `false` when none has room.
    pub(crate) fn place(&mut self, storage: &Arc<Storage>) -> Result<bool, AllocError> {
        let block = match self.pools.allocate(storage.size_bytes()) {
            Ok(block) => block,
            Err(AllocError::NeedsSlab { .. }) if self.anywhere => {
                match self.pools.allocate_anywhere(storage.size_bytes()) {
                    Ok(block) => block,
                    Err(AllocError::NeedsSlab { .. }) => return Ok(false),
                    Err(error) => return Err(error),
                }
            }
            Err(AllocError::NeedsSlab { .. }) => return Ok(false),
            Err(error) => return Err(error),
        };
        let at = self.pools.block(block)?;
        let index = at.slab.index();
        let Some(Some(slab)) = self.slabs.get(index) else {
            self.pools.free(block)?;
            return Err(AllocError::StaleSlab(at.slab));
        };
        let place = Place {
            buffer: slab.buffer,
            offset_bytes: at.offset_bytes,
            slab: Some(index as u32),
        };
        let slot = self.new_slot(storage, Some(place), Some(block));
        storage.set_slot(slot, Residency::Device);
        Ok(true)
    }

    /// Takes back the place of a storage that was placed for a command that cannot run yet.
    pub(crate) fn unplace(&mut self, storage: &Storage) {
        if let Some(slot) = storage.slot() {
            storage.clear_slot();
            self.free_slot(slot);
        }
    }

    /// `heir` takes over the bytes of `dying`, which is the last command's to hold.
    pub(crate) fn hand_on(&mut self, dying: &Storage, heir: &Arc<Storage>) {
        if let Some(slot) = dying.slot() {
            self.slots[slot as usize].storage = Arc::downgrade(heir);
            heir.set_slot(slot, Residency::Device);
            dying.hand_on_slot();
        }
    }

    /// Enters a storage whose bytes lie in a buffer of the app.
    pub(crate) fn import(&mut self, storage: &Arc<Storage>, buffer: BufferId, offset_bytes: u64) {
        let place = Place {
            buffer,
            offset_bytes,
            slab: None,
        };
        self.imported_bytes += storage.size_bytes();
        let slot = self.new_slot(storage, Some(place), None);
        storage.set_slot(slot, Residency::Imported);
    }

    /// Who has imported a part of this range already, if somebody has.
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
        let mut overlapping = self.slots.iter().filter(overlaps);
        // One whose tensors are gone is no hindrance; it has only not been buried yet.
        let storage = overlapping.find_map(|slot| slot.storage.upgrade())?;
        Some(storage.tag())
    }

    /// The imported buffers that no storage lies in any more; the batch must not name them.
    pub(crate) fn take_forgotten_imports(&mut self) -> Vec<BufferId> {
        let mut forgotten = std::mem::take(&mut self.forgotten);
        forgotten.retain(|buffer| {
            let here = |slot: &Slot| slot.place.is_some_and(|place| place.buffer == *buffer);
            !self.slots.iter().any(here)
        });
        forgotten
    }

    /// Where a storage is, if it has a place.
    pub(crate) fn find(&self, storage: &Storage) -> Option<Place> {
        self.slots[storage.slot()? as usize].place
    }

    /// Is a storage in a slab of ours, with a value?
    pub(crate) fn in_slab(&self, storage: &Storage) -> bool {
        let slot = storage.slot().map(|slot| &self.slots[slot as usize]);
        slot.is_some_and(|slot| slot.block.is_some() && slot.poison.is_none())
    }

    /// Why a storage has no value, if that is so.
    pub(crate) fn poison_of(&self, storage: &Storage) -> Option<Arc<Error>> {
        self.slots[storage.slot()? as usize].poison.clone()
    }

    /// The storage has no value from now on; it keeps its place, if it has one.
    pub(crate) fn poison(&mut self, storage: &Arc<Storage>, cause: &Arc<Error>) {
        let slot = match storage.slot() {
            Some(slot) => slot,
            None => {
                let slot = self.new_slot(storage, None, None);
                storage.set_slot(slot, Residency::Poisoned);
                slot
            }
        };
        self.slots[slot as usize].poison = Some(cause.clone());
        storage.set_residency(Residency::Poisoned);
    }

    /// All of the storage is about to be written: what it held is of no interest.
    pub(crate) fn cure(&mut self, storage: &Storage) {
        let Some(index) = storage.slot() else { return };
        let slot = &mut self.slots[index as usize];
        if slot.poison.take().is_none() {
            return;
        }
        match slot.place {
            Some(place) if place.slab.is_none() => storage.set_residency(Residency::Imported),
            Some(_) => storage.set_residency(Residency::Device),
            None => self.unplace(storage),
        }
    }

    fn new_slot(
        &mut self,
        storage: &Arc<Storage>,
        place: Option<Place>,
        block: Option<BlockId>,
    ) -> u32 {
        let slot = Slot {
            storage: Arc::downgrade(storage),
            size_bytes: storage.size_bytes(),
            place,
            block,
            poison: None,
        };
        if let Some(index) = self.free_slots.pop() {
            self.slots[index as usize] = slot;
            return index;
        }
        self.slots.push(slot);
        (self.slots.len() - 1) as u32
    }

    fn free_slot(&mut self, index: u32) {
        let slot = &mut self.slots[index as usize];
        let imported = slot.place.take().filter(|place| place.slab.is_none());
        if let Some(place) = imported {
            self.imported_bytes -= slot.size_bytes;
            self.forgotten.push(place.buffer);
        }
        slot.poison = None;
        slot.storage = Weak::new();
        if let Some(block) = slot.block.take() {
            self.freed += 1;
            let freed = self.pools.free(block);
            debug_assert!(freed.is_ok(), "a slot held a stale block: {freed:?}");
        }
        self.free_slots.push(index);
    }

    /// How many blocks came free so far: as long as that is the same, so is the room.
    pub(crate) fn freed(&self) -> u64 {
        self.freed
    }

    /// The slab to create for a storage that found no room.
    pub(crate) fn growth(&self, size_bytes: u64) -> Result<Growth, AllocError> {
        self.pools.growth(size_bytes)
    }

    /// The empty slab that should go before a new one comes, and whether the batch names it:
    /// then the batch must be submitted first.
    pub(crate) fn next_release(&self, growth: &Growth) -> Option<(SlabId, bool)> {
        let id = self.pools.next_release(growth)?;
        Some((id, self.in_batch(id)))
    }

    /// Any empty slab, longest unused first, as [`next_release`](Self::next_release).
    pub(crate) fn next_empty(&self) -> Option<(SlabId, bool)> {
        let id = self.pools.empty_slabs().next()?;
        Some((id, self.in_batch(id)))
    }

    fn in_batch(&self, id: SlabId) -> bool {
        let slab = self.slabs.get(id.index()).and_then(Option::as_ref);
        slab.is_some_and(|slab| slab.in_batch)
    }

    /// Gives an empty slab back; the caller destroys the buffer.
    pub(crate) fn release(&mut self, id: SlabId, completed: u64) -> Option<BufferId> {
        self.pools.remove_slab(id).ok()?;
        let slab = self.slabs[id.index()].take()?;
        if slab.last_serial > completed {
            self.retiring.push(Retiring {
                serial: slab.last_serial,
                size_bytes: slab.size_bytes,
            });
        }
        Some(slab.buffer)
    }

    /// Adds the slab that was created for `growth`.
    pub(crate) fn add_slab(&mut self, growth: &Growth, buffer: BufferId) -> Result<(), AllocError> {
        let id = self.pools.add_slab(growth)?;
        let index = id.index();
        if self.slabs.len() <= index {
            self.slabs.resize_with(index + 1, || None);
        }
        self.slabs[index] = Some(Slab {
            id,
            buffer,
            size_bytes: growth.slab_bytes,
            last_serial: 0,
            in_batch: false,
        });
        let reserved_bytes = self.pools.reserved_bytes() + self.retiring_bytes();
        self.peak_reserved_bytes = self.peak_reserved_bytes.max(reserved_bytes);
        Ok(())
    }

    /// The batch names this place.
    pub(crate) fn touch(&mut self, place: Place) {
        let Some(index) = place.slab else { return };
        let slab = self.slabs[index as usize].as_mut();
        if let Some(slab) = slab.filter(|slab| !slab.in_batch) {
            slab.in_batch = true;
            self.batch_slabs.push(index);
        }
    }

    /// A submission of the app's names this place.
    pub(crate) fn used_by(&mut self, place: Place, serial: u64) {
        let Some(index) = place.slab else { return };
        if let Some(slab) = &mut self.slabs[index as usize] {
            slab.last_serial = slab.last_serial.max(serial);
        }
    }

    /// The batch was submitted with this serial, or (with none) it was refused.
    pub(crate) fn batch_ended(&mut self, serial: Option<u64>) {
        for index in self.batch_slabs.drain(..) {
            if let Some(slab) = &mut self.slabs[index as usize] {
                slab.in_batch = false;
                slab.last_serial = serial.unwrap_or(slab.last_serial);
            }
        }
    }

    /// Does the device have nothing more to do with the slab of this place? `None` if the place is
    /// in no slab of ours.
    pub(crate) fn idle(&self, place: Place, completed: u64) -> Option<bool> {
        let slab = self.slabs[place.slab? as usize].as_ref()?;
        Some(!slab.in_batch && slab.last_serial <= completed)
    }

    /// Takes note of how far the device has come.
    pub(crate) fn completed(&mut self, serial: u64) {
        self.retiring.retain(|retiring| retiring.serial > serial);
    }

    /// Bytes of slabs given back that the device still uses.
    pub(crate) fn retiring_bytes(&self) -> u64 {
        self.retiring
            .iter()
            .map(|retiring| retiring.size_bytes)
            .sum()
    }
}
