//! A block of the heap in the host's memory, which has the bytes of one storage.

use std::sync::Arc;

use super::budget::{HostAccount, HostCharge, HostUse};
use super::dead::{Dead, DeadList, HeapPart};
use crate::alloc::BlockId;

/// A block of the heap. It is freed on drop, at the next look at the dead list.
#[derive(Debug)]
pub(crate) struct HeapBlock {
    pub(super) part: HeapPart,
    _charge: Option<HostCharge>,
    dead: Arc<DeadList>,
}

impl HeapBlock {
    pub(super) fn new(part: HeapPart, account: &Arc<HostAccount>, dead: &Arc<DeadList>) -> Self {
        HeapBlock {
            part,
            _charge: account.charge(HostUse::Block, part.size_bytes),
            dead: dead.clone(),
        }
    }

    pub(super) fn id(&self) -> BlockId {
        self.part.block
    }

    pub(crate) fn size_bytes(&self) -> u64 {
        self.part.size_bytes
    }
}

impl Drop for HeapBlock {
    fn drop(&mut self) {
        self.dead.push(Dead::HeapBlock(self.part));
    }
}
