//! Storages and where they are: the table of slots, the slabs, the counters.
//!
//! ```text
//!   Storage ──slot──► Slot { block, place } ──► Slab { buffer, last use } ──► BufferId
//!                          └── alloc::Pools decides which block
//! ```
//!
//! This module decides and counts. It never waits and never submits. When a slab must be created or
//! a submission awaited, it says so, and the engine's execution pass does it. Every call here holds
//! the engine's lock.

mod budget;
mod census;
mod computed;
mod copies;
mod dead;
mod fence;
mod graves;
mod history;
mod made_for;
mod map;
mod moves;
mod peak;
mod previous;
mod report;
mod residency;
pub(crate) mod scope;
mod share;
mod shares;
mod slabs;
mod source;
mod storage;
mod tag;
mod tags;
mod twin;
pub mod victims;
mod watermarks;

use std::sync::{Arc, Weak};

use crate::alloc::{AllocError, BlockId, Planner, PoolConfig, Pools};
use crate::driver::{BufferId, Caps};
use crate::error::{Error, Result};

pub(crate) use crate::printable::{printable, printable_end};
pub use budget::Budget;
pub(crate) use budget::{HostAccount, HostCharge};
use census::Census;
pub use census::ClassUse;
pub(crate) use census::Sums;
pub(crate) use computed::Whereabouts;
pub(crate) use copies::{Copies, Gone, HostCopy, Kept, RematerializerToken, Tier};
pub(crate) use dead::Dead;
pub use dead::DeadList;
pub(crate) use fence::{Change, FENCE_BYTES, PATTERN, Zone};
pub use history::{Event, Moment};
pub use made_for::MadeFor;
pub(crate) use map::Map;
pub use map::{Block, BlockState, EvictedStorage, SlabMap};
pub(crate) use moves::Moved;
use moves::NOBODY;
pub(crate) use report::MemoryReport;
pub use report::SlabUse;
pub use residency::Recovered;
pub(crate) use residency::{Candidate, PendingRestore};
pub use scope::{Scope, enter_scope};
pub use share::{Amount, Share};
pub(crate) use share::{ShareHandle, ShareId};
pub(crate) use shares::{Hindrance, Lending, Shares, Whole, Whom};
use slabs::Slab;
pub use source::Source;
pub(crate) use storage::Maker;
pub use storage::{Advice, Residency};
pub use storage::{Companion, Storage};
pub use tag::Tag;
pub use tags::TagUse;
pub(crate) use twin::Twins;
use victims::{Clock, Uses};
pub(crate) use victims::{TransferCost, Weight, choose};

/// Where a storage's bytes are at this moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) buffer: BufferId,
    /// A multiple of the device's storage offset alignment.
    pub(crate) offset_bytes: u64,
    /// Index of the slab; `None` in an imported buffer.
    slab: Option<u32>,
}

/// The holes that a request may take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Fit {
    /// The holes that the pools keep for its size.
    #[default]
    Best,
    /// Any hole, in a slab of any class, because no slab can be created.
    Anywhere,
}

/// One row of the table. A free slot belongs to no storage.
#[derive(Debug, Default)]
struct Slot {
    storage: Weak<Storage>,
    size_bytes: u64,
    place: Option<Place>,
    block: Option<BlockId>,
    /// Why the storage has no value.
    poison: Option<Arc<Error>>,
    /// The copies that are not on the device; most storages have none.
    copies: Option<Box<Copies>>,
    uses: Uses,
    /// The number of the last write to the storage. No two writes share a number.
    writes: u64,
    /// The number of the last batch that writes to the storage; 0 for none.
    written_in: u64,
    /// The storage's number. No other storage has it.
    number: u64,
    /// Index of the tag of the storage's maker.
    tag: u32,
    /// The share of the storage that has the block.
    share: ShareId,
}

impl Slot {
    /// Notes a write. The copies are out of date now; the caller drops them.
    fn written(&mut self, number: u64) -> Option<Box<Copies>> {
        self.writes = number;
        self.copies.take()
    }
}

