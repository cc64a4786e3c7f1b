//! Storages whose bytes the engine dropped, because it can run the launch again that made them.
//!
//! No app asked for that, so no value may be lost. While such a storage is off the device, its
//! token keeps the inputs alive. Before a command writes to an input, the storage comes back.

use std::sync::Arc;

use super::{Copies, Memory, Residency, Slot, Storage, Tier};

/// Where a value is that a launch needs to run again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Whereabouts {
    Device,
    /// In a tier. A source counts as a disk.
    Bytes(Tier),
    /// To be computed.
    Nowhere,
}

impl Memory {
    /// Are storages saved for a backward, or were some lately? Then lineages are worth their cost.
    /// A backward that waits in the queue has saved nothing any more.
    #[inline]
    pub(crate) fn has_saved(&self) -> bool {
        self.dead_list.has_saved()
    }

    /// The commands that [`has_saved`](Self::has_saved) spoke of have run.
    pub(crate) fn forget_saved(&self) {
        self.dead_list.forget_saved();
    }

    /// Where the value is that write number `write` gave to a storage. `None` if it is gone, or if
    /// the app may change it unseen.
    pub(crate) fn whereabouts(&self, storage: &Storage, write: u64) -> Option<Whereabouts> {
        if storage.is_donated() || storage.pins() > 0 {
            return None;
        }
        let slot = &self.slots[storage.slot()? as usize];
        if slot.writes != write || slot.poison.is_some() {
            return None;
        }
        let copies = slot.copies.as_deref();
        match slot.place {
            Some(_) if storage.residency() == Residency::Imported => None,
            Some(_) => Some(Whereabouts::Device),
            None if copies.is_some_and(Copies::has_bytes) => {
                Some(Whereabouts::Bytes(copies.map_or(Tier::Disk, Copies::tier)))
            }
            None if copies.is_some_and(|copies| self.is_valid(copies)) => {
                Some(Whereabouts::Nowhere)
            }
            None => None,
        }
    }

    /// Can these copies give the bytes again at no cost but that of the transfer, or by a function
    /// of the app?
    pub(super) fn is_clean(&self, copies: &Copies) -> bool {
        let rematerializer = copies.rematerializer.as_ref();
        let is_automatic = rematerializer.is_some_and(|token| token.is_automatic);
        copies.has_bytes() || !is_automatic && self.is_valid(copies)
    }

    /// Does a storage have the value, on the device or as a copy, that write number `write` gave?
    pub(crate) fn holds(&self, storage: &Storage, write: u64) -> bool {
        let slot = storage.slot().filter(|_| !storage.is_donated());
        slot.is_some_and(|slot| {
            let slot = &self.slots[slot as usize];
            let has_value = slot.place.is_some() || slot.copies.is_some();
            slot.writes == write && slot.poison.is_none() && has_value
        })
    }

    /// The storages that the engine dropped, and that are nowhere now.
    pub(crate) fn dropped(&self) -> Vec<Arc<Storage>> {
        let is_dropped = |slot: &&Slot| {
            let copies = slot.copies.as_deref().filter(|_| slot.place.is_none());
            copies.is_some_and(|copies| {
                let token = copies.rematerializer.as_ref();
                !copies.has_bytes() && token.is_some_and(|token| token.is_automatic)
            })
        };
        let dropped = self.slots.iter().filter(is_dropped);
        dropped.filter_map(|slot| slot.storage.upgrade()).collect()
    }

    /// A storage that would be lost by a write to `input`: it is computed from it, and has no
    /// bytes. The tokens of all others are dropped, so that they are evicted with their bytes.
    pub(crate) fn first_lost_by_write(&mut self, input: &Arc<Storage>) -> Option<Arc<Storage>> {
        for slot in &mut self.slots {
            let Some(copies) = &mut slot.copies else {
                continue;
            };
            let reads = |(one, _): &(Arc<Storage>, u64)| Arc::ptr_eq(one, input);
            let token = copies.rematerializer.as_ref();
            if !token.is_some_and(|token| token.is_automatic && token.inputs.iter().any(reads)) {
                continue;
            }
            if slot.place.is_none() && !copies.has_bytes() {
                if let Some(storage) = slot.storage.upgrade() {
                    return Some(storage);
                }
                continue;
            }
            let dropped = Copies {
                rematerializer: copies.rematerializer.take(),
                ..Copies::default()
            };
            if copies.is_empty() {
                slot.copies = None;
            }
            self.gone.push(Box::new(dropped));
        }
        None
    }
}
