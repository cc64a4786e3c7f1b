//! The heap in the host's memory: slabs of the same allocator as the device's. The device copies
//! evicted storages into their blocks, and back.
//!
//! Queue order holds here, too. A block is free for the next copy once the last copy that names it
//! is encoded. A move writes a whole block before anything reads it, so no block shows what was
//! there before.

use std::sync::Arc;

use super::Memory;
use super::budget::{HostAccount, HostCharge, HostUse};
use super::copies::HeapBlock;
use super::dead::HeapPart;
use super::history::Event;
use super::place::{Heap, HoleChoice, Place};
use super::placing::Moved;
use super::slabs::{Slab, Slabs};
use super::slots::Candidate;
use super::storage::Storage;
use crate::alloc::{BlockId, Growth, Pools, SlabId, Spot};
use crate::driver::BufferId;

/// The heap of one engine.
#[derive(Debug)]
pub(crate) struct HostHeap {
    pub(super) slabs: Slabs,
    /// The charge of each slab, by its buffer.
    charges: Vec<(BufferId, HostCharge)>,
    /// How often the device was replaced. Blocks of an earlier one are no blocks of this heap.
    epoch: u64,
    /// The bytes of all slabs when the driver refused the next one.
    pub(crate) refused_at_bytes: Option<u64>,
}

impl HostHeap {
    pub(super) fn new(pools: Pools, never_move: bool) -> Self {
        HostHeap {
            slabs: Slabs::new(Heap::Host, pools, never_move),
            charges: Vec::new(),
            epoch: 0,
            refused_at_bytes: None,
        }
    }

    /// The heap of a dry run: the same blocks in the same slabs, but for those of `others`. The
    /// slabs have no buffers and no charges yet.
    pub(super) fn fake<'a>(&self, others: impl Iterator<Item = &'a HeapBlock>) -> HostHeap {
        let mut fake = HostHeap {
            slabs: self.slabs.fake(),
            charges: Vec::new(),
            ..*self
        };
        for other in others {
            fake.free(&other.part);
        }
        fake
    }

    /// The part that this block has, for the storage of this number and size.
    fn part(&self, block: BlockId, storage: u64, size_bytes: u64) -> HeapPart {
        HeapPart {
            block,
            storage,
            size_bytes,
            epoch: self.epoch,
        }
    }

    /// Frees a dropped block. `false` if it was lost with its device.
    pub(super) fn free(&mut self, part: &HeapPart) -> bool {
        let is_here = part.epoch == self.epoch;
        if is_here {
            self.slabs.free(part.block, part.size_bytes);
        }
        is_here
    }

    /// Where a block lies. `None` if it was lost with its device.
    pub(crate) fn place(&self, block: &HeapBlock) -> Option<Place> {
        let is_here = block.part.epoch == self.epoch;
        is_here
            .then(|| self.slabs.place_of(block.part.block))
            .flatten()
    }

    /// The slab to create for a storage that found no room. `None` if the driver had no memory for
    /// one and none was released since, or if the storage is too large.
    pub(crate) fn growth(&self, size_bytes: u64) -> Option<Growth> {
        match self.is_refused() {
            true => None,
            false => self.slabs.growth(size_bytes).ok(),
        }
    }

    /// The most bytes that all slabs together may take, if the host's limit allows so many more.
    pub(crate) fn most_bytes(&self, more_bytes: u64) -> u64 {
        let more_bytes = if self.is_refused() { 0 } else { more_bytes };
        self.slabs.reserved_bytes().saturating_add(more_bytes)
    }

    /// Whether the driver had no memory for one more slab, and none was released since.
    pub(crate) fn is_refused(&self) -> bool {
        let reserved_bytes = self.slabs.reserved_bytes();
        (self.refused_at_bytes).is_some_and(|bytes| reserved_bytes >= bytes)
    }

    /// Notes that the driver had no memory for one more slab.
    pub(crate) fn refused(&mut self) {
        self.refused_at_bytes = Some(self.slabs.reserved_bytes());
    }

    /// Removes the empty slabs that the device has finished with. The caller destroys their
    /// buffers.
    pub(super) fn take_empty(&mut self, completed: u64) -> Vec<Slab> {
        let taken = self.slabs.take_empty(completed);
        let is_there = |buffer: BufferId| taken.iter().all(|slab| slab.buffer != buffer);
        self.charges.retain(|(buffer, _)| is_there(*buffer));
        taken
    }

    /// The device is lost, with the whole heap.
    pub(super) fn clear(&mut self) {
        self.epoch += 1;
        self.charges.clear();
        self.refused_at_bytes = None;
        self.slabs.clear();
    }
}

