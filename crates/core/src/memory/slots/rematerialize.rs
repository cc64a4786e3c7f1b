//! Storages whose bytes a rematerializer can compute again, and what it needs for that.
//!
//! The engine registers one itself when it drops bytes. No app asked for that, so no value may be
//! lost. While such a storage is off the device, its token keeps the inputs alive. Before a command
//! writes to an input, the storage comes back.

use std::sync::Arc;

use rustc_hash::FxHashSet;

use super::super::copies::{Copies, RematerializerToken, Tier};
use super::super::storage::{Residency, Storage};
use super::{Slot, Slots};

/// Most inputs that are checked to find out whether a rematerializer counts as a copy. It does if
/// each input is on the device, kept elsewhere, or computable from such storages.
const INPUTS_LOOKED_AT: u32 = 32;

/// Where a value is that a launch needs to run again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Whereabouts {
    Device,
    /// In a tier. A source counts as a disk.
    Bytes(Tier),
    /// To be computed.
    Nowhere,
}

impl Slots {
    /// Are the inputs of a rematerializer unchanged since, and do they still have values?
    pub(crate) fn is_current(&self, token: &RematerializerToken) -> bool {
        let mut inputs = token.inputs.iter();
        inputs.all(|(input, writes)| {
            self.writes_to(input) == *writes && self.poison_of(input).is_none()
        })
    }

    /// Has an evicted storage a rematerializer whose inputs are unchanged?
    pub(crate) fn is_computable_now(&self, storage: &Storage) -> bool {
        (self.copies(storage)).is_some_and(|copies| self.has_current(copies))
    }

    /// Is a rematerializer among these copies, whose inputs are unchanged?
    pub(in super::super) fn has_current(&self, copies: &Copies) -> bool {
        let token = copies.rematerializer.as_ref();
        token.is_some_and(|token| self.is_current(token))
    }

    /// Where the value is that write number `write` gave to a storage. `None` if it is gone, or if
    /// the app may change it unseen.
    pub(crate) fn whereabouts(&self, storage: &Storage, write: u64) -> Option<Whereabouts> {
        if storage.is_donated() || storage.pins() > 0 {
            return None;
        }
        let slot = self.row(storage)?;
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

    /// Does a storage have the value, on the device or as a copy, that write number `write` gave?
    pub(crate) fn holds(&self, storage: &Storage, write: u64) -> bool {
        let slot = storage.slot().filter(|_| !storage.is_donated());
        slot.is_some_and(|slot| {
            let slot = &self.table[slot as usize];
            let has_value = slot.place.is_some() || slot.copies.is_some();
            slot.writes == write && slot.poison.is_none() && has_value
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
            let slot = self.row(&one);
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

    /// The inputs from which a rematerializer would compute a storage. One may come several times.
    pub(crate) fn inputs_of<'a>(
        &'a self,
        storage: &Storage,
    ) -> impl Iterator<Item = Arc<Storage>> + use<'a> {
        let token = (self.copies(storage)).and_then(|copies| copies.rematerializer.as_ref());
        let inputs = token.into_iter().flat_map(|token| &token.inputs);
        inputs.map(|(input, _)| input.clone())
    }

    /// The inputs from which rematerializers would compute a storage, and the inputs of these
    /// inputs, and so on.
    pub(crate) fn sources_of(&self, storage: &Arc<Storage>) -> Vec<Arc<Storage>> {
        let mut known = FxHashSet::default();
        let mut sources: Vec<_> = self.inputs_of(storage).collect();
        let mut at = 0;
        while let Some(source) = sources.get(at) {
            match known.insert(source.address()) {
                true => {
                    sources.extend(self.inputs_of(&sources[at]));
                    at += 1;
                }
                false => drop(sources.swap_remove(at)),
            }
        }
        sources
    }

    /// The storages that the engine dropped, and that are nowhere now.
    pub(crate) fn dropped(&self) -> Vec<Arc<Storage>> {
        let is_dropped = |slot: &Slot| {
            slot.evicted().is_some_and(|copies| {
                let token = copies.rematerializer.as_ref();
                !copies.has_bytes() && token.is_some_and(|token| token.is_automatic)
            })
        };
        self.storages(is_dropped).collect()
    }

    /// The storages that have only a rematerializer, whose inputs have changed or are lost.
    pub(in super::super) fn not_computable(&self) -> impl Iterator<Item = Arc<Storage>> {
        self.storages(|slot| {
            let copies = slot.copies.as_deref().filter(|copies| !copies.has_bytes());
            let token = copies.and_then(|copies| copies.rematerializer.as_ref());
            token.is_some_and(|token| !self.is_current(token))
        })
    }

    /// A storage that would be lost by a write to `input`: it is computed from it, and has no
    /// bytes. The tokens of all others are dropped, so that they are evicted with their bytes.
    pub(crate) fn first_lost_by_write(&mut self, input: &Arc<Storage>) -> Option<Arc<Storage>> {
        for slot in &mut self.table {
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
            self.gone.extend(slot.take_out(|copies| Copies {
                rematerializer: copies.rematerializer.take(),
                ..Copies::default()
            }));
        }
        None
    }

    /// Can these copies give the bytes again?
    pub(in super::super) fn is_valid(&self, copies: &Copies) -> bool {
        self.gives_again(copies, &mut { INPUTS_LOOKED_AT })
    }

    /// Can these copies give the bytes again at no cost but that of the transfer, or by a function
    /// of the app?
    pub(super) fn is_clean(&self, copies: &Copies) -> bool {
        let rematerializer = copies.rematerializer.as_ref();
        let is_automatic = rematerializer.is_some_and(|token| token.is_automatic);
        copies.has_bytes() || !is_automatic && self.is_valid(copies)
    }

    /// Is a rematerializer current, with inputs that are resident or can be restored? `most` bounds
    /// how many inputs it checks, with the inputs of inputs. Inputs beyond the bound count as not
    /// available.
    fn is_computable(&self, token: &RematerializerToken, most: &mut u32) -> bool {
        self.is_current(token)
            && token.inputs.iter().all(|(input, _)| {
                let slot = self.row(input);
                let Some(slot) = slot.filter(|slot| slot.place.is_none()) else {
                    return true;
                };
                *most = most.saturating_sub(1);
                let copies = slot.copies.as_deref();
                copies.is_some_and(|copies| self.gives_again(copies, most))
            })
    }

    fn gives_again(&self, copies: &Copies, most: &mut u32) -> bool {
        let rematerializer = copies.rematerializer.as_ref().filter(|_| *most > 0);
        copies.has_bytes()
            || rematerializer.is_some_and(|rematerializer| self.is_computable(rematerializer, most))
    }
}
