//! The plans of the pools: which blocks to move where.

use super::super::place::Heap;
use super::super::slots::Slots;
use super::Slabs;
use crate::alloc::{AllocError, BlockId, SlabClass, Spot, Step};
use crate::driver::BufferId;

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

    /// Moves of at most `limit_bytes` that empty slabs. With a limit, storages that the app binds
    /// apart stay apart. Otherwise each frame could move them together, and apart again.
    pub(crate) fn plan_pass(&mut self, slots: &Slots, limit_bytes: u64) -> Vec<Step> {
        let mut planner = std::mem::take(&mut self.planner);
        let moves_all = limit_bytes == u64::MAX;
        let movable = |block| {
            let is_free = |owner| moves_all || !slots.at(owner).is_apart;
            self.is_movable(slots, block) && self.owner(block).is_some_and(is_free)
        };
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

    /// A hole for a storage of this size outside these buffers, in a slab of this class, or of any.
    pub(crate) fn spot_outside(
        &self,
        size_bytes: u64,
        buffers: &[BufferId],
        class: Option<SlabClass>,
    ) -> Option<Spot> {
        let slabs = self.table.iter().flatten();
        let mut outside = slabs.filter(|slab| {
            !buffers.contains(&slab.buffer) && class.is_none_or(|class| slab.class == class)
        });
        outside.find_map(|slab| self.pools.spot_in(slab.id, size_bytes + self.canary_bytes))
    }

    fn is_movable(&self, slots: &Slots, block: BlockId) -> bool {
        let is_free = |owner| match self.heap {
            Heap::Device => slots.is_unpinned(owner),
            Heap::Host => slots.unshared_heap_block(owner, block).is_some(),
        };
        !self.never_move && self.owner(block).is_some_and(is_free)
    }
}
