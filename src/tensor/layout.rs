//! Shapes, strides and offsets: which element of the storage a tensor's index names.
//!
//! Pure arithmetic that knows nothing of devices. `views` holds the views (slice, permute,
//! reshape, …), `shapes` the rules that shapes follow (broadcasting, axes, limits), and `collapse`
//! what kernels are told of a layout.
//!
//! Every layout here comes from a shape that [`checked`] accepted, through views. So the product
//! of its dimensions other than 0 stays within [`MAX_ELEMENTS`], two indices name one element only
//! where a stride is 0 or windows overlap, and an element's number fits a `u32`.

mod axes;
mod collapse;
mod shapes;
#[cfg(test)]
mod tests;
mod views;

use smallvec::SmallVec;

pub(crate) use collapse::{Collapsed, collapse};
pub(crate) use shapes::{axis, axis_or_number, broadcast_shapes, checked};

/// Dimensions, outermost first. A tensor has at most [`MAX_RANK`] of them. With five in place it is
/// two cache lines long, and moves without a call.
pub(crate) type Dims = SmallVec<[usize; 5]>;

/// Strides in elements; 0 where an axis is broadcast, negative where it is flipped.
pub(crate) type Strides = SmallVec<[isize; 5]>;

/// Dimensions of a tensor, at most.
pub(crate) const MAX_RANK: usize = 8;

/// Elements of a tensor, at most: kernels index in `u32`, and round up to whole vec4s in it.
pub(crate) const MAX_ELEMENTS: u64 = if usize::BITS < 64 {
    isize::MAX as u64 - 3
} else {
    u32::MAX as u64 - 3
};

/// Which element of a storage an index names: `offset + Σ index[d] · strides[d]`, in elements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    pub(crate) shape: Dims,
    pub(crate) strides: Strides,
    pub(crate) offset: usize,
}

impl Layout {
    /// Row-major from element 0 on. The shape was accepted by [`checked`].
    #[inline]
    pub(crate) fn contiguous(shape: &[usize]) -> Layout {
        Layout {
            shape: Dims::from_slice(shape),
            strides: row_major(shape),
            offset: 0,
        }
    }

    /// How many elements the indices name: the product of the dimensions.
    pub(crate) fn len(&self) -> usize {
        self.shape
            .iter()
            .fold(1, |product: usize, &dim| product.saturating_mul(dim))
    }

    /// How many dimensions.
    pub(crate) fn rank(&self) -> usize {
        self.shape.len()
    }

    /// Row-major without holes, from whatever offset on. The stride of a dimension of size 1
    /// does not matter, and neither do those of an empty tensor.
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

    /// Contiguous, and it starts at a vec4: kernels may bind it as vec4s.
    pub(crate) fn is_vec4_aligned(&self) -> bool {
        self.offset.is_multiple_of(4) && self.is_contiguous()
    }

    /// The lowest and the highest element that an index names; `None` if there is no index.
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

    /// Does every index name the same element as in `other`? Then one kernel may read through
    /// one and write through the other.
    pub(crate) fn same_map(&self, other: &Layout) -> bool {
        self.shape == other.shape
            && (self.shape.contains(&0)
                || self.offset == other.offset
                    && (self.shape.iter())
                        .zip(self.strides.iter().zip(&other.strides))
                        .all(|(&dim, (mine, theirs))| dim == 1 || mine == theirs))
    }

    /// May two indices name one element? Such a view cannot be written through. It says no only
    /// where every step is longer than all that lies within it.
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
