//! The copies of storages outside the device, row by row.

use std::cmp::Reverse;
use std::sync::Arc;

use super::super::copies::{Copies, Gone, HeapBlock, Kept, Tier};
#[cfg(not(target_arch = "wasm32"))]
use super::super::source::Source;
use super::super::storage::Storage;
use super::{Fakes, Slot, Slots};
use crate::alloc::BlockId;
use crate::error::Error;
#[cfg(not(target_arch = "wasm32"))]
use crate::transfer::SpillBlock;

impl Slot {
    /// Takes a part of the copies out. None are kept if that was all.
    pub(super) fn take_out(
        &mut self,
        part: impl FnOnce(&mut Copies) -> Copies,
    ) -> Option<Box<Copies>> {
        let copies = self.copies.as_mut()?;
        let taken = Box::new(part(copies));
        if copies.is_empty() {
            self.copies = None;
        }
        Some(taken)
    }

    /// Whether the bytes are in the host's memory, and also on the device, in a store or on disk.
    fn has_spare_host_copy(&self) -> bool {
        self.copies.as_ref().is_some_and(|copies| {
            let is_kept = copies.store.is_some() || copies.disk.is_some();
            copies.host.is_some() && (self.place.is_some() || is_kept)
        })
    }

    /// The copies, if the storage is not on the device.
    pub(super) fn evicted(&self) -> Option<&Copies> {
        self.copies.as_deref().filter(|_| self.place.is_none())
    }

    /// Whether the bytes of an evicted storage are in this tier, or in any below the host's memory,
    /// and also in the host's memory.
    fn is_demoted_to(&self, tier: Option<Tier>) -> bool {
        self.evicted().is_some_and(|copies| {
            let is_there = match tier {
                None => copies.store.is_some() || copies.disk.is_some(),
                Some(tier) => tier != Tier::Host && copies.is_in(tier),
            };
            is_there && copies.host.is_some()
        })
    }
}

impl Slots {
    /// The copies of a storage, if it has any.
    pub(super) fn copies(&self, storage: &Storage) -> Option<&Copies> {
        self.row(storage)?.copies.as_deref()
    }

    /// Where the bytes of a storage are kept beside the device.
    pub(crate) fn kept(&self, storage: &Storage) -> Kept {
        let copies = self.copies(storage);
        copies.map_or(Kept::default(), |copies| Kept {
            on_host: copies.host.is_some(),
            in_heap: copies.heap_block().map(|found| found.part.block),
            in_store: copies.store.as_ref().map(|(number, _)| *number),
            on_disk: copies.disk.is_some(),
            at_source: copies.source.is_some(),
        })
    }

    /// The copies of a storage that is not on the device, if it has any.
    pub(crate) fn evicted_copies(&self, storage: &Storage) -> Option<Copies> {
        self.row(storage)?.evicted().cloned()
    }

    /// Was the storage evicted?
    pub(crate) fn is_evicted(&self, storage: &Storage) -> bool {
        let slot = self.row(storage);
        slot.is_some_and(|slot| slot.evicted().is_some())
    }

    /// Was the storage evicted at any time? A source's storage may never have been on the device.
    pub(crate) fn was_evicted(&self, storage: &Storage) -> bool {
        self.row(storage).is_some_and(|slot| slot.was_evicted)
    }

    /// Is the storage evicted, with bytes that need no computing?
    pub(crate) fn is_evicted_with_bytes(&self, storage: &Storage) -> bool {
        let evicted = self.row(storage).and_then(Slot::evicted);
        evicted.is_some_and(Copies::has_bytes)
    }

    /// Where the bytes of an evicted storage come from, if that is the disk or a source.
    #[cfg(not(target_arch = "wasm32"))]
    pub(crate) fn evicted_origin(
        &self,
        storage: &Storage,
    ) -> Option<(Option<Arc<SpillBlock>>, Option<Source>)> {
        let copies = self.row(storage)?.evicted()?;
        let is_there = copies.has_bytes() && copies.tier() == Tier::Disk;
        is_there.then(|| (copies.disk.clone(), copies.source.clone()))
    }

