//! The steps of a plan.

use crate::config::{Growth, SlabClass};
use crate::{BlockId, SlabId, Spot};

/// One step of a plan. The caller executes the steps in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Release this slab: [`Pools::remove_slab`](crate::Pools::remove_slab). The earlier steps have
    /// emptied it.
    Release(SlabId),
    /// Let this slab serve requests of another class: [`Pools::assign`](crate::Pools::assign). It
    /// was empty, or the earlier steps have emptied it.
    Assign {
        /// The slab.
        slab: SlabId,
        /// The class of the request.
        class: SlabClass,
    },
    /// Move a block into a hole of another slab: [`Pools::relocate`](crate::Pools::relocate), and
    /// copy the bytes.
    Move {
        /// The block, whose handle stays valid.
        block: BlockId,
        /// The new place of the block.
        to: Spot,
    },
    /// Create a slab for the blocks of the next steps, or for the request:
    /// [`Pools::add_slab`](crate::Pools::add_slab).
    Create(Growth),
    /// Move a block into the slab that the last [`Step::Create`] created, and copy the bytes.
    MoveToNew {
        /// The block, whose handle stays valid.
        block: BlockId,
        /// The offset of the block in that slab, in bytes.
        offset_bytes: u64,
    },
}
