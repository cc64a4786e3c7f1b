//! Moving blocks: the plans of the pools, and the new places of storages.

use std::sync::Arc;

use super::{Memory, Place};
use crate::alloc::{AllocError, BlockId, Spot, Step};
use crate::error::Error;

/// The owner of a block that no slot lies in.
pub(super) const NOBODY: u32 = u32::MAX;

/// A moved block: the copy to make.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moved {
    pub(crate) block: BlockId,
    pub(crate) from: Place,
    pub(crate) to: Place,
    /// A multiple of 16.
    pub(crate) size_bytes: u64,
    back: Spot,
}

impl Memory {
    /// The steps that make room for a storage of this size, while all slabs together hold at most
    /// `limit_bytes`. Pinned storages stay at their places.
    pub(crate) fn plan(
        &mut self,
        size_bytes: u64,
        limit_bytes: u64,
    ) -> Result<Vec<Step>, AllocError> {
        let mut planner = std::mem::take(&mut self.planner);
        let limit_bytes = (limit_bytes != u64::MAX).then_some(limit_bytes);
        let movable = |block| self.is_movable(block);
        let block_bytes = size_bytes.saturating_add(self.fence_bytes);
        let steps = self
            .pools
            .plan(&mut planner, block_bytes, limit_bytes, &movable)
            .map(<[Step]>::to_vec);
        self.planner = planner;
        steps
    }

    /// Moves of at most `limit_bytes` that empty slabs.
    pub(crate) fn plan_pass(&mut self, limit_bytes: u64) -> Vec<Step> {
        let mut planner = std::mem::take(&mut self.planner);
        let movable = |block| self.is_movable(block);
        let steps = self.pools.plan_pass(&mut planner, limit_bytes, &movable);
        let steps = steps.to_vec();
        self.planner = planner;
        steps
    }

    fn is_movable(&self, block: BlockId) -> bool {
        let owner = self.owners.get(block.index()).copied().unwrap_or(NOBODY);
        let slot = self.slots.get(owner as usize);
        let storage = slot.and_then(|slot| slot.storage.upgrade());
        !self.never_move && storage.is_some_and(|storage| storage.pins() == 0)
    }

    /// Moves and releases of slabs that shrink the reserved bytes towards `target_bytes`.
    pub(crate) fn plan_shrink(&mut self, target_bytes: u64) -> Vec<Step> {
        let mut planner = std::mem::take(&mut self.planner);
        let movable = |block| self.is_movable(block);
        let steps = self.pools.plan_shrink(&mut planner, target_bytes, &movable);
        let steps = steps.to_vec();
        self.planner = planner;
        steps
    }

    /// Is the block still in use?
    pub(crate) fn is_there(&self, block: BlockId) -> bool {
        self.pools.block(block).is_ok()
    }

    /// Moves a block. The caller records the copy before anything else. `None` if the move is not
    /// possible any more.
    pub(crate) fn relocate(&mut self, block: BlockId, to: &Spot) -> Option<Moved> {
        let owner = self.owners.get(block.index()).copied()?;
        let from = self.slots.get(owner as usize)?.place?;
        let relocated = self.pools.relocate(block, to).ok()?;
        let index = relocated.to.slab.index();
        let slab = self.slabs.get(index)?.as_ref()?;
        let to = Place {
            buffer: slab.buffer,
            offset_bytes: relocated.to.offset_bytes,
            slab: Some(index as u32),
        };
        let slot = &mut self.slots[owner as usize];
        slot.place = Some(to);
        let size_bytes = slot.size_bytes;
        let share = slot.share;
        self.hand_over(to, size_bytes, share);
        self.was_moved(owner, from, to);
        if self.fences.is_some() {
            self.reuse(to, size_bytes);
            self.came(owner);
        }
        Some(Moved {
            block,
            from,
            to,
            size_bytes,
            back: Spot::new(relocated.from.slab, relocated.from.offset_bytes),
        })
    }

    /// The copy was refused, so the block returns to its old range if it is still in use. `false`
    /// if that range was taken.
    pub(crate) fn move_back(&mut self, moved: &Moved) -> bool {
        !self.is_there(moved.block) || self.relocate(moved.block, &moved.back).is_some()
    }

    /// The bytes of a block are lost.
    pub(crate) fn poison_block(&mut self, block: BlockId, cause: &Arc<Error>) {
        let owner = self.owners.get(block.index()).copied().unwrap_or(NOBODY);
        let slot = self.slots.get(owner as usize);
        if let Some(storage) = slot.and_then(|slot| slot.storage.upgrade()) {
            self.poison(&storage, cause);
        }
    }

    /// Bytes moved so far.
    pub(crate) fn moved_bytes(&self) -> u64 {
        self.pools.moved_bytes()
    }

    pub(super) fn set_owner(&mut self, block: BlockId, slot: u32) {
        let index = block.index();
        if self.owners.len() <= index {
            self.owners.resize(index + 1, NOBODY);
        }
        self.owners[index] = slot;
    }
}
