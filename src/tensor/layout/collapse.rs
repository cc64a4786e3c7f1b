//! What a kernel is told of layouts: as few dimensions as say the same.

use smallvec::{SmallVec, smallvec};

use super::{Layout, MAX_RANK};

/// The dimensions over which a kernel walks several operands at once, as few as say the same.
///
/// All in `u32`, where index arithmetic wraps: a negative stride is its two's complement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Collapsed {
    /// Outermost first, at least one. An empty shape is one dimension of 0.
    pub(crate) dims: SmallVec<[u32; MAX_RANK]>,
    /// Of each operand, the stride of each of `dims`, in elements; zeros follow.
    pub(crate) strides: SmallVec<[[u32; MAX_RANK]; 4]>,
    /// Of each operand, the element at index 0.
    pub(crate) offsets: SmallVec<[u32; 4]>,
}

/// Merges neighbouring dimensions wherever every operand permits, and drops those of size 1.
/// The operands have been broadcast to `shape`. Contiguous ones give a single dimension.
pub(crate) fn collapse(shape: &[usize], operands: &[&Layout]) -> Collapsed {
    debug_assert!(operands.iter().all(|operand| operand.shape[..] == *shape));
    let mut dims: SmallVec<[u32; MAX_RANK]> = SmallVec::new();
    let mut strides: SmallVec<[[u32; MAX_RANK]; 4]> = smallvec![[0; MAX_RANK]; operands.len()];
    let is_empty = shape.contains(&0);
    for (axis, &dim) in shape.iter().enumerate() {
        if dim == 1 || is_empty {
            continue;
        }
        let stride = |operand: usize| operands[operand].strides[axis] as u32;
        let continues = |last: usize| {
            (0..operands.len())
                .all(|operand| strides[operand][last] == stride(operand).wrapping_mul(dim as u32))
        };
        let at = match dims.len().checked_sub(1) {
            Some(last) if continues(last) => {
                dims[last] = dims[last].wrapping_mul(dim as u32);
                last
            }
            _ => {
                dims.push(dim as u32);
                dims.len() - 1
            }
        };
        for operand in 0..operands.len() {
            strides[operand][at] = stride(operand);
        }
    }
    if dims.is_empty() {
        dims.push(u32::from(!is_empty));
    }
    Collapsed {
        dims,
        strides,
        offsets: operands
            .iter()
            .map(|operand| operand.offset as u32)
            .collect(),
    }
}

/// The elements that a layout names, in row-major order of its indices.
#[derive(Debug)]
pub(crate) struct Walk {
    dims: SmallVec<[u32; MAX_RANK]>,
    strides: [u32; MAX_RANK],
    index: [u32; MAX_RANK],
    element: u32,
    left: usize,
}

impl Layout {
    /// The elements that the indices name, in row-major order of the indices.
    pub(crate) fn elements(&self) -> Walk {
        let collapsed = collapse(&self.shape, &[self]);
        Walk {
            strides: collapsed.strides[0],
            dims: collapsed.dims,
            index: [0; MAX_RANK],
            element: collapsed.offsets[0],
            left: self.len(),
        }
    }
}

impl Iterator for Walk {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        self.left = self.left.checked_sub(1)?;
        let element = self.element;
        for axis in (0..self.dims.len()).rev() {
            let stride = self.strides[axis];
            self.index[axis] += 1;
            self.element = self.element.wrapping_add(stride);
            if self.index[axis] < self.dims[axis] {
                break;
            }
            let back = stride.wrapping_mul(self.dims[axis]);
            self.element = self.element.wrapping_sub(back);
            self.index[axis] = 0;
        }
        Some(element as usize)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for Walk {}
