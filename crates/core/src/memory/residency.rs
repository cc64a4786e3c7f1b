//! Eviction and restoring: the states of a storage's slot.
//!
//! ```text
//!             evict (copies are valid)
//!   Device ─────────────────────────────► Host │ Store │ Disk │ Backed
//!     ▲                                          │
//!     └─── restore (its bytes are on their way) ─┘
//! ```
//!
//! A storage leaves the device only after its bytes arrived elsewhere. It is resident again only
//! once the copy that restores it is in the batch. So its state stays true, whatever is dropped,
//! refused or lost in between.

use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use super::victims::{Clock, Uses, Weight};
use super::{
    Advice, Copies, Fit, Gone, Memory, Place, RematerializerToken, Residency, Storage, Tier,
};
use crate::alloc::{AllocError, BlockId, Pools};
use crate::error::Error;

/// What a [`reopen`](crate::Gpu::reopen) found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Recovered {
    /// Bytes that were kept elsewhere. They are restored when a command uses them.
    pub kept_bytes: u64,
    /// Number of storages with these bytes; views share one.
    pub kept: u64,
    /// Storages that were only on the device: the tag and the bytes of each. They are
    /// [`Poisoned`](Error::Poisoned) until they are written again.
    pub gone: Vec<(String, u64)>,
}

/// Most inputs that are checked to find out whether a rematerializer counts as a copy. It does if
/// each input is on the device, kept elsewhere, or computable from such storages.
const INPUTS_LOOKED_AT: u32 = 32;

/// A block for a storage that is being restored. Pass it to [`Memory::finish_restore`] or
/// [`Memory::cancel_restore`].
#[derive(Debug)]
pub(crate) struct PendingRestore {
    block: BlockId,
    size_bytes: u64,
    pub(crate) place: Place,
}

/// A storage that may be evicted.
#[derive(Debug)]
pub(crate) struct Candidate {
    pub(crate) storage: Arc<Storage>,
    pub(crate) place: Place,
    /// A copy elsewhere is valid, so eviction costs nothing.
    pub(crate) is_clean: bool,
    /// The cost of computing the bytes again, if that is cheaper. The engine sets this.
    pub(crate) recompute_ns: Option<u64>,
    /// The tier that will restore it, if it is clean with bytes: not the host's memory.
    pub(crate) far: Option<Tier>,
    slot: u32,
    uses: Uses,
}

impl Candidate {
    /// The arguments for and against evicting it. `next` lists the coming commands: for each slot,
    /// the first command that uses it.
    pub(crate) fn weight(
        &self,
        now: Clock,
        next: &FxHashMap<u32, u32>,
        known: u32,
        evict_ns: u64,
    ) -> Weight {
        Weight {
            size_bytes: self.storage.size_bytes(),
            is_clean: self.is_clean,
            distance: self.distance(now, next, known),
            back_ns: self.recompute_ns.unwrap_or(evict_ns),
        }
    }

    /// The commands until its next use, known or predicted. See [`weight`](Self::weight).
    pub(crate) fn distance(&self, now: Clock, next: &FxHashMap<u32, u32>, known: u32) -> u32 {
        let next = next.get(&self.slot).copied();
        match self.storage.advice() {
            Advice::Normal => self.uses.distance_knowing(now, next, known),
            Advice::Soon => 1,
            Advice::Late => u32::MAX,
        }
    }
}

impl Memory {
    /// The copies of a storage that is not on the device, if it has any.
    pub(crate) fn evicted_copies(&self, storage: &Storage) -> Option<Copies> {
        let slot = &self.slots[storage.slot()? as usize];
        if slot.place.is_some() {
            return None;
        }
        slot.copies.as_deref().cloned()
    }

    /// Was the storage evicted?
    pub(crate) fn is_evicted(&self, storage: &Storage) -> bool {
        storage.slot().is_some_and(|index| {
            let slot = &self.slots[index as usize];
            slot.place.is_none() && slot.copies.is_some()
        })
    }

    /// Is the storage evicted, with bytes that need no computing?
    pub(crate) fn is_evicted_with_bytes(&self, storage: &Storage) -> bool {
        storage.slot().is_some_and(|index| {
            let slot = &self.slots[index as usize];
            let copies = slot.copies.as_deref();
            slot.place.is_none() && copies.is_some_and(Copies::has_bytes)
        })
    }

