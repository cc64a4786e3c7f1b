//! How storages get blocks, leave them, and pass them on.
//!
//! ```text
//!             evict (copies are valid)
//!   Device ─────────────────────────────► Host │ Store │ Disk │ Backed
//!     ▲                                          │
//!     └─── restore (its bytes are on their way) ─┘
//! ```
//!
//! A storage leaves the device only after its bytes arrived elsewhere, or once the copy that moves
//! them is in the batch. It is resident again only once the copy that restores it is there. So its
//! state stays true, whatever is dropped, refused or lost in between.

use std::sync::Arc;

use rustc_hash::FxHashSet;

use super::Memory;
use super::canary::Zone;
use super::copies::Copies;
use super::place::{HoleChoice, Place};
use super::share::ShareId;
use super::shares::Hindrance;
use super::storage::{Residency, Storage};
use super::victims::Uses;
use crate::alloc::{AllocError, BlockId, Spot};
use crate::driver::BufferId;
use crate::error::Error;

/// A moved block: the copy to make.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moved {
    pub(crate) block: BlockId,
    pub(crate) from: Place,
    pub(crate) to: Place,
    /// A multiple of 16.
    pub(crate) size_bytes: u64,
}

/// A block for a storage that is being restored. Pass it to [`Memory::finish_restore`] or
/// [`Memory::cancel_restore`].
#[derive(Debug)]
pub(crate) struct PendingRestore {
    block: BlockId,
    size_bytes: u64,
    pub(crate) place: Place,
}

impl Memory {
    /// Gives a storage without a place a block of an existing slab. `None` when no slab has room.
    /// The block holds old content, not the bytes of an evicted storage.
    #[inline]
    pub(crate) fn place(
        &mut self,
        storage: &Arc<Storage>,
        fit: HoleChoice,
    ) -> Result<Option<Place>, AllocError> {
        let Some((block, place)) = self.take_block(storage, fit)? else {
            return Ok(None);
        };
        self.settle_in(storage, block, place);
        Ok(Some(place))
    }

    /// A block of an existing slab, and its place. `None` if no slab has room, or the storage's
    /// share may not take it.
    #[inline(always)] // Every new tensor comes by here, and calls are a tenth of its cost.
    fn take_block(
        &mut self,
        storage: &Storage,
        fit: HoleChoice,
    ) -> Result<Option<(BlockId, Place)>, AllocError> {
        let size_bytes = storage.size_bytes();
        let granted_bytes = self.slabs.granted_bytes(size_bytes);
        let is_free = self.shares.is_empty() || self.shares.is_free(storage.share(), granted_bytes);
        if !is_free && self.hindrance(storage).is_some() {
            return Ok(None);
        }
        let taken = self.slabs.take(size_bytes, fit)?;
        if let Some((_, place)) = taken {
            self.reuse(place, granted_bytes, storage.share());
        }
        Ok(taken)
    }

    /// What hinders a storage from taking a block that is free.
    #[cold]
    pub(crate) fn hindrance(&self, storage: &Storage) -> Option<Hindrance> {
        let granted_bytes = self.slabs.granted_bytes(storage.size_bytes());
        (self.shares).hindrance(storage.share(), granted_bytes, self.slabs.live_bytes())
    }

    /// The storage lies in this block from now on.
    #[inline]
    fn settle_in(&mut self, storage: &Arc<Storage>, block: BlockId, place: Place) {
        let index = match storage.slot() {
            Some(index) => {
                let slot = self.slots.at_mut(index);
                slot.place = Some(place);
                slot.block = Some(block);
                slot.is_apart = false;
                slot.size_bytes = storage.size_bytes();
                // The slot may have passed to another storage.
                if let Some(owner) = slot.storage.upgrade() {
                    owner.set_residency(Residency::Device);
                }
                index
            }
            None => {
                let index = self.slots.add(storage, Some(place), Some(block));
                storage.set_slot(index, Residency::Device);
                index
            }
        };
        self.slabs.set_owner(block, index);
        self.gained(index, storage, place);
    }

    /// Takes the place back from a storage whose command cannot run yet.
    pub(crate) fn unplace(&mut self, storage: &Storage) {
        let Some(index) = storage.slot() else { return };
        if self.slots.at(index).copies.is_some() {
            self.evict_clean(storage);
        } else {
            storage.clear_slot();
            self.free_slot(index);
        }
    }

    /// A command drops an operand. If nothing else holds the storage, its place is free at once.
    pub(crate) fn release_operand(&mut self, storage: Arc<Storage>) {
        if let Some(mut storage) = Arc::into_inner(storage) {
            if let Some(slot) = storage.take_slot() {
                self.free_slot(slot);
            }
        }
    }