    /// Do other copies have the storage's bytes, without computing them again?
    pub(crate) fn has_bytes_elsewhere(&self, storage: &Storage) -> bool {
        self.copies(storage).is_some_and(Copies::has_bytes)
    }

    /// The block of the heap in the host's memory that has a storage's bytes.
    pub(crate) fn heap_block(&self, storage: &Storage) -> Option<&HeapBlock> {
        self.copies(storage)?.heap_block()
    }

    /// The blocks of the heap that no fake of a dry run has: of storages without one, and of copies
    /// that wait to be dropped.
    pub(in crate::memory) fn heap_blocks_beside(
        &self,
        fakes: &Fakes,
    ) -> impl Iterator<Item = &HeapBlock> {
        let has_fake = |slot: &Slot| {
            let storage = slot.storage.upgrade();
            storage.is_some_and(|storage| fakes.contains_key(&(storage.address() as u64)))
        };
        let rows = self.table.iter().filter(move |slot| !has_fake(slot));
        let copies = rows.filter_map(|slot| slot.copies.as_deref());
        let gone = self.gone.iter().map(|copies| &**copies);
        copies.chain(gone).filter_map(Copies::heap_block)
    }

    /// The block of the heap in the host's memory that a slot's storage has, if it is this one.
    /// `None` while something holds the copy: it may know the place.
    pub(in crate::memory) fn unshared_heap_block(
        &self,
        index: u32,
        block: BlockId,
    ) -> Option<&HeapBlock> {
        let copies = self.table.get(index as usize)?.copies.as_ref()?;
        let found = copies
            .heap_block()
            .filter(|found| found.part.block == block)?;
        let is_held = (copies.host.as_ref()).is_some_and(|host| Arc::strong_count(host) > 1);
        (!is_held).then_some(found)
    }

    /// Adds copies of what a storage holds now.
    pub(crate) fn copied(&mut self, storage: &Storage, add: impl FnOnce(&mut Copies)) {
        let Some(index) = storage.slot() else { return };
        let slot = &mut self.table[index as usize];
        let mut copies = slot.copies.take().unwrap_or_default();
        add(&mut copies);
        slot.copies = (!copies.is_empty()).then_some(copies);
        if slot.place.is_none() && slot.poison.is_none() {
            storage.set_residency(slot.residency());
        }
    }

    /// A copy of an evicted storage, in a store or on disk, cannot be used, with `error`. Drops the
    /// copy if anything else gives the bytes. `false` if nothing does.
    pub(crate) fn copy_failed(&mut self, storage: &Storage, error: &Error) -> bool {
        let Some(copies) = self.copies(storage) else {
            return false;
        };
        let (failed, other) = match error {
            Error::Store(_) => (Tier::Store(0), copies.disk.is_some()),
            _ => (Tier::Disk, copies.store.is_some()),
        };
        let gives =
            other || copies.host.is_some() || copies.source.is_some() || self.has_current(copies);
        if gives {
            let mut gone = Copies::default();
            self.copied(storage, |copies| gone = copies.take(failed));
            self.gone.push(Box::new(gone));
        }
        gives
    }

    /// Adds a storage without a place; its source will give its bytes.
    pub(in super::super) fn back(&mut self, storage: &Arc<Storage>, copies: Copies) -> u32 {
        let index = self.add(storage, None, None);
        storage.set_slot(index, copies.residency());
        self.table[index as usize].copies = Some(Box::new(copies));
        index
    }

    /// Sets the copies of a fake that stands for a storage with copies.
    pub(crate) fn set_copies(&mut self, fake: &Storage, copies: Copies) {
        if let Some(index) = fake.slot() {
            self.table[index as usize].copies = Some(Box::new(copies));
        }
    }