    /// Do other copies have the storage's bytes, without computing them again?
    pub(crate) fn has_bytes_elsewhere(&self, storage: &Storage) -> bool {
        let slot = storage.slot().map(|index| &self.slots[index as usize]);
        let copies = slot.and_then(|slot| slot.copies.as_deref());
        copies.is_some_and(Copies::has_bytes)
    }

    /// The clock of uses, in commands.
    pub(crate) fn now(&self) -> Clock {
        self.clock
    }

    /// A command has been encoded, so the clock advances.
    pub(crate) fn tick(&mut self) {
        self.clock = self.clock.wrapping_add(1);
    }

    /// The command that is being encoded names the storage, to write to it or only to read it.
    pub(crate) fn record_operand(&mut self, storage: &Storage, is_written: bool) {
        let Some(index) = storage.slot() else { return };
        let slot = &mut self.slots[index as usize];
        slot.uses.touch(self.clock);
        if is_written {
            slot.written_in = self.batch;
            self.writes += 1;
            if let Some(past) = slot.written(self.writes) {
                self.gone.push(past);
            }
        }
        if let Some(place) = slot.place {
            self.touch(place);
        }
    }

    /// The storages that the batch writes to.
    pub(crate) fn written_in_batch(&self) -> Vec<Arc<Storage>> {
        let slots = self.slots.iter();
        let written = slots.filter(|slot| slot.written_in == self.batch);
        written.filter_map(|slot| slot.storage.upgrade()).collect()
    }

    /// A command uses the storage, wherever it is.
    pub(crate) fn used(&mut self, storage: &Storage) {
        if let Some(index) = storage.slot() {
            self.slots[index as usize].uses.touch(self.clock);
        }
    }

    /// A block for a storage that is being restored; `None` when there is no room.
    pub(crate) fn begin_restore(
        &mut self,
        storage: &Storage,
        fit: Fit,
    ) -> Result<Option<PendingRestore>, AllocError> {
        let size_bytes = storage.size_bytes();
        let taken = self.take_block(storage, fit)?;
        Ok(taken.map(|(block, place)| PendingRestore {
            block,
            size_bytes,
            place,
        }))
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
        self.free_block(pending_restore.block, pending_restore.size_bytes);
    }

    /// Evicts a storage that has valid copies elsewhere. `false` if it has none.
    pub(crate) fn evict_clean(&mut self, storage: &Storage) -> bool {
        let Some(index) = storage.slot() else {
            return false;
        };
        let slot = &self.slots[index as usize];
        let Some(copies) = &slot.copies else {
            return false;
        };
        if !self.is_valid(copies) {
            return false;
        }
        self.vacate(storage, index);
        true
    }

    /// The restore was refused, so the storage is where it was before. If that is not possible, it
    /// has no value, with `cause`.
    pub(crate) fn undo_restore(&mut self, storage: &Arc<Storage>, cause: &Arc<Error>) {
        let Some(index) = storage.slot().filter(|_| self.in_slab(storage)) else {
            return;
        };
        let copies = self.slots[index as usize].copies.as_deref();
        let rematerializer = |copies: &Copies| {
            let rematerializer = copies.rematerializer.as_ref();
            rematerializer.is_some_and(|rematerializer| self.is_current(rematerializer))
        };
        match copies.is_some_and(|copies| copies.has_bytes() || rematerializer(copies)) {
            true => self.vacate(storage, index),
            false => self.poison(storage, cause),
        }
    }

    /// Takes the place of a storage that has copies.
    fn vacate(&mut self, storage: &Storage, index: u32) {
        let slot = &mut self.slots[index as usize];
        let copies = slot.copies.as_deref();
        let residency = copies.map_or(Residency::Pending, Copies::residency);
        storage.set_residency(residency);
        if slot.block.is_some() {
            self.lost(index, Some(residency));
        }
        let slot = &mut self.slots[index as usize];
        slot.place = None;
        let size_bytes = slot.size_bytes;
        if let Some(block) = slot.block.take() {
            self.free_block(block, size_bytes);
        }
    }