    #[inline]
    pub(super) fn free_slot(&mut self, index: u32) {
        let slot = self.slots.at(index);
        let size_bytes = slot.size_bytes;
        if slot.block.is_some() {
            self.lost(index, None);
        }
        let (block, was_imported) = self.slots.free(index);
        if was_imported {
            self.census.sums.imported_bytes.lower(size_bytes);
        }
        if let Some(block) = block {
            self.slabs.free(block, size_bytes);
        }
    }

    /// `heir` takes over the bytes of `donor`, which only the current command holds.
    pub(crate) fn donate(&mut self, donor: &Storage, heir: &Arc<Storage>) {
        if let Some(slot) = donor.slot() {
            let now = self.slots.now();
            let handed = self.slots.at_mut(slot);
            handed.storage = Arc::downgrade(heir);
            handed.uses = Uses::new(now);
            (handed.is_apart, handed.was_evicted) = (false, false);
            let copies = handed.copies.take();
            self.slots.forget(copies);
            self.donated(slot, heir);
            heir.set_slot(slot, Residency::Device);
            donor.donate_slot();
        }
    }

    /// Undoes `donate`: the command did not run. A storage that took over the bytes of `donor` has
    /// no place.
    pub(crate) fn take_back(&mut self, donor: &Arc<Storage>) {
        let Some(index) = donor.slot().filter(|_| donor.is_donated()) else {
            return;
        };
        let slot = self.slots.at_mut(index);
        let heir = std::mem::replace(&mut slot.storage, Arc::downgrade(donor));
        let residency = slot.residency();
        self.donated(index, donor);
        donor.set_slot(index, residency);
        if let Some(heir) = heir.upgrade() {
            heir.clear_slot();
        }
    }

    /// Adds a storage whose bytes lie in a buffer of the app.
    pub(crate) fn import(&mut self, storage: &Arc<Storage>, buffer: BufferId, offset_bytes: u64) {
        let place = Place {
            buffer,
            offset_bytes,
            slab: None,
        };
        self.census.sums.imported_bytes.raise(storage.size_bytes());
        let slot = self.slots.add(storage, Some(place), None);
        storage.set_slot(slot, Residency::Imported);
    }

    /// A block for a storage that is being restored; `None` when there is no room.
    pub(crate) fn begin_restore(
        &mut self,
        storage: &Storage,
        fit: HoleChoice,
    ) -> Result<Option<PendingRestore>, AllocError> {
        let size_bytes = storage.size_bytes();
        let taken = self.take_block(storage, fit)?;
        Ok(taken.map(|(block, place)| PendingRestore {
            block,
            size_bytes,
            place,
        }))
    }

    /// Others run in the middle of the restore. Its block counts for this share until it
    /// [goes on](Self::resume_restore).
    pub(crate) fn suspend_restore(&mut self, share: ShareId, pending_restore: &PendingRestore) {
        if share != ShareId::MAIN {
            let granted_bytes = self.slabs.granted_bytes(pending_restore.size_bytes);
            self.shares.gained(share, granted_bytes, false);
        }
    }

    /// The restore goes on, or is cancelled next. Returns whether the share may have the block:
    /// limits may have changed.
    pub(crate) fn resume_restore(
        &mut self,
        share: ShareId,
        pending_restore: &PendingRestore,
    ) -> bool {
        let granted_bytes = self.slabs.granted_bytes(pending_restore.size_bytes);
        if share != ShareId::MAIN {
            self.shares.lost(share, granted_bytes, false);
        }
        let other_bytes = self.slabs.live_bytes().saturating_sub(granted_bytes);
        let hindrance = self.shares.hindrance(share, granted_bytes, other_bytes);
        hindrance.is_none()
    }

    /// The ops that restore the storage are in the batch, so it is resident.
    pub(crate) fn finish_restore(
        &mut self,
        storage: &Arc<Storage>,
        pending_restore: PendingRestore,
    ) {
        self.settle_in(storage, pending_restore.block, pending_restore.place);
    }

    /// The restore failed; frees its block.
    pub(crate) fn cancel_restore(&mut self, pending_restore: PendingRestore) {
        self.slabs
            .free(pending_restore.block, pending_restore.size_bytes);
    }

    /// The restore was refused, so the storage is where it was before. If that is not possible, it
    /// has no value, with `cause`.
    pub(crate) fn undo_restore(&mut self, storage: &Arc<Storage>, cause: &Arc<Error>) {
        let Some(index) = storage.slot().filter(|_| self.slots.in_slab(storage)) else {
            return;
        };
        let copies = self.slots.at(index).copies.as_deref();
        match copies.is_some_and(|copies| copies.has_bytes() || self.slots.has_current(copies)) {
            true => self.vacate(storage, index),
            false => self.slots.poison(storage, cause),
        }
    }

