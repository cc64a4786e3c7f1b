//! Shapes, strides and offsets: they map a tensor's index to an element of the storage.
//!
//! This is pure arithmetic that knows no device. `views` has the views (slice, permute, reshape,
//! …). `shapes` has the rules of shapes (broadcasting, axes, limits). `collapse` prepares a layout
//! for kernels.
//!
//! Every layout comes from a shape that [`checked`] accepted, through views. So the product of its
//! dimensions other than 0 is at most [`MAX_ELEMENTS`], and an element's number fits a `u32`. Two
//! indices name one element only where a stride is 0 or windows overlap.

mod apart;
mod axes;
mod collapse;
mod shapes;
#[cfg(test)]
mod tests;
mod views;

use smallvec::SmallVec;

pub(crate) use apart::are_apart;
pub(crate) use collapse::{Collapsed, collapse};
pub(crate) use shapes::{axis, axis_or_number, broadcast_shapes, checked};

/// Dimensions, outermost first, at most [`MAX_RANK`]. With five inline dimensions a layout is two
/// cache lines long and moves without a call of `memcpy`.
pub(crate) type Dims = SmallVec<[usize; 5]>;

/// Strides in elements; 0 where an axis is broadcast, negative where it is flipped.
pub(crate) type Strides = SmallVec<[isize; 5]>;

/// Most dimensions of a tensor.
pub(crate) const MAX_RANK: usize = 8;

/// Most elements of a tensor: kernels index in `u32`, and round up to whole vec4s in it.
pub(crate) const MAX_ELEMENTS: u64 = if usize::BITS < 64 {
    isize::MAX as u64 - 3
} else {
    u32::MAX as u64 - 3
};

/// Maps an index to an element of a storage: `offset + Σ index[d] · strides[d]`, in elements.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    pub(crate) shape: Dims,
    pub(crate) strides: Strides,
    pub(crate) offset: usize,
}

impl Clone for Layout {
    // A small vector's own `clone` pushes one element after the other.
    #[inline]
    fn clone(&self) -> Layout {
        Layout {
            shape: Dims::from_slice(&self.shape),
            strides: Strides::from_slice(&self.strides),
            offset: self.offset,
        }
    }
}

impl Layout {
    /// Row-major from element 0. [`checked`] must have accepted the shape.
    #[inline]
    pub(crate) fn contiguous(shape: &[usize]) -> Layout {
        Layout {
            shape: Dims::from_slice(shape),
            strides: row_major(shape),
            offset: 0,
        }
    }

    /// Number of indices: the product of the dimensions.
    pub(crate) fn len(&self) -> usize {
        self.shape
            .iter()
            .fold(1, |product: usize, &dim| product.saturating_mul(dim))
    }

    /// Number of dimensions.
    pub(crate) fn rank(&self) -> usize {
        self.shape.len()
    }

    /// Is it row-major without gaps, from any offset? The stride of a dimension of size 1 does not
    /// matter, nor do the strides of an empty tensor.
    pub(crate) fn is_contiguous(&self) -> bool {
        if self.shape.contains(&0) {
            return true;
        }
        let mut expected = 1;
        for (&dim, &stride) in self.shape.iter().zip(&self.strides).rev() {
            if dim != 1 {
                if stride != expected {
                    return false;
                }
                expected = expected.wrapping_mul(dim as isize);
            }
        }
        true
    }

    /// Is it contiguous from a vec4 boundary on? Then kernels may bind it as vec4s.
    pub(crate) fn is_vec4_aligned(&self) -> bool {
        self.offset.is_multiple_of(4) && self.is_contiguous()
    }

    /// The lowest and the highest element number; `None` for an empty layout.
    pub(crate) fn span(&self) -> Option<(usize, usize)> {
        let (mut low, mut high) = (self.offset, self.offset);
        for (&dim, &stride) in self.shape.iter().zip(&self.strides) {
            let reach = stride.unsigned_abs().checked_mul(dim.checked_sub(1)?)?;
            if stride < 0 {
                low = low.checked_sub(reach)?;
            } else {
                high = high.checked_add(reach)?;
            }
        }
        Some((low, high))
    }

    /// Does every index name the same element as in `other`? Then one kernel may read one and write
    /// the other.
    pub(crate) fn same_map(&self, other: &Layout) -> bool {
        self.shape == other.shape
            && (self.shape.contains(&0)
                || self.offset == other.offset
                    && (self.shape.iter())
                        .zip(self.strides.iter().zip(&other.strides))
                        .all(|(&dim, (mine, theirs))| dim == 1 || mine == theirs))
    }

    /// May two indices name one element? Such a view cannot be written. It is `false` only if every
    /// stride is longer than the extent of all inner dimensions.
    pub(crate) fn has_overlap(&self) -> bool {
        if self.shape.contains(&0) || self.is_contiguous() {
            return false;
        }
        let mut steps: SmallVec<[(usize, usize); MAX_RANK]> = (self.shape.iter())
            .zip(&self.strides)
            .filter(|&(&dim, _)| dim > 1)
            .map(|(&dim, &stride)| (stride.unsigned_abs(), dim))
            .collect();
        steps.sort_unstable();
        let mut reach = 0_usize;
        steps.into_iter().any(|(step, dim)| {
            let is_short = step <= reach;
            reach = reach.saturating_add(step.saturating_mul(dim - 1));
            is_short
        })
    }
}

/// The strides of a row-major shape. Dimensions of 0 count as 1, so that no stride is 0.
#[inline]
fn row_major(shape: &[usize]) -> Strides {
    let mut strides = match shape.len() {
        rank @ ..=5 => Strides::from_buf_and_len([1; 5], rank),
        rank => Strides::from_elem(1, rank),
    };
    for axis in (1..shape.len()).rev() {
        strides[axis - 1] = strides[axis].wrapping_mul(shape[axis].max(1) as isize);
    }
    strides
}