    /// The outdated copies. The caller drops them where no thread waits, because that may release
    /// room on disk.
    pub(crate) fn take_gone(&mut self) -> Gone {
        std::mem::take(&mut self.gone)
    }

    /// The bytes of the copies that [`shed_host_copies`](Self::shed_host_copies) would drop.
    pub(crate) fn spare_host_bytes(&self) -> u64 {
        let spare = self.table.iter().filter(|slot| slot.has_spare_host_copy());
        let hosts = spare.filter_map(|slot| slot.copies.as_deref()?.host.as_ref());
        hosts.map(|host| host.size_bytes()).sum()
    }

    /// Drops copies in the host's memory until `wanted_bytes` are free. It takes only copies whose
    /// bytes are also on the device, in a store or on disk. The batch must not restore any of them:
    /// the driver may still refuse it. Those of storages on the device go first: to evict them
    /// again costs less than to restore others from a store or the disk. Of each kind, those go
    /// first that were used least lately.
    pub(crate) fn shed_host_copies(&mut self, wanted_bytes: u64) -> u64 {
        let spare = self.table.iter_mut();
        let mut spare: Vec<_> = spare.filter(|slot| slot.has_spare_host_copy()).collect();
        spare.sort_by_key(|slot| (slot.place.is_none(), Reverse(slot.uses.idle(self.clock))));
        let mut shed_bytes = 0;
        for slot in spare {
            if shed_bytes >= wanted_bytes {
                break;
            }
            let gone = slot.take_out(|copies| copies.take(Tier::Host));
            let host = gone.as_ref().and_then(|gone| gone.host.as_ref());
            shed_bytes += host.map_or(0, |host| host.size_bytes());
            self.gone.extend(gone);
            if let (None, Some(storage)) = (slot.place, slot.storage.upgrade()) {
                storage.set_residency(slot.residency());
            }
        }
        shed_bytes
    }

    /// The bytes in a tier below the host's memory, or in all, that are also in the host's memory.
    /// They may be given up.
    pub(crate) fn demoted_bytes(&self, tier: Option<Tier>) -> u64 {
        let demoted = self.table.iter().filter(|slot| slot.is_demoted_to(tier));
        let storages = demoted.filter_map(|slot| slot.storage.upgrade());
        storages.map(|storage| storage.len_bytes()).sum()
    }

    /// Drops such copies in a tier, until they have `wanted_bytes`. Returns how many they had.
    pub(crate) fn drop_demoted(&mut self, tier: Tier, wanted_bytes: u64) -> u64 {
        let mut dropped_bytes = 0;
        for slot in &mut self.table {
            if dropped_bytes >= wanted_bytes || !slot.is_demoted_to(Some(tier)) {
                continue;
            }
            let Some(storage) = slot.storage.upgrade() else {
                continue;
            };
            self.gone.extend(slot.take_out(|copies| copies.take(tier)));
            dropped_bytes += storage.len_bytes();
        }
        dropped_bytes
    }

    /// The device is lost, and the heap in the host's memory with it. Returns the storages that
    /// were evicted to it and have no other copy.
    pub(in crate::memory) fn lose_heap(&mut self) -> Vec<Arc<Storage>> {
        let mut lost = Vec::new();
        for slot in &mut self.table {
            let Some(copies) = &mut slot.copies else {
                continue;
            };
            if copies.heap_block().is_none() {
                continue;
            }
            copies.host = None;
            if copies.is_empty() {
                slot.copies = None;
                // A storage that also had a place is lost with that.
                let evicted = slot.storage.upgrade().filter(|_| slot.place.is_none());
                lost.extend(evicted);
            }
        }
        lost
    }

    /// The storages whose bytes are in the host's memory, with no copy elsewhere that is as good.
    pub(in crate::memory) fn on_host(&self) -> Vec<Arc<Storage>> {
        let is_on_host = |slot: &Slot| slot.evicted().is_some_and(|copies| copies.host.is_some());
        self.storages(is_on_host).collect()
    }
}