/// All storages of one engine.
#[derive(Debug)]
pub(crate) struct Memory {
    pools: Pools,
    slabs: Vec<Option<Slab>>,
    /// The number of the batch that is being encoded, from 1.
    batch: u64,
    /// Slabs that the batch names.
    batch_slabs: Vec<u32>,
    slots: Vec<Slot>,
    /// The slot that each block belongs to, by the block's index.
    owners: Vec<u32>,
    planner: Planner,
    /// Blocks are never moved.
    never_move: bool,
    free_slots: Vec<u32>,
    census: Census,
    shares: Shares,
    /// Who has written to which bytes; `None` until there is a share.
    previous: Option<Box<previous::Previous>>,
    watermarks: watermarks::Watermarks,
    /// Buffers of the app that no storage refers to any more.
    forgotten: Vec<BufferId>,
    /// Size of the fence behind every storage; 0 while the engine looks for no bugs.
    fence_bytes: u64,
    fences: Option<Box<fence::Fences>>,
    /// Commands encoded so far: the clock of all uses.
    clock: Clock,
    /// Writes so far, to all storages. Each write gets the next number. A number never repeats,
    /// even when a slot passes to another storage or a storage gets a new slot.
    writes: u64,
    /// How often the app has polled.
    polls: u32,
    /// Blocks freed so far.
    freed: u64,
    freed_bytes: u64,
    /// Copies that are out of date. Dropping them may take a while.
    gone: Gone,
    dead_list: Arc<DeadList>,
    /// What was taken from the dead list; empty except while `free_dead` runs.
    taken_dead: Vec<Dead>,
}

impl Memory {
    pub(crate) fn new(caps: &Caps, never_move: bool, dead_list: Arc<DeadList>) -> Result<Self> {
        let config = PoolConfig::new(caps.offset_alignment_bytes, caps.max_buffer_bytes);
        let config = match never_move {
            true => config.without_moves(),
            false => config,
        };
        let pools = Pools::new(config).map_err(|error| Error::Option {
            option: "device limits",
            reason: error.to_string(),
        })?;
        Ok(Memory {
            pools,
            slabs: Vec::new(),
            batch: 1,
            batch_slabs: Vec::new(),
            slots: Vec::new(),
            owners: Vec::new(),
            planner: Planner::default(),
            never_move,
            free_slots: Vec::new(),
            census: Census::new(),
            shares: Shares::default(),
            previous: None,
            watermarks: watermarks::Watermarks::default(),
            forgotten: Vec::new(),
            fence_bytes: 0,
            fences: None,
            clock: 0,
            writes: 0,
            polls: 0,
            freed: 0,
            freed_bytes: 0,
            gone: Vec::new(),
            dead_list,
            taken_dead: Vec::new(),
        })
    }

    /// Bytes of storages without a place: all that were added and all that were removed so far.
    #[inline]
    pub(crate) fn pending_bytes(&self) -> (u64, u64) {
        self.dead_list.pending_bytes()
    }

    /// Is anything on the dead list?
    #[inline]
    pub(crate) fn has_dead(&self) -> bool {
        self.dead_list.has_any()
    }

    /// Frees the places of dropped storages. Passes everything else on the dead list to `other`.
    pub(crate) fn free_dead(&mut self, mut other: impl FnMut(Dead)) {
        let mut taken_dead = std::mem::take(&mut self.taken_dead);
        self.dead_list.swap(&mut taken_dead);
        for dead in taken_dead.drain(..) {
            match dead {
                Dead::Slot(slot) => self.free_slot(slot),
                Dead::Share(share) => {
                    self.shares.forget(share);
                    other(dead);
                }
                Dead::Watermark(id) => self.remove_watermark(id),
                dead => other(dead),
            }
        }
        self.taken_dead = taken_dead;
    }

    /// A command drops an operand. If nothing else holds the storage, its place is free at once.
    pub(crate) fn release_operand(&mut self, storage: Arc<Storage>) {
        if let Some(mut storage) = Arc::into_inner(storage) {
            if let Some(slot) = storage.take_slot() {
                self.free_slot(slot);
            }
        }
    }