    /// Frees the places of storages without a value, except those of the slots in `stay`. Returns
    /// the freed bytes.
    pub(crate) fn evict_poisoned(&mut self, stay: &FxHashSet<usize>) -> u64 {
        let freed_before = self.freed_bytes;
        for index in 0..self.slots.len() {
            let slot = &mut self.slots[index];
            if slot.poison.is_none() || stay.contains(&index) {
                continue;
            }
            let storage = slot.storage.upgrade();
            if storage.is_none_or(|storage| storage.pins() > 0) {
                continue;
            }
            if slot.block.is_some() {
                self.lost(index as u32, None);
            }
            let slot = &mut self.slots[index];
            if let Some(block) = slot.block.take() {
                slot.place = None;
                let size_bytes = slot.size_bytes;
                self.free_block(block, size_bytes);
            }
        }
        self.freed_bytes - freed_before
    }

    /// Adds copies of what a storage holds now.
    pub(crate) fn copied(&mut self, storage: &Storage, add: impl FnOnce(&mut Copies)) {
        let Some(index) = storage.slot() else { return };
        let slot = &mut self.slots[index as usize];
        let mut copies = slot.copies.take().unwrap_or_default();
        add(&mut copies);
        slot.copies = (!copies.is_empty()).then_some(copies);
        if slot.place.is_none() && slot.poison.is_none() {
            let copies = slot.copies.as_deref();
            storage.set_residency(copies.map_or(Residency::Pending, Copies::residency));
        }
    }

    /// Adds a storage without a place; its source will give its bytes.
    pub(crate) fn back(&mut self, storage: &Arc<Storage>, copies: Copies) {
        let index = self.new_slot(storage, None, None);
        storage.set_slot(index, copies.residency());
        self.slots[index as usize].copies = Some(Box::new(copies));
    }

    /// A token for a rematerializer with these inputs.
    pub(crate) fn rematerializer_token(
        &self,
        id: u64,
        inputs: Vec<Arc<Storage>>,
        is_automatic: bool,
    ) -> RematerializerToken {
        let inputs = inputs.into_iter();
        let inputs = inputs.map(|input| {
            input.feed_rematerializer();
            let writes = self.writes_to(&input);
            (input, writes)
        });
        RematerializerToken {
            id,
            inputs: inputs.collect(),
            is_automatic,
            dead: self.dead_list.clone(),
        }
    }

    /// Are the inputs of a rematerializer unchanged since, and do they still have values?
    pub(crate) fn is_current(&self, token: &RematerializerToken) -> bool {
        let mut inputs = token.inputs.iter();
        inputs.all(|(input, writes)| {
            self.writes_to(input) == *writes && self.poison_of(input).is_none()
        })
    }

    /// Is a storage among these inputs, or among the inputs from which rematerializers compute
    /// them? Forgets outdated rematerializers on the way.
    pub(crate) fn comes_from(&mut self, inputs: &[Arc<Storage>], storage: &Arc<Storage>) -> bool {
        let (mut known, mut ahead) = (FxHashSet::default(), inputs.to_vec());
        while let Some(one) = ahead.pop() {
            if !known.insert(one.address()) {
                continue;
            }
            if Arc::ptr_eq(&one, storage) {
                return true;
            }
            let slot = one.slot().map(|index| &self.slots[index as usize]);
            let Some((slot, rematerializer)) = slot.and_then(|slot| {
                let rematerializer = slot.copies.as_ref()?.rematerializer.clone()?;
                Some((slot, rematerializer))
            }) else {
                continue;
            };
            let copies = slot.copies.as_deref();
            let is_needed = slot.place.is_none() && !copies.is_some_and(Copies::has_bytes);
            if !is_needed && !self.is_current(&rematerializer) {
                self.copied(&one, |copies| copies.rematerializer = None);
                continue;
            }
            ahead.extend(rematerializer.inputs.iter().map(|(input, _)| input.clone()));
        }
        false
    }

