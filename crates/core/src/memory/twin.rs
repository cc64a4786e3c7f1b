//! A copy of the memory for a dry run: the same blocks in the same slabs, of storages that stand
//! for those of the device.

use std::sync::{Arc, Weak};

use super::census::Census;
use super::{Copies, DeadList, Kept, Memory, Residency, Slot, Storage};
use crate::alloc::Planner;
use crate::driver::BufferId;
use crate::number_map::NumberMap;

/// Storages that stand for others, by the addresses of those. The weak handles keep the addresses
/// from being reused.
pub(crate) type Twins = NumberMap<(Weak<Storage>, Arc<Storage>)>;

impl Memory {
    /// A copy whose slabs have no buffers yet: see [`give_buffers`](Self::give_buffers). `twins`
    /// has the storages to keep, by the addresses of those that they stand for. All others are
    /// freed.
    pub(crate) fn twin(&self, twins: &Twins, dead_list: Arc<DeadList>) -> Memory {
        let mut copy = Memory {
            pools: self.pools.clone(),
            slabs: self.slabs.clone(),
            batch: 1,
            batch_slabs: Vec::new(),
            slots: Vec::with_capacity(self.slots.len()),
            owners: self.owners.clone(),
            planner: Planner::default(),
            never_move: self.never_move,
            free_slots: self.free_slots.clone(),
            census: self.census.twin(),
            shares: self.shares.clone(),
            previous: self.previous.clone(),
            watermarks: super::watermarks::Watermarks::default(),
            forgotten: Vec::new(),
            fence_bytes: self.fence_bytes,
            fences: None,
            clock: self.clock,
            writes: self.writes,
            polls: self.polls,
            freed: self.freed,
            freed_bytes: self.freed_bytes,
            gone: Vec::new(),
            dead_list,
            taken_dead: Vec::new(),
        };
        for slab in copy.slabs.iter_mut().flatten() {
            slab.forget_uses();
        }
        let mut without_twin = Vec::new();
        for (index, slot) in (0..).zip(&self.slots) {
            let storage = slot.storage.upgrade();
            let twin = storage.and_then(|storage| twins.get(storage.address() as u64));
            let is_in_use = slot.block.is_some() || slot.place.is_some() || slot.copies.is_some();
            match twin {
                Some((_, twin)) => {
                    let residency = twin_residency(slot);
                    twin.set_slot(index, residency);
                }
                None if is_in_use || slot.poison.is_some() => without_twin.push(index),
                None => {}
            }
            copy.slots.push(Slot {
                storage: twin.map_or(Weak::new(), |(_, twin)| Arc::downgrade(twin)),
                size_bytes: slot.size_bytes,
                place: slot.place,
                block: slot.block,
                poison: slot.poison.clone(),
                copies: None,
                uses: slot.uses,
                writes: slot.writes,
                written_in: 0,
                number: slot.number,
                tag: slot.tag,
                share: slot.share,
            });
        }
        for index in without_twin {
            copy.free_slot(index);
        }
        copy.forgotten.clear();
        copy
    }

    /// Gives each slab a buffer, by its size. `foreign` makes buffers that stand for the app's.
    pub(crate) fn give_buffers<E>(
        &mut self,
        mut make: impl FnMut(u64) -> Result<BufferId, E>,
        mut foreign: impl FnMut() -> BufferId,
    ) -> Result<(), E> {
        for slab in self.slabs.iter_mut().flatten() {
            slab.buffer = make(slab.size_bytes)?;
        }
        for slot in &mut self.slots {
            let Some(place) = &mut slot.place else {
                continue;
            };
            let slab = place.slab.map(|index| self.slabs.get(index as usize));
            match slab {
                Some(Some(Some(slab))) => place.buffer = slab.buffer,
                Some(_) => {}
                None => place.buffer = foreign(),
            }
        }
        Ok(())
    }

    /// Sets the copies of a twin that stands for a storage with copies.
    pub(crate) fn set_copies(&mut self, twin: &Storage, copies: Copies) {
        if let Some(index) = twin.slot() {
            self.slots[index as usize].copies = Some(Box::new(copies));
        }
    }
}

/// Where the bytes of a slot's storage are.
fn twin_residency(slot: &Slot) -> Residency {
    match (&slot.poison, slot.place) {
        (Some(_), _) => Residency::Poisoned,
        (None, Some(place)) if place.slab.is_none() => Residency::Imported,
        (None, Some(_)) => Residency::Device,
        (None, None) => (slot.copies.as_deref()).map_or(Residency::Pending, Copies::residency),
    }
}

impl Census {
    /// The levels, without a history.
    fn twin(&self) -> Census {
        let mut copy = Census::new();
        copy.sums = self.sums;
        (copy.sums.evictions, copy.sums.restores) = (0, 0);
        copy.take_levels(self);
        copy
    }
}

impl Kept {
    /// Is nothing kept?
    pub(crate) fn is_nothing(self) -> bool {
        self == Kept::default()
    }
}