impl Memory {
    /// Gives each slab of the heap a buffer, by its size, in a dry run.
    pub(crate) fn give_heap_buffers<E>(
        &mut self,
        account: &Arc<HostAccount>,
        mut make: impl FnMut(u64) -> Result<BufferId, E>,
    ) -> Result<(), E> {
        let Some(heap) = &mut self.heap else {
            return Ok(());
        };
        for slab in heap.slabs.all_mut() {
            slab.buffer = make(slab.size_bytes)?;
            let charge = account.charge(HostUse::Slab, slab.size_bytes);
            heap.charges
                .extend(charge.map(|charge| (slab.buffer, charge)));
        }
        Ok(())
    }

    /// The block that a fake has in the heap, because its storage has it.
    pub(crate) fn fake_heap_block(
        &self,
        fake: &Storage,
        block: BlockId,
        account: &Arc<HostAccount>,
    ) -> Option<HeapBlock> {
        let (heap, number) = (self.heap.as_ref()?, self.slots.row(fake)?.number);
        let part = heap.part(block, number, fake.size_bytes());
        Some(HeapBlock::new(part, account, &self.dead_list))
    }

    /// A block of the heap in the host's memory for a storage, and its place. `None` if it has no
    /// room, or there is no such heap.
    pub(crate) fn take_heap_block(
        &mut self,
        storage: &Storage,
        fit: HoleChoice,
        account: &Arc<HostAccount>,
    ) -> Option<(HeapBlock, Place)> {
        let heap = self.heap.as_mut()?;
        let (bytes, slot) = (storage.size_bytes(), self.slots.row(storage)?);
        let (owner, storage, tag) = (storage.slot()?, slot.number, slot.tag);
        let (block, place) = heap.slabs.take(bytes, fit).ok()??;
        heap.slabs.set_owner(block, owner);
        let part = heap.part(block, storage, bytes);
        if let Some((_, slab)) = heap.slabs.slab_of(place) {
            self.events.push(Event::HostAlloc {
                storage,
                tag,
                bytes,
                slab,
                offset_bytes: place.offset_bytes,
            });
        }
        Some((HeapBlock::new(part, account, &self.dead_list), place))
    }

    /// Moves a block of that heap. The caller records the copy before anything else. `None` if the
    /// move is not possible any more.
    pub(crate) fn relocate_in_heap(&mut self, block: BlockId, to: &Spot) -> Option<Moved> {
        let slabs = &mut self.heap.as_mut()?.slabs;
        let moving = (self.slots).unshared_heap_block(slabs.owner(block)?, block)?;
        let (storage, bytes) = (moving.part.storage, moving.part.size_bytes);
        let from = slabs.place_of(block)?;
        let to = slabs.relocate(block, to)?;
        if let Some((_, slab)) = slabs.slab_of(to) {
            self.events.push(Event::HostMove {
                storage,
                bytes,
                slab,
                offset_bytes: to.offset_bytes,
            });
        }
        Some(Moved {
            block,
            from,
            to,
            size_bytes: bytes,
        })
    }

    /// Where the bytes of an evicted storage lie in the heap of the host's memory.
    pub(crate) fn heap_place(&self, storage: &Storage) -> Option<Place> {
        let heap = (self.heap.as_ref()).filter(|_| self.slots.find(storage).is_none())?;
        heap.place(self.slots.heap_block(storage)?)
    }

    /// The blocks of the heap of evicted storages whose bytes are nowhere else.
    pub(crate) fn only_in_heap(&self) -> Vec<Candidate> {
        let Some(heap) = &self.heap else {
            return Vec::new();
        };
        self.slots.only_in_heap(|block| heap.place(block))
    }

    /// The bytes of the heap that evictions may take: of holes, and of blocks whose bytes are also
    /// elsewhere.
    pub(crate) fn heap_room_bytes(&self) -> u64 {
        let slabs = self.heap.as_ref().map(|heap| &heap.slabs);
        let hole_bytes = slabs.map_or(0, |slabs| slabs.reserved_bytes() - slabs.live_bytes());
        hole_bytes + self.slots.spare_host_bytes()
    }

    /// Adds the slab of the heap that was created for `growth`. `None` if there is no heap.
    pub(crate) fn add_heap_slab(
        &mut self,
        growth: &Growth,
        buffer: BufferId,
        charge: HostCharge,
    ) -> Option<SlabId> {
        let number = self.next_slab_number();
        let heap = self.heap.as_mut()?;
        let id = heap.slabs.add(growth, buffer, number).ok()?;
        heap.charges.push((buffer, charge));
        self.events.push(Event::HostSlabCreated {
            slab: number,
            bytes: growth.slab_bytes,
            class: growth.class,
        });
        Some(id)
    }

    /// Removes the slabs of the heap that are empty and that the device has finished with. The
    /// caller destroys their buffers.
    pub(crate) fn take_empty_heap_slabs(&mut self, completed: u64) -> Vec<BufferId> {
        let heap = self.heap.as_mut();
        let taken = heap.map_or(Vec::new(), |heap| heap.take_empty(completed));
        for slab in &taken {
            self.events.push(Event::HostSlabReleased {
                slab: slab.number,
                bytes: slab.size_bytes,
            });
        }
        taken.iter().map(|slab| slab.buffer).collect()
    }
}
