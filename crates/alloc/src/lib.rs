//! Pure bookkeeping: offsets and handles, no GPU.
//!
//! Everything here counts granules in tables of its own and never touches the memory it manages, so
//! it serves GPU buffers, files, or anything else that has offsets. It knows nothing of wgpu or of
//! tensors, and no input makes it panic.
//!
//! - [`Carver`] carves blocks out of slabs that the caller adds: an offset allocator on its own.
//! - [`Pools`] is the policy on top: which slab sizes serve which requests, and when an empty slab
//!   is given back before another is made.
//! - [`Planner`] holds plans of compaction: which live blocks to move so that a request finds room
//!   ([`Pools::plan`]), or so that slabs come empty ([`Pools::plan_pass`]).
//! - [`PoolConfig`] has its constants, [`AllocStats`] what it counts.
//! - [`bins`] has the size classes and the table of all of them.
//!
//! Below those, `nodes` is the table of blocks and holes, `holes` the search, `slabs` the table of
//! slabs, `relocate` a block's change of place, `check` the walker that tests lean on.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), no_std)]

extern crate alloc;

pub mod bins;
mod carver;
mod check;
mod compact;
mod config;
mod error;
mod holes;
mod nodes;
mod pools;
mod relocate;
mod slabs;
mod stats;
pub mod units;

pub use carver::Carver;
pub use compact::{Planner, Step};
pub use config::{Growth, PoolConfig, SlabClass};
pub use error::AllocError;
pub use pools::Pools;
pub use relocate::{Relocated, Spot};
pub use stats::{AllocStats, SlabInfo};

/// Names a live block. Checked on every use: a handle that was freed, or that another allocator
/// made, is an error. A clone of an allocator has its handles too, and after 2³² allocations the
/// generations that tell handles apart begin again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockId {
    index: u32,
    generation: u32,
}

impl BlockId {
    /// A small number that no other live block has: where to keep what belongs to this block.
    pub fn index(self) -> usize {
        self.index as usize
    }
}

/// Names a slab, checked as [`BlockId`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SlabId {
    index: u32,
    generation: u32,
}

impl SlabId {
    /// A small number that no other present slab has: where to keep this slab's buffer. The next
    /// slab takes the number of one that was removed.
    pub fn index(self) -> usize {
        self.index as usize
    }
}

/// Where a block is and how large.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// The slab it lies in.
    pub slab: SlabId,
    /// Where it begins in the slab, in bytes: a multiple of the granule.
    pub offset_bytes: u64,
    /// How long it is, in bytes: a multiple of the granule.
    pub size_bytes: u64,
    /// How many bytes were asked for.
    pub requested_bytes: u64,
}

/// The example of the README compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;
