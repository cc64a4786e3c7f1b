//! Storages that may be evicted, with what speaks for and against it.

use std::sync::Arc;

use rustc_hash::FxHashSet;

use super::super::copies::HeapBlock;
use super::super::copies::{Copies, Tier};
use super::super::place::Place;
use super::super::storage::{Advice, Storage};
use super::super::victims::{Clock, Uses};
use super::Slots;

/// A storage that may be evicted.
#[derive(Clone, Debug)]
pub(crate) struct Candidate {
    pub(crate) storage: Arc<Storage>,
    pub(crate) place: Place,
    /// A copy elsewhere is valid, so eviction costs nothing.
    pub(crate) is_clean: bool,
    /// The cost of computing the bytes again, if that is cheaper. The engine sets this.
    pub(crate) recompute_ns: Option<u64>,
    /// The tier that will restore it, if it is clean with bytes: not the host's memory.
    pub(crate) far: Option<Tier>,
    /// The commands until its next use. The engine sets this.
    pub(crate) distance: u32,
    uses: Uses,
}

impl Candidate {
    /// The commands until its next use, known or predicted. `next` is the known one, among so many
    /// `known` commands.
    pub(crate) fn predicted_distance(&self, now: Clock, next: Option<u32>, known: u32) -> u32 {
        match self.storage.advice() {
            Advice::Normal => self.uses.distance_knowing(now, next, known),
            Advice::Soon => 1,
            Advice::Late => u32::MAX,
        }
    }
}

impl Slots {
    /// The storages that can be evicted now: in a slab, with a value, not pinned, and not in
    /// `needed`.
    pub(crate) fn candidates(&self, needed: &FxHashSet<usize>) -> Vec<Candidate> {
        let mut candidates = Vec::with_capacity(self.table.len());
        let slots = (0..self.table.len()).filter(|index| !needed.contains(index));
        candidates.extend(slots.filter_map(|index| self.candidate_in(index as u32)));
        candidates
    }

    /// The evicted storages whose bytes are in the heap of the host's memory, and nowhere else.
    /// `place` tells where a block lies.
    pub(crate) fn only_in_heap(
        &self,
        place: impl Fn(&HeapBlock) -> Option<Place>,
    ) -> Vec<Candidate> {
        let valid = self.table.iter().filter(|slot| slot.poison.is_none());
        let blocks = valid.filter_map(|slot| {
            let copies = slot.evicted().filter(|one| !one.has_bytes_below_host())?;
            let block = copies.heap_block()?;
            Some(Candidate {
                storage: slot.storage.upgrade()?,
                place: place(block)?,
                is_clean: false,
                recompute_ns: None,
                far: None,
                distance: 0,
                uses: slot.uses,
            })
        });
        blocks.collect()
    }

    /// A storage as a candidate, if it can be evicted.
    pub(crate) fn candidate(&self, storage: &Storage) -> Option<Candidate> {
        self.candidate_in(storage.slot()?)
    }

    fn candidate_in(&self, index: u32) -> Option<Candidate> {
        let slot = &self.table[index as usize];
        if slot.block.is_none() || slot.poison.is_some() {
            return None;
        }
        let (storage, copies) = (slot.storage.upgrade()?, slot.copies.as_deref());
        let far = copies.filter(|copies| copies.has_bytes() && copies.host.is_none());
        (storage.pins() == 0).then_some(Candidate {
            storage,
            place: slot.place?,
            is_clean: copies.is_some_and(|copies| self.is_clean(copies)),
            recompute_ns: None,
            far: far.map(Copies::tier),
            distance: 0,
            uses: slot.uses,
        })
    }
}