    /// The inputs from which rematerializers would compute a storage, and the inputs of these
    /// inputs, and so on.
    pub(crate) fn sources_of(&self, storage: &Arc<Storage>) -> Vec<Arc<Storage>> {
        let inputs = |storage: &Storage| {
            let slot = storage.slot().map(|index| &self.slots[index as usize]);
            let rematerializer =
                slot.and_then(|slot| slot.copies.as_ref()?.rematerializer.as_ref());
            let inputs = rematerializer
                .into_iter()
                .flat_map(|rematerializer| &rematerializer.inputs);
            inputs.map(|(input, _)| input.clone()).collect::<Vec<_>>()
        };
        let (mut known, mut sources) = (FxHashSet::default(), inputs(storage));
        let mut at = 0;
        while let Some(source) = sources.get(at) {
            match known.insert(source.address()) {
                true => {
                    sources.extend(inputs(&sources[at]));
                    at += 1;
                }
                false => drop(sources.swap_remove(at)),
            }
        }
        sources
    }

    /// Is a rematerializer current, with inputs that are resident or can be restored? `most` bounds
    /// how many inputs it checks, with the inputs of inputs. Inputs beyond the bound count as not
    /// available.
    fn is_computable(&self, token: &RematerializerToken, most: &mut u32) -> bool {
        self.is_current(token)
            && token.inputs.iter().all(|(input, _)| {
                let slot = input.slot().map(|index| &self.slots[index as usize]);
                let Some(slot) = slot.filter(|slot| slot.place.is_none()) else {
                    return true;
                };
                *most = most.saturating_sub(1);
                let copies = slot.copies.as_deref();
                copies.is_some_and(|copies| self.gives_again(copies, most))
            })
    }

    /// The number of the last write to a storage; 0 for none. No two writes share a number.
    pub(crate) fn writes_to(&self, storage: &Storage) -> u64 {
        let slot = storage.slot().map(|index| &self.slots[index as usize]);
        slot.map_or(0, |slot| slot.writes)
    }

    /// `to`, which is not on the device, takes over the place of `from`. `false` if `from` has no
    /// place in a slab.
    pub(crate) fn take_over_place(&mut self, from: &Storage, to: &Arc<Storage>) -> bool {
        let Some(index) = from.slot().filter(|_| self.in_slab(from)) else {
            return false;
        };
        self.lost(index, None);
        self.stays();
        let slot = &mut self.slots[index as usize];
        match (slot.block.take(), slot.place.take()) {
            (Some(block), Some(place)) => {
                self.settle_in(to, block, place);
                true
            }
            _ => false,
        }
    }

    /// A write to the storage has been encoded, so its copies are out of date.
    pub(crate) fn written(&mut self, storage: &Storage) {
        if let Some(index) = storage.slot() {
            self.writes += 1;
            let slot = &mut self.slots[index as usize];
            self.gone.extend(slot.written(self.writes));
        }
    }

    /// The outdated copies. The caller drops them where no thread waits, because that may release
    /// room on disk.
    pub(crate) fn take_gone(&mut self) -> Gone {
        std::mem::take(&mut self.gone)
    }

    /// Drops copies in the host's memory until `wanted_bytes` are free. It takes only copies whose
    /// bytes are also on the device, in a store or on disk.
    pub(crate) fn shed_host_copies(&mut self, wanted_bytes: u64) {
        let mut shed_bytes = 0;
        for slot in &mut self.slots {
            let Some(copies) = &mut slot.copies else {
                continue;
            };
            let is_kept = copies.store.is_some() || copies.disk.is_some();
            let elsewhere = slot.place.is_some() || is_kept;
            if shed_bytes >= wanted_bytes || !elsewhere || copies.host.is_none() {
                continue;
            }
            let host = copies.host.take();
            shed_bytes += host.as_ref().map_or(0, |host| host.charge.size_bytes());
            if copies.is_empty() {
                slot.copies = None;
            }
            let gone = Copies {
                host,
                ..Copies::default()
            };
            self.gone.push(Box::new(gone));
            if let (None, Some(storage)) = (slot.place, slot.storage.upgrade()) {
                let copies = slot.copies.as_deref();
                storage.set_residency(copies.map_or(Residency::Pending, Copies::residency));
            }
        }
    }

    /// The storages whose bytes are in the host's memory, with no copy elsewhere that is as good.
    pub(crate) fn on_host(&self) -> Vec<Arc<Storage>> {
        let slots = self.slots.iter().filter(|slot| {
            let copies = slot.copies.as_deref();
            slot.place.is_none() && copies.is_some_and(|copies| copies.host.is_some())
        });
        slots.filter_map(|slot| slot.storage.upgrade()).collect()
    }

