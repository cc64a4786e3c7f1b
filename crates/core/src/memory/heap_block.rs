//! A block of the heap in the host's memory, which has the bytes of one storage.

use std::sync::Arc;

use super::budget::HostCharge;
use super::dead::{Dead, DeadList};
use crate::alloc::BlockId;

/// A block of the heap. It is freed on drop, at the next look at the dead list.
#[derive(Debug)]
pub(crate) struct HeapBlock {
    block: BlockId,
    /// The number of the storage whose bytes it has.
    storage: u64,
    size_bytes: u64,
    _charge: Option<HostCharge>,
    /// The device that the block was made for, by its number.
    epoch: u64,
    dead: Arc<DeadList>,
}

impl HeapBlock {
    pub(super) fn new(
        block: BlockId,
        storage: u64,
        size_bytes: u64,
        epoch: u64,
        charge: Option<HostCharge>,
        dead: &Arc<DeadList>,
    ) -> Self {
        HeapBlock {
            block,
            storage,
            size_bytes,
            _charge: charge,
            epoch,
            dead: dead.clone(),
        }
    }

    pub(super) fn id(&self) -> BlockId {
        self.block
    }

    /// The number of the storage whose bytes it has.
    pub(super) fn storage(&self) -> u64 {
        self.storage
    }

    pub(super) fn epoch(&self) -> u64 {
        self.epoch
    }

    pub(crate) fn size_bytes(&self) -> u64 {
        self.size_bytes
    }
}

impl Drop for HeapBlock {
    fn drop(&mut self) {
        self.dead.push(Dead::HeapBlock {
            block: self.block,
            storage: self.storage,
            size_bytes: self.size_bytes,
            epoch: self.epoch,
        });
    }
}