    /// Gives a storage without a place a block of an existing slab. `None` when no slab has room.
    /// The block holds old content, not the bytes of an evicted storage.
    #[inline]
    pub(crate) fn place(
        &mut self,
        storage: &Arc<Storage>,
        fit: Fit,
    ) -> Result<Option<Place>, AllocError> {
        let Some((block, place)) = self.take_block(storage, fit)? else {
            return Ok(None);
        };
        self.settle_in(storage, block, place);
        Ok(Some(place))
    }

    /// A block of an existing slab, and its place. `None` if no slab has room, or the storage's
    /// share may not take it.
    #[inline]
    fn take_block(
        &mut self,
        storage: &Storage,
        fit: Fit,
    ) -> Result<Option<(BlockId, Place)>, AllocError> {
        let size_bytes = storage.size_bytes();
        if !self.shares.is_empty() && self.hindrance(storage).is_some() {
            return Ok(None);
        }
        let block_bytes = size_bytes + self.fence_bytes;
        let block = match self.pools.allocate(block_bytes) {
            Err(AllocError::NeedsSlab { .. }) if fit == Fit::Anywhere => {
                self.pools.allocate_anywhere(block_bytes)
            }
            done => done,
        };
        let block = match block {
            Ok(block) => block,
            Err(AllocError::NeedsSlab { .. }) => return Ok(None),
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
        if self.fences.is_some() {
            self.reuse(place, size_bytes);
        }
        self.hand_over(place, size_bytes, storage.share());
        Ok(Some((block, place)))
    }

    /// The storage lies in this block from now on.
    #[inline]
    fn settle_in(&mut self, storage: &Arc<Storage>, block: BlockId, place: Place) {
        let index = match storage.slot() {
            Some(index) => {
                let slot = &mut self.slots[index as usize];
                slot.place = Some(place);
                slot.block = Some(block);
                slot.size_bytes = storage.size_bytes();
                // The slot may have passed to another storage.
                if let Some(owner) = slot.storage.upgrade() {
                    owner.set_residency(Residency::Device);
                }
                index
            }
            None => {
                let index = self.new_slot(storage, Some(place), Some(block));
                storage.set_slot(index, Residency::Device);
                index
            }
        };
        self.set_owner(block, index);
        self.gained(index, storage, place);
    }

    /// Takes the place back from a storage whose command cannot run yet.
    pub(crate) fn unplace(&mut self, storage: &Storage) {
        let Some(index) = storage.slot() else { return };
        if self.slots[index as usize].copies.is_some() {
            self.evict_clean(storage);
        } else {
            storage.clear_slot();
            self.free_slot(index);
        }
    }

    /// `heir` takes over the bytes of `dying`, which only the current command holds.
    pub(crate) fn donate(&mut self, dying: &Storage, heir: &Arc<Storage>) {
        if let Some(slot) = dying.slot() {
            let handed = &mut self.slots[slot as usize];
            handed.storage = Arc::downgrade(heir);
            self.gone.extend(handed.copies.take());
            handed.uses = Uses::new(self.clock);
            self.donated(slot, heir);
            heir.set_slot(slot, Residency::Device);
            dying.donate_slot();
        }
    }

    /// Undoes `donate`: the command did not run. A storage that took over the bytes of `dying` has
    /// no place.
    pub(crate) fn take_back(&mut self, dying: &Arc<Storage>) {
        let Some(index) = dying.slot().filter(|_| dying.is_donated()) else {
            return;
        };
        let slot = &mut self.slots[index as usize];
        let heir = std::mem::replace(&mut slot.storage, Arc::downgrade(dying));
        let residency = match (&slot.poison, slot.place) {
            (Some(_), _) => Residency::Poisoned,
            (None, Some(_)) => Residency::Device,
            (None, None) => (slot.copies.as_deref()).map_or(Residency::Pending, Copies::residency),
        };
        self.donated(index, dying);
        dying.set_slot(index, residency);
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
        let imported_bytes = &mut self.census.sums.imported_bytes;
        imported_bytes.raise(storage.size_bytes());
        let slot = self.new_slot(storage, Some(place), None);
        storage.set_slot(slot, Residency::Imported);
    }

    /// Does the storage lie in a buffer of the app?
    pub(crate) fn is_imported(&self, storage: &Storage) -> bool {
        let slot = storage.slot().map(|index| &self.slots[index as usize]);
        slot.is_some_and(|slot| slot.place.is_some() && slot.block.is_none())
    }

    /// Does any storage lie in a buffer of the app?
    pub(crate) fn has_imports(&self) -> bool {
        self.census.sums.imported_bytes.now > 0
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
        let mut overlapping = self.slots.iter().filter(overlaps);
        // An import without holders is no obstacle; it only waits on the dead list.
        let storage = overlapping.find_map(|slot| slot.storage.upgrade())?;
        Some(storage.tag())
    }

    /// The imported buffers that no storage lies in any more. The batch must not name them.
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

    /// Does the storage lie in a slab, with a value?
    pub(crate) fn in_slab(&self, storage: &Storage) -> bool {
        let slot = storage.slot().map(|slot| &self.slots[slot as usize]);
        slot.is_some_and(|slot| slot.block.is_some() && slot.poison.is_none())
    }

    /// Why the storage has no value, if it has none.
    pub(crate) fn poison_of(&self, storage: &Storage) -> Option<Arc<Error>> {
        self.slots[storage.slot()? as usize].poison.clone()
    }

    /// The storage has no value from now on. It keeps its place, if it has one.
    pub(crate) fn poison(&mut self, storage: &Arc<Storage>, cause: &Arc<Error>) {
        let slot = match storage.slot() {
            Some(slot) => slot,
            None => {
                let slot = self.new_slot(storage, None, None);
                storage.set_slot(slot, Residency::Poisoned);
                slot
            }
        };
        self.writes += 1;
        let slot = &mut self.slots[slot as usize];
        slot.poison = Some(cause.clone());
        // Rematerializers that read this storage need the value from before.
        self.gone.extend(slot.written(self.writes));
        storage.set_residency(Residency::Poisoned);
    }

    /// The next command overwrites the whole storage, so its old value does not matter.
    pub(crate) fn clear_poison(&mut self, storage: &Storage) {
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

    #[inline]
    fn new_slot(
        &mut self,
        storage: &Arc<Storage>,
        place: Option<Place>,
        block: Option<BlockId>,
    ) -> u32 {
        let index = self.free_slots.pop().unwrap_or_else(|| {
            self.slots.push(Slot::default());
            (self.slots.len() - 1) as u32
        });
        self.writes += 1;
        // `free_slot` left all other fields empty.
        let slot = &mut self.slots[index as usize];
        slot.storage = Arc::downgrade(storage);
        slot.size_bytes = storage.size_bytes();
        slot.place = place;
        slot.block = block;
        slot.uses = Uses::new(self.clock);
        slot.writes = self.writes;
        slot.written_in = 0;
        slot.number = self.census.next_storage();
        index
    }

    #[inline]
    fn free_slot(&mut self, index: u32) {
        if self.slots[index as usize].block.is_some() {
            self.lost(index, None);
        }
        let slot = &mut self.slots[index as usize];
        let imported = slot.place.take().filter(|place| place.slab.is_none());
        if let Some(place) = imported {
            self.census.sums.imported_bytes.lower(slot.size_bytes);
            self.forgotten.push(place.buffer);
        }
        slot.poison = None;
        if let Some(past) = slot.copies.take() {
            self.gone.push(past);
        }
        slot.storage = Weak::new();
        let size_bytes = slot.size_bytes;
        if let Some(block) = slot.block.take() {
            self.free_block(block, size_bytes);
        }
        self.free_slots.push(index);
    }

    /// Frees the block of a storage of `size_bytes`.
    fn free_block(&mut self, block: BlockId, size_bytes: u64) {
        self.set_owner(block, NOBODY);
        self.freed += 1;
        self.freed_bytes += self.granted_bytes(size_bytes);
        let freed = self.pools.free(block);
        debug_assert!(freed.is_ok(), "a slot held a stale block: {freed:?}");
    }

    /// How many blocks became free so far. While this number stays the same, so does the free room.
    pub(crate) fn freed(&self) -> u64 {
        self.freed
    }

    /// Bytes of the blocks that became free so far.
    pub(crate) fn freed_bytes(&self) -> u64 {
        self.freed_bytes
    }
}