    /// The storages that can be evicted now: in a slab, with a value, not pinned, and not in
    /// `needed`.
    pub(crate) fn candidates(&self, needed: &FxHashSet<usize>) -> Vec<Candidate> {
        let slots = self.slots.iter().enumerate();
        let slots = slots.filter(|(index, _)| !needed.contains(index));
        slots
            .filter_map(|(index, _)| self.candidate_in(index as u32))
            .collect()
    }

    /// A storage as a candidate, if it can be evicted.
    pub(crate) fn candidate(&self, storage: &Storage) -> Option<Candidate> {
        self.candidate_in(storage.slot()?)
    }

    fn candidate_in(&self, index: u32) -> Option<Candidate> {
        let slot = &self.slots[index as usize];
        if slot.block.is_none() || slot.poison.is_some() {
            return None;
        }
        let storage = slot.storage.upgrade()?;
        (storage.pins() == 0).then_some(Candidate {
            storage,
            place: slot.place?,
            is_clean: (slot.copies.as_deref()).is_some_and(|copies| self.is_clean(copies)),
            recompute_ns: None,
            far: (slot.copies.as_ref())
                .filter(|copies| copies.has_bytes() && copies.host.is_none())
                .map(|copies| copies.tier()),
            slot: index,
            uses: slot.uses,
        })
    }

    /// Can these copies give the bytes again?
    pub(super) fn is_valid(&self, copies: &Copies) -> bool {
        self.gives_again(copies, &mut { INPUTS_LOOKED_AT })
    }

    fn gives_again(&self, copies: &Copies, most: &mut u32) -> bool {
        let rematerializer = copies.rematerializer.as_ref().filter(|_| *most > 0);
        copies.has_bytes()
            || rematerializer.is_some_and(|rematerializer| self.is_computable(rematerializer, most))
    }
}

impl Memory {
    /// The device is lost, with every place on it. Storages with copies count as evicted. The
    /// others have no value, with `cause`.
    pub(crate) fn device_gone(&mut self, cause: &Arc<Error>) -> Result<Recovered, AllocError> {
        self.pools = Pools::new(*self.pools.config())?;
        self.slabs.clear();
        self.batch_ended(None);
        self.forgotten.clear();
        self.owners.clear();
        self.unwatch(None);
        self.forget_previous(None);
        self.shares.all_lost();
        self.census.device_gone();
        let (mut recovered, mut lost) = (Recovered::default(), Vec::new());
        for slot in &mut self.slots {
            let had_place = slot.place.take().is_some();
            slot.block = None;
            let Some(storage) = slot.storage.upgrade() else {
                continue;
            };
            // The submission that met the loss has already poisoned the storages that it should
            // have written.
            let is_lost = |error: &Arc<Error>| matches!(**error, Error::DeviceLost { .. });
            if !slot.poison.as_ref().is_none_or(is_lost) {
                continue;
            }
            if had_place && slot.copies.is_none() {
                lost.push(storage);
            }
        }
        // A storage that would be computed from a lost one is lost too, and so on.
        loop {
            let slots = self.slots.iter().filter(|slot| {
                let copies = slot.copies.as_deref().filter(|copies| !copies.has_bytes());
                let rematerializer = copies.and_then(|copies| copies.rematerializer.as_ref());
                rematerializer.is_some_and(|rematerializer| !self.is_current(rematerializer))
            });
            lost.extend(slots.filter_map(|slot| slot.storage.upgrade()));
            if lost.is_empty() {
                break;
            }
            for storage in lost.drain(..) {
                self.poison(&storage, cause);
                let gone = (storage.tag().to_string(), storage.len_bytes());
                recovered.gone.push(gone);
            }
        }
        for slot in &self.slots {
            if let (Some(copies), Some(storage)) = (&slot.copies, slot.storage.upgrade()) {
                recovered.kept += 1;
                recovered.kept_bytes += storage.len_bytes();
                storage.set_residency(copies.residency());
            }
        }
        recovered.gone.sort();
        Ok(recovered)
    }
}
