//! What a plan is for: the request, its limits, and the blocks that may move.

use super::draft::LiveBlock;
use crate::config::{Growth, SlabClass};
use crate::{BlockId, Pools, SlabId};

/// The most slabs to search for windows and victims.
pub(super) const MOST_SLABS: usize = 200;

/// The most blocks and holes to look at for one plan.
pub(super) const MOST_NODES: usize = 1 << 14;

/// An empty slab of another class may replace a new one if it is at most this many times as large.
/// [`PoolConfig::middle_slab_bytes`](crate::PoolConfig) counts if that is larger than the new slab.
const MOST_EXCESS: u64 = 4;

/// The request and the limits of a plan.
pub(super) struct Query<'a> {
    pub(super) pools: &'a Pools,
    pub(super) growth: Growth,
    /// The most bytes that all slabs together may take, at any moment.
    pub(super) limit_bytes: u64,
    /// Whether blocks may go into slabs of any class.
    pub(super) anywhere: bool,
    /// Whether a hard limit is close or blocks never move. A bad placement can then hardly be
    /// corrected.
    pub(super) is_tight: bool,
    pub(super) movable: &'a dyn Fn(BlockId) -> bool,
}

impl Query<'_> {
    /// The size of the request in granules.
    pub(super) fn size(&self) -> u64 {
        let unit = &self.pools.carver.unit;
        unit.granules_ceil(self.growth.least_bytes).0
    }

    /// The class that fits the size of a block.
    pub(super) fn class_of(&self, live: &LiveBlock) -> SlabClass {
        let carver = &self.pools.carver;
        let node = &carver.nodes[live.node];
        let bytes = carver.unit.bytes(node.size()) - node.slack_bytes();
        self.pools.class(bytes)
    }

    /// The zone that fits the size of a block.
    pub(super) fn zone_of(&self, live: &LiveBlock) -> u8 {
        self.class_of(live).zone()
    }

    /// The smallest empty slab of another class that can replace a new one. `None` close to a hard
    /// limit, and `None` unless the program releases and creates slabs again and again.
    pub(super) fn assignable(&self) -> Option<SlabId> {
        let pools = self.pools;
        if self.is_tight || !pools.is_restless() {
            return None;
        }
        let usual_bytes = self.growth.slab_bytes.max(pools.config.middle_slab_bytes);
        let most_bytes = usual_bytes.saturating_mul(MOST_EXCESS);
        let alone = SlabClass::Alone.zone();
        let is_shared = |slab: &SlabId| pools.carver.slabs[slab.index].zone != alone;
        let shared = pools.empty_slabs().filter(is_shared);
        let sizes = shared.map(|slab| (pools.slab_bytes(slab), slab));
        let serves = self.growth.least_bytes..=most_bytes;
        let serving = sizes.filter(|(bytes, _)| serves.contains(bytes));
        let best = serving.min_by_key(|(bytes, _)| *bytes);
        best.map(|(_, slab)| slab)
    }

    pub(super) fn handle(&self, node: u32) -> BlockId {
        BlockId {
            index: node,
            generation: self.pools.carver.nodes[node].up,
        }
    }
}
