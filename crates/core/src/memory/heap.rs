//! The heap in the host's memory: slabs of the same allocator as the device's. The device copies
//! evicted storages into their blocks, and back.
//!
//! Queue order holds here, too. A block is free for the next copy once the last copy that names it
//! is encoded. A move writes a whole block before anything reads it, so no block shows what was
//! there before.

use std::sync::Arc;

use super::budget::{HostAccount, HostCharge};
use super::dead::DeadList;
use super::heap_block::HeapBlock;
use super::place::{HoleChoice, Place};
use super::slabs::Slabs;
use crate::alloc::{AllocError, BlockId, Growth, Pools};
use crate::driver::BufferId;

/// The heap of one engine.
#[derive(Debug)]
pub(crate) struct HostHeap {
    slabs: Slabs,
    /// The charge of each slab, by its buffer.
    charges: Vec<(BufferId, HostCharge)>,
    /// How often the device was replaced. Blocks of an earlier one are no blocks of this heap.
    epoch: u64,
    /// The bytes of all slabs when the driver refused the next one.
    refused_at_bytes: Option<u64>,
}

impl HostHeap {
    pub(super) fn new(pools: Pools) -> Self {
        HostHeap {
            slabs: Slabs::new(pools, false),
            charges: Vec::new(),
            epoch: 0,
            refused_at_bytes: None,
        }
    }

    /// A block for a storage of this size, and its place. `None` if no slab has room.
    pub(super) fn take(
        &mut self,
        size_bytes: u64,
        fit: HoleChoice,
        account: &Arc<HostAccount>,
        dead: &Arc<DeadList>,
    ) -> Option<(HeapBlock, Place)> {
        let (block, place) = self.slabs.take(size_bytes, fit).ok()??;
        let charge = account.charge_block(size_bytes);
        let block = HeapBlock::new(block, size_bytes, self.epoch, charge, dead);
        Some((block, place))
    }

    /// Frees a dropped block.
    pub(super) fn free(&mut self, block: BlockId, size_bytes: u64, epoch: u64) {
        if epoch == self.epoch {
            self.slabs.free(block, size_bytes);
        }
    }

    /// Where a block lies. `None` if it was lost with its device.
    pub(crate) fn place(&self, block: &HeapBlock) -> Option<Place> {
        let is_here = block.epoch() == self.epoch;
        is_here.then(|| self.slabs.place_of(block.id())).flatten()
    }

    /// The slab to create for a storage that found no room. `None` if the driver had no memory for
    /// one and none was released since, or if the storage is too large.
    pub(crate) fn growth(&self, size_bytes: u64) -> Option<Growth> {
        let reserved_bytes = self.slabs.reserved_bytes();
        let is_refused = (self.refused_at_bytes).is_some_and(|bytes| reserved_bytes >= bytes);
        (!is_refused)
            .then(|| self.slabs.growth(size_bytes).ok())
            .flatten()
    }

    /// `bytes` without a part of a granule.
    pub(crate) fn whole_granules_within(&self, bytes: u64) -> u64 {
        bytes - bytes % self.slabs.whole_granules(1)
    }

    /// Adds the slab that was created for `growth`.
    pub(crate) fn add(
        &mut self,
        growth: &Growth,
        buffer: BufferId,
        charge: HostCharge,
    ) -> Result<(), AllocError> {
        self.slabs.add(growth, buffer)?;
        self.charges.push((buffer, charge));
        Ok(())
    }

    /// Notes that the driver had no memory for one more slab.
    pub(crate) fn refused(&mut self) {
        self.refused_at_bytes = Some(self.slabs.reserved_bytes());
    }

    /// The driver may be asked for slabs again.
    pub(crate) fn forget_refusal(&mut self) {
        self.refused_at_bytes = None;
    }

    /// The batch names this place.
    pub(crate) fn touch(&mut self, place: Place) {
        self.slabs.touch(place);
    }

    pub(crate) fn slabs_mut(&mut self) -> &mut Slabs {
        &mut self.slabs
    }

    /// The batch was submitted with this serial, or refused (`None`).
    pub(super) fn batch_ended(&mut self, serial: Option<u64>) {
        self.slabs.batch_ended(serial);
    }

    /// Removes the empty slabs that the device has finished with. The caller destroys their
    /// buffers.
    pub(crate) fn take_empty(&mut self, completed: u64) -> Vec<BufferId> {
        let taken: Vec<BufferId> = (self.slabs.take_empty(completed).iter())
            .map(|slab| slab.buffer)
            .collect();
        self.charges.retain(|(buffer, _)| !taken.contains(buffer));
        taken
    }

    /// The device is lost, with the whole heap.
    pub(super) fn clear(&mut self) -> Result<(), AllocError> {
        self.epoch += 1;
        self.charges.clear();
        self.forget_refusal();
        self.slabs.clear()
    }
}
