//! Layouts for kernels: merges dimensions to as few as possible.

use smallvec::SmallVec;

use super::{Layout, MAX_RANK};

/// The fewest dimensions over which a kernel iterates several operands at once.
///
/// All numbers are `u32`, whose index arithmetic wraps: a negative stride is its two's complement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Collapsed {
    /// Outermost first, at least one. An empty shape is one dimension of 0.
    pub(crate) dims: SmallVec<[u32; MAX_RANK]>,
    /// For each operand the stride of each of `dims`, in elements, followed by zeros.
    pub(crate) strides: SmallVec<[[u32; MAX_RANK]; 4]>,
    /// For each operand the element at index 0.
    pub(crate) offsets: SmallVec<[u32; 4]>,
}

/// Merges neighbouring dimensions where every operand permits it, and drops those of size 1. The
/// operands are already broadcast to `shape`. Contiguous operands give a single dimension.
pub(crate) fn collapse(shape: &[usize], operands: &[&Layout]) -> Collapsed {
    debug_assert!(operands.iter().all(|operand| operand.shape[..] == *shape));
    let mut dims: SmallVec<[u32; MAX_RANK]> = SmallVec::new();
    let mut strides: SmallVec<[[u32; MAX_RANK]; 4]> = SmallVec::new();
    let mut offsets = SmallVec::new();
    for operand in operands {
        strides.push([0; MAX_RANK]);
        offsets.push(operand.offset as u32);
    }
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
        offsets,
    }
}

/// The elements of a layout, row by row: a row is the innermost collapsed dimension. Iterates over
/// the first element of each row, in row-major order.
#[derive(Debug)]
pub(crate) struct Rows {
    /// Elements of one row.
    pub(crate) len: usize,
    /// Stride from one element of a row to the next; it wraps.
    pub(crate) stride: u32,
    outer: Collapsed,
    index: [u32; MAX_RANK],
    start: u32,
    left: usize,
}

impl Layout {
    /// The elements of the layout, row by row.
    pub(crate) fn rows(&self) -> Rows {
        let mut outer = collapse(&self.shape, &[self]);
        let len = outer.dims.pop().map_or(1, |dim| dim as usize);
        Rows {
            len,
            stride: outer.strides[0][outer.dims.len()],
            start: outer.offsets[0],
            outer,
            index: [0; MAX_RANK],
            left: self.len().checked_div(len).unwrap_or(0),
        }
    }

    /// The elements of the layout, in row-major order of the indices.
    #[cfg(test)]
    pub(crate) fn elements(&self) -> impl Iterator<Item = usize> + use<> {
        let rows = self.rows();
        let (len, stride) = (rows.len as u32, rows.stride);
        rows.flat_map(move |start| {
            (0..len).map(move |at| (start as u32).wrapping_add(at.wrapping_mul(stride)) as usize)
        })
    }
}

impl Iterator for Rows {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        self.left = self.left.checked_sub(1)?;
        let start = self.start;
        for (axis, &dim) in self.outer.dims.iter().enumerate().rev() {
            let stride = self.outer.strides[0][axis];
            self.index[axis] += 1;
            self.start = self.start.wrapping_add(stride);
            if self.index[axis] < dim {
                break;
            }
            self.start = self.start.wrapping_sub(stride.wrapping_mul(dim));
            self.index[axis] = 0;
        }
        Some(start as usize)
    }
}
