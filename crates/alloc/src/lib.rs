//! An allocator that only keeps tables: offsets and handles, no GPU.
//!
//! The crate counts granules in its tables and never touches the memory that it manages. So it
//! serves GPU buffers, files, or anything else that has offsets. It knows neither wgpu nor tensors,
//! and no input makes it panic.
//!
//! - [`Carver`] carves blocks out of slabs that the caller adds: an offset allocator without a
//!   policy.
//! - [`Pools`] is the policy on top: which slab serves which request, and when to release empty
//!   slabs before a new one is created.
//! - [`Planner`] holds plans of compaction: which live blocks to move so that a request finds a
//!   hole ([`Pools::plan`]), or so that slabs become empty ([`Pools::plan_pass`]).
//! - [`PoolConfig`] has the constants of the policy, [`AllocStats`] the counters.
//! - [`bins`] has the size classes and a table of all of them.
//!
//! Below these, `nodes` is the table of blocks and holes, and `slabs` the table of slabs. `holes`
//! is the search. `relocate` moves a block to another slab, and `check` verifies the tables for
//! tests.
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
#[doc(hidden)]
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

/// Names a live block. Every use checks the handle: one that was freed, or that another allocator
/// made, gives an error. A clone of an allocator accepts the handles of the original. After 2³²
/// allocations the generations that tell handles apart begin again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockId {
    index: u32,
    generation: u32,
}

impl BlockId {
    /// A small number that no other live block has: an index for the caller's data about this
    /// block.
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
    /// A small number that no other present slab has: an index for the caller's buffers. A later
    /// slab reuses the number of a removed slab.
    pub fn index(self) -> usize {
        self.index as usize
    }
}

/// The place and the size of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// The slab that holds the block.
    pub slab: SlabId,
    /// The offset in the slab, in bytes: a multiple of the granule.
    pub offset_bytes: u64,
    /// The size in bytes: a multiple of the granule.
    pub size_bytes: u64,
    /// The bytes that the caller asked for.
    pub requested_bytes: u64,
}

/// A doctest of the README's example.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;
