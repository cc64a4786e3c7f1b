//! Views that move, split or join axes.

use super::shapes::{axis, axis_or_number, check_view};
use super::{Dims, Layout, Strides};
use lapidary_core::{Error, Result};

impl Layout {
    /// Adds an axis to a layout of one element.
    pub(crate) fn with_one_axis(&self) -> Layout {
        debug_assert_eq!(self.len(), 1);
        Layout {
            shape: Dims::from_slice(&[1]),
            strides: Strides::from_slice(&[1]),
            offset: self.offset,
        }
    }

    /// Removes all axes of a layout of one element.
    pub(crate) fn with_no_axis(&self) -> Layout {
        debug_assert_eq!(self.len(), 1);
        Layout {
            shape: Dims::new(),
            strides: Strides::new(),
            offset: self.offset,
        }
    }

    /// Moves axis `from` to position `to` of the result; the others keep their order.
    pub(crate) fn movedim(&self, from: isize, to: isize) -> Result<Layout> {
        const OPERATION: &str = "movedim";
        let from = axis_or_number(OPERATION, from, self.rank())?;
        let to = axis_or_number(OPERATION, to, self.rank())?;
        let mut view = self.clone();
        if self.rank() == 0 {
            return Ok(view);
        }
        let (dim, stride) = (view.shape.remove(from), view.strides.remove(from));
        view.shape.insert(to, dim);
        view.strides.insert(to, stride);
        Ok(view)
    }

    /// The diagonal of the matrices of axes `rows` and `columns`, as the last axis.
    pub(crate) fn diagonal(&self, offset: isize, rows: isize, columns: isize) -> Result<Layout> {
        const OPERATION: &str = "diagonal";
        let rows = axis(OPERATION, rows, self.rank())?;
        let columns = axis(OPERATION, columns, self.rank())?;
        if rows == columns {
            return Err(Error::Shape {
                operation: OPERATION,
                reason: format!("axis {rows} cannot be both the rows and the columns"),
            });
        }
        let skipped = offset.unsigned_abs();
        let (first_row, first_column) = match offset < 0 {
            true => (skipped, 0),
            false => (0, skipped),
        };
        let left = |along: usize, first: usize| self.shape[along].saturating_sub(first);
        let len = left(rows, first_row).min(left(columns, first_column));
        let steps = (self.strides[rows], self.strides[columns]);
        let mut view = self.clone();
        for at in [rows.max(columns), rows.min(columns)] {
            view.shape.remove(at);
            view.strides.remove(at);
        }
        view.shape.push(len);
        view.strides.push(steps.0.wrapping_add(steps.1));
        // An empty view keeps its offset, so that no offset is outside the storage.
        if !view.shape.contains(&0) {
            let down = steps.0.wrapping_mul(first_row as isize);
            let across = steps.1.wrapping_mul(first_column as isize);
            view.offset = view.offset.wrapping_add_signed(down.wrapping_add(across));
        }
        Ok(view)
    }

    /// The windows of `size` elements along an axis, `step` apart. A new last axis runs through a
    /// window. A 0-d tensor has one window.
    pub(crate) fn unfold(&self, along: isize, size: usize, step: usize) -> Result<Layout> {
        const OPERATION: &str = "unfold";
        let axis = axis_or_number(OPERATION, along, self.rank())?;
        let dim = self.shape.get(axis).copied().unwrap_or(1);
        if step == 0 || size > dim {
            return Err(Error::Shape {
                operation: OPERATION,
                reason: format!("windows of {size}, {step} apart, of {dim} along axis {axis}"),
            });
        }
        let mut view = self.clone();
        if self.rank() == 0 {
            view.shape.push(size);
            view.strides.push(1);
            return Ok(view);
        }
        let stride = self.strides[axis];
        let windows = (dim - size) / step + 1;
        view.shape[axis] = windows;
        if windows > 1 {
            view.strides[axis] = stride.wrapping_mul(step as isize);
        }
        view.shape.push(size);
        view.strides.push(stride);
        check_view(OPERATION, &view.shape)?;
        Ok(view)
    }

    /// Splits one axis into several of these sizes, in row-major order.
    pub(crate) fn unflatten(&self, along: isize, sizes: &[usize]) -> Result<Layout> {
        const OPERATION: &str = "unflatten";
        let axis = axis(OPERATION, along, self.rank())?;
        let dim = self.shape[axis];
        let product = sizes
            .iter()
            .try_fold(1_usize, |len, &size| len.checked_mul(size));
        if product != Some(dim) {
            return Err(Error::Shape {
                operation: OPERATION,
                reason: format!("axis {axis} of size {dim} does not split into {sizes:?}"),
            });
        }
        let (mut shape, mut strides) = (Dims::new(), Strides::new());
        shape.extend_from_slice(&self.shape[..axis]);
        strides.extend_from_slice(&self.strides[..axis]);
        shape.extend_from_slice(sizes);
        for at in 0..sizes.len() {
            let inner = sizes[at + 1..]
                .iter()
                .fold(1_usize, |len, &size| len.wrapping_mul(size.max(1)));
            strides.push(self.strides[axis].wrapping_mul(inner as isize));
        }
        shape.extend_from_slice(&self.shape[axis + 1..]);
        strides.extend_from_slice(&self.strides[axis + 1..]);
        check_view(OPERATION, &shape)?;
        let offset = self.offset;
        Ok(Layout {
            shape,
            strides,
            offset,
        })
    }
}
