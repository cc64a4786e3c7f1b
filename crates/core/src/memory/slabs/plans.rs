//! The plans of the pools: which blocks to move where.

use super::super::slots::Slots;
use super::Slabs;
use crate::alloc::{AllocError, BlockId, Step};

impl Slabs {
    /// The steps that make room for a storage of this size, while all slabs together hold at most
    /// `limit_bytes`. Pinned storages stay at their places.
    pub(crate) fn plan(
        &mut self,
        slots: &Slots,
        size_bytes: u64,
        limit_bytes: u64,
    ) -> Result<Vec<Step>, AllocError> {
        let mut planner = std::mem::take(&mut self.planner);
        let limit_bytes = (limit_bytes != u64::MAX).then_some(limit_bytes);
        let movable = |block| self.is_movable(slots, block);
        let block_bytes = size_bytes.saturating_add(self.canary_bytes);
        let steps = self
            .pools
            .plan(&mut planner, block_bytes, limit_bytes, &movable)
            .map(<[Step]>::to_vec);
        self.planner = planner;
        steps
    }

    /// Moves of at most `limit_bytes` that empty slabs.
    pub(crate) fn plan_pass(&mut self, slots: &Slots, limit_bytes: u64) -> Vec<Step> {
        let mut planner = std::mem::take(&mut self.planner);
        let movable = |block| self.is_movable(slots, block);
        let steps = self.pools.plan_pass(&mut planner, limit_bytes, &movable);
        let steps = steps.to_vec();
        self.planner = planner;
        steps
    }

    /// Moves and releases of slabs that shrink the reserved bytes towards `target_bytes`.
    pub(crate) fn plan_shrink(&mut self, slots: &Slots, target_bytes: u64) -> Vec<Step> {
        let mut planner = std::mem::take(&mut self.planner);
        let movable = |block| self.is_movable(slots, block);
        let steps = self.pools.plan_shrink(&mut planner, target_bytes, &movable);
        let steps = steps.to_vec();
        self.planner = planner;
        steps
    }

    fn is_movable(&self, slots: &Slots, block: BlockId) -> bool {
        !self.never_move
            && self
                .owner(block)
                .is_some_and(|owner| slots.is_unpinned(owner))
    }
}
