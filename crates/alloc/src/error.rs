//! The error type of this crate. Every variant carries the numbers that the caller needs.

use super::{BlockId, SlabId};
use core::fmt;

/// An error of a call to an allocator. A call that returns an error has changed nothing.
///
/// ```
/// use lapidary_alloc::{AllocError, Carver};
///
/// let mut carver = Carver::new(256)?;
/// assert_eq!(carver.allocate(1000), Err(AllocError::NeedsSlab { requested_bytes: 1000 }));
/// # Ok::<(), AllocError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AllocError {
    /// No hole is large enough now. The request succeeds after another slab is added or blocks are
    /// freed.
    NeedsSlab {
        /// The bytes asked for.
        requested_bytes: u64,
    },
    /// No slab can ever be large enough.
    NeverFits {
        /// The bytes asked for.
        requested_bytes: u64,
        /// The largest request that could succeed.
        limit_bytes: u64,
    },
    /// The block was freed already, or belongs to another allocator.
    StaleBlock(BlockId),
    /// The slab was removed already, or belongs to another allocator.
    StaleSlab(SlabId),
    /// Only a slab without live blocks can be removed.
    SlabInUse {
        /// The slab.
        slab: SlabId,
        /// The number of live blocks in it.
        blocks: u32,
    },
    /// A block moves only into a hole of another slab, at a multiple of the granule.
    NoHoleThere {
        /// The slab that was to receive it.
        slab: SlabId,
        /// The offset from the slab's start, in bytes.
        offset_bytes: u64,
        /// The size of the block in bytes.
        size_bytes: u64,
    },
    /// A slab must hold at least one granule and at most `limit_bytes`.
    SlabSize {
        /// The size that the caller offered, in bytes.
        size_bytes: u64,
        /// The largest slab that the tables allow, in bytes.
        limit_bytes: u64,
    },
    /// A granule must be a power of two of at most 64 KiB.
    UnitSize {
        /// The size that the caller asked for, in bytes.
        unit_bytes: u64,
    },
    /// The tables are full. They hold 2^32 - 1 blocks and holes, 2^21 slabs, and 2^64 bytes of
    /// slabs.
    TableFull,
}

impl fmt::Display for AllocError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            AllocError::NeedsSlab { requested_bytes } => write!(
                f,
                "no hole holds {requested_bytes} bytes now; another slab would"
            ),
            AllocError::NeverFits {
                requested_bytes,
                limit_bytes,
            } => write!(
                f,
                "{requested_bytes} bytes never fit: one block is at most {limit_bytes} bytes"
            ),
            AllocError::StaleBlock(block) => write!(
                f,
                "{block:?} was freed already or belongs to another allocator"
            ),
            AllocError::StaleSlab(slab) => write!(
                f,
                "{slab:?} was removed already or belongs to another allocator"
            ),
            AllocError::SlabInUse { slab, blocks } => write!(
                f,
                "{slab:?} still has {blocks} live blocks; free or move them first"
            ),
            AllocError::NoHoleThere {
                slab,
                offset_bytes,
                size_bytes,
            } => write!(
                f,
                "{slab:?} has no hole of {size_bytes} bytes at {offset_bytes} for a block of another \
                     slab"
            ),
            AllocError::SlabSize {
                size_bytes,
                limit_bytes,
            } => write!(
                f,
                "a slab of {size_bytes} bytes must hold at least one granule and at most \
                     {limit_bytes} bytes"
            ),
            AllocError::UnitSize { unit_bytes } => write!(
                f,
                "a granule of {unit_bytes} bytes must be a power of two of at most 65536 bytes"
            ),
            AllocError::TableFull => write!(
                f,
                "the allocator's tables are full: no more blocks or slabs"
            ),
        }
    }
}

impl core::error::Error for AllocError {}