    /// Evicts a storage that has valid copies elsewhere. `false` if it has none.
    pub(crate) fn evict_clean(&mut self, storage: &Storage) -> bool {
        let Some(index) = storage.slot() else {
            return false;
        };
        let slot = self.slots.at(index);
        let Some(copies) = &slot.copies else {
            return false;
        };
        if !self.slots.is_valid(copies) {
            return false;
        }
        self.vacate(storage, index);
        true
    }

    /// Takes the place of a storage that has copies.
    fn vacate(&mut self, storage: &Storage, index: u32) {
        let copies = self.slots.at(index).copies.as_deref();
        let residency = copies.map_or(Residency::Pending, Copies::residency);
        storage.set_residency(residency);
        self.leave_block(index, Some(residency));
        let slot = self.slots.at_mut(index);
        slot.place = None;
        slot.was_evicted = true;
    }

    /// The storage of a slot leaves its block, if it has one. Its bytes are then at `to`; `None`
    /// when they are gone.
    fn leave_block(&mut self, index: u32, to: Option<Residency>) {
        if self.slots.at(index).block.is_some() {
            self.lost(index, to);
        }
        let slot = self.slots.at_mut(index);
        let size_bytes = slot.size_bytes;
        if let Some(block) = slot.block.take() {
            slot.place = None;
            self.slabs.free(block, size_bytes);
        }
    }

    /// Frees the places of storages without a value, except those of the slots in `stay`. Returns
    /// the freed bytes.
    pub(crate) fn evict_poisoned(&mut self, stay: &FxHashSet<usize>) -> u64 {
        let freed_before = self.slabs.freed_bytes;
        for index in 0..self.slots.rows().len() as u32 {
            let slot = self.slots.at(index);
            if slot.poison.is_none() || stay.contains(&(index as usize)) {
                continue;
            }
            let storage = slot.storage.upgrade();
            if storage.is_none_or(|storage| storage.pins() > 0) {
                continue;
            }
            self.leave_block(index, None);
        }
        self.slabs.freed_bytes - freed_before
    }

    /// `to`, which is not on the device, takes over the place of `from`. `false` if `from` has no
    /// place in a slab.
    pub(crate) fn take_over_place(&mut self, from: &Storage, to: &Arc<Storage>) -> bool {
        let Some(index) = from.slot().filter(|_| self.slots.in_slab(from)) else {
            return false;
        };
        self.lost(index, None);
        self.canaries.stays();
        let slot = self.slots.at_mut(index);
        match (slot.block.take(), slot.place.take()) {
            (Some(block), Some(place)) => {
                self.settle_in(to, block, place);
                true
            }
            _ => false,
        }
    }

    /// The next command overwrites the whole storage, so its old value does not matter.
    pub(crate) fn clear_poison(&mut self, storage: &Storage) {
        let Some(index) = storage.slot() else { return };
        let slot = self.slots.at_mut(index);
        if slot.poison.take().is_none() {
            return;
        }
        match slot.place {
            Some(place) if place.slab.is_none() => storage.set_residency(Residency::Imported),
            Some(_) => storage.set_residency(Residency::Device),
            None => self.unplace(storage),
        }
    }

    /// A storage of a share is about to get this range.
    #[inline]
    fn reuse(&mut self, place: Place, granted_bytes: u64, share: ShareId) {
        if self.canaries.is_on() {
            self.canaries.reuse(place, granted_bytes);
        }
        if self.previous.is_on() {
            self.previous.hand_over(place, granted_bytes, share);
        }
    }

    /// Moves a block. The caller records the copy before anything else. `None` if the move is not
    /// possible any more.
    pub(crate) fn relocate(&mut self, block: BlockId, to: &Spot) -> Option<Moved> {
        let owner = self.slabs.owner(block)?;
        let from = self.slots.at(owner).place?;
        let to = self.slabs.relocate(block, to)?;
        let slot = self.slots.at_mut(owner);
        slot.place = Some(to);
        let (size_bytes, share) = (slot.size_bytes, slot.share);
        self.reuse(to, self.slabs.granted_bytes(size_bytes), share);
        self.was_moved(owner, from, to);
        Some(Moved {
            block,
            from,
            to,
            size_bytes,
        })
    }

    /// A moved storage has left its old place; the copy out of it is recorded.
    pub(crate) fn moved_away(&mut self, moved: &Moved) {
        let owner = self.slabs.owner(moved.block);
        let tag = owner.map_or(0, |owner| self.slots.at(owner).tag);
        let block = Zone::of_block(moved.from, moved.size_bytes, tag, &self.slabs);
        self.canaries.went(block, &self.slabs);
    }
}
