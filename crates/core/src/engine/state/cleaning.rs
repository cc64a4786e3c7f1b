//! Copies of storages that are on their way to other tiers, and nobody waits for.

use std::sync::{Arc, Weak};
use std::vec;

use super::destination::DestinationGuard;
use crate::memory::{Memory, Storage, Tier};
use crate::transfer::{Piece, ReadingGuard};

/// A copy in progress of a storage.
#[derive(Debug)]
pub(crate) struct Cleaning {
    storage: Weak<Storage>,
    len_bytes: u64,
    pub(crate) tier: Tier,
    /// The number of the last write to the storage before the copy was recorded.
    writes: u64,
    pub(crate) destination: DestinationGuard,
    /// Cancelled on drop.
    pub(crate) reading: ReadingGuard,
    /// The pieces that are not copied yet. An eviction for a low priority copies some at a time,
    /// and urgent commands run in between.
    pub(crate) rest: vec::IntoIter<Piece>,
    /// It is a copy of a block of the heap in the host's memory, which goes on to a tier below.
    pub(crate) is_demotion: bool,
}

impl Cleaning {
    /// A copy of the storage's value after the write with the number `writes`.
    pub(crate) fn new(
        storage: &Arc<Storage>,
        writes: u64,
        (tier, destination): (Tier, DestinationGuard),
        reading: ReadingGuard,
        pieces: Vec<Piece>,
    ) -> Self {
        Cleaning {
            storage: Arc::downgrade(storage),
            len_bytes: storage.len_bytes(),
            tier,
            writes,
            destination,
            reading,
            rest: pieces.into_iter(),
            is_demotion: false,
        }
    }

    /// The bytes that have left so far, or are on their way.
    pub(crate) fn moved_bytes(&self) -> u64 {
        let rest = self.rest.as_slice().iter();
        self.len_bytes - rest.map(|piece| piece.size_bytes).sum::<u64>()
    }

    /// Whether some pieces are left to copy.
    pub(crate) fn is_left(&self) -> bool {
        !self.rest.as_slice().is_empty()
    }

    /// Whether it goes to this tier, or to any.
    fn is_to(&self, tier: Option<Tier>) -> bool {
        tier.is_none_or(|tier| tier == self.tier)
    }

    /// The storage, if the copied value is still its value.
    pub(crate) fn storage(&self, memory: &Memory) -> Option<Arc<Storage>> {
        let storage = self.storage.upgrade()?;
        let is_same = memory.slots.writes_to(&storage) == self.writes;
        let has_value = storage.slot().is_some() && memory.slots.poison_of(&storage).is_none();
        (is_same && has_value && self.reading.failure().is_none()).then_some(storage)
    }

    pub(crate) fn is_of(&self, storage: &Storage) -> bool {
        std::ptr::eq(self.storage.as_ptr(), storage)
    }
}

/// Copies in progress.
#[derive(Debug, Default)]
pub(crate) struct Cleanings(Vec<Cleaning>);

impl Cleanings {
    pub(crate) fn push(&mut self, one: Cleaning) {
        self.0.push(one);
    }

    /// The bytes of the storages whose blocks go on to this tier, or to all.
    pub(crate) fn demoted_bytes(&self, tier: Option<Tier>) -> u64 {
        let there = (self.0.iter()).filter(|one| one.is_demotion && one.is_to(tier));
        there.map(|one| one.len_bytes).sum()
    }

    /// Takes demotions to a tier, until their storages have `wanted_bytes`. The caller drops them
    /// outside the engine's lock.
    pub(crate) fn take_demotions(&mut self, tier: Tier, wanted_bytes: u64) -> Vec<Cleaning> {
        let mut taken_bytes = 0;
        self.take_all_that(|one| {
            let is_there = one.is_demotion && one.tier == tier;
            let is_taken = is_there && taken_bytes < wanted_bytes;
            taken_bytes += if is_taken { one.len_bytes } else { 0 };
            is_taken
        })
    }

    pub(crate) fn take_all_that(
        &mut self,
        mut is_it: impl FnMut(&Cleaning) -> bool,
    ) -> Vec<Cleaning> {
        self.0.extract_if(.., |one| is_it(one)).collect()
    }

    /// Takes the first copy that `is_it` names.
    pub(crate) fn take_first(&mut self, is_it: impl FnMut(&Cleaning) -> bool) -> Option<Cleaning> {
        let index = self.0.iter().position(is_it)?;
        Some(self.0.remove(index))
    }

    /// Whether a copy of the storage is in progress.
    pub(crate) fn holds(&self, storage: &Storage) -> bool {
        self.0.iter().any(|one| one.is_of(storage))
    }

    /// Takes the copy of a storage.
    pub(crate) fn take(&mut self, storage: &Storage) -> Option<Cleaning> {
        self.take_first(|one| one.is_of(storage))
    }

    /// Takes all copies. They hold host memory or disk space, so the caller drops them outside the
    /// engine's lock.
    pub(crate) fn take_all(&mut self) -> Vec<Cleaning> {
        std::mem::take(&mut self.0)
    }

    /// The bytes of the storages whose copies are between two parts, to this tier or all.
    pub(crate) fn left_bytes(&self, tier: Option<Tier>) -> u64 {
        let left = self.0.iter().filter(|one| one.is_left() && one.is_to(tier));
        left.map(|one| one.len_bytes).sum()
    }

    /// Takes the copies of storages that have no holder. The caller drops them outside the engine's
    /// lock.
    pub(crate) fn take_dead(&mut self) -> Vec<Cleaning> {
        self.take_all_that(|one| one.storage.strong_count() == 0)
    }
}
