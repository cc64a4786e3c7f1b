//! Shapes, strides and offsets: which element of the storage a tensor's index names.

use smallvec::SmallVec;

/// Dimensions, outermost first. A tensor has at most [`MAX_RANK`] of them.
pub(crate) type Dims = SmallVec<[usize; 6]>;

/// Strides in elements; 0 where an axis is broadcast, negative where it is flipped.
pub(crate) type Strides = SmallVec<[isize; 6]>;

/// Dimensions of a tensor, at most.
pub(crate) const MAX_RANK: usize = 8;

/// Which element of a storage an index names: `offset + Σ index[d] · strides[d]`, in elements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    pub(crate) shape: Dims,
    pub(crate) strides: Strides,
    pub(crate) offset: usize,
}
