//! Views: other layouts for the same elements. They copy and change no bytes.

use super::shapes::{axis, axis_or_number, check_view, position};
use super::{Dims, Layout, MAX_RANK, Strides, row_major};
use lapidary_core::{Error, Result};

impl Layout {
    /// The same elements in row-major order under another shape. `None` if no strides express that;
    /// then the elements have to be copied first.
    pub(crate) fn reshape(&self, shape: &[usize]) -> Result<Option<Layout>> {
        const OPERATION: &str = "reshape";
        check_view(OPERATION, shape)?;
        let target = Layout {
            shape: Dims::from_slice(shape),
            strides: row_major(shape),
            offset: self.offset,
        };
        if target.len() != self.len() {
            let (from, to) = (self.len(), target.len());
            return Err(shape_error(
                OPERATION,
                format!(
                    "{:?} holds {from} elements, {shape:?} holds {to}",
                    &self.shape[..]
                ),
            ));
        }
        if self.is_contiguous() {
            return Ok(Some(target));
        }
        Ok(self
            .split(shape)
            .map(|strides| Layout { strides, ..target }))
    }

    /// The strides of a shape with as many elements (not 0). Every dimension has to fit into one
    /// run of dimensions that are contiguous in memory.
    fn split(&self, shape: &[usize]) -> Option<Strides> {
        let mut runs = self.runs();
        let (mut left, mut stride) = (1_usize, 1_isize);
        let mut strides = Strides::from_elem(1, shape.len());
        for (axis, &dim) in shape.iter().enumerate().rev() {
            if left == 1 && dim != 1 {
                (left, stride) = runs.pop()?;
            }
            if !left.is_multiple_of(dim) {
                return None;
            }
            strides[axis] = stride;
            left /= dim;
            stride = stride.wrapping_mul(dim as isize);
        }
        Some(strides)
    }

    /// Size and stride of each maximal run of dimensions that act as one, outermost first.
    /// Dimensions of size 1 belong to no run.
    fn runs(&self) -> Vec<(usize, isize)> {
        let mut runs: Vec<(usize, isize)> = Vec::with_capacity(self.rank());
        for (&dim, &stride) in self.shape.iter().zip(&self.strides) {
            if dim == 1 {
                continue;
            }
            match runs.last_mut() {
                Some(run) if run.1 == stride.wrapping_mul(dim as isize) => {
                    *run = (run.0.saturating_mul(dim), stride);
                }
                _ => runs.push((dim, stride)),
            }
        }
        runs
    }

    /// Axis `d` of the result is axis `axes[d]`; each axis occurs once.
    pub(crate) fn permute(&self, axes: &[isize]) -> Result<Layout> {
        const OPERATION: &str = "permute";
        let rank = self.rank();
        if axes.len() != rank {
            return Err(shape_error(
                OPERATION,
                format!("{axes:?} must name each of the {rank} axes once"),
            ));
        }
        let (mut shape, mut strides) = (Dims::new(), Strides::new());
        let mut seen = [false; MAX_RANK];
        for &given in axes {
            let axis = axis(OPERATION, given, rank)?;
            if std::mem::replace(&mut seen[axis], true) {
                return Err(shape_error(
                    OPERATION,
                    format!("{axes:?} names axis {axis} twice"),
                ));
            }
            shape.push(self.shape[axis]);
            strides.push(self.strides[axis]);
        }
        Ok(Layout {
            shape,
            strides,
            offset: self.offset,
        })
    }

    /// Exchanges two axes.
    pub(crate) fn transpose(&self, a: isize, b: isize) -> Result<Layout> {
        let (a, b) = (
            axis_or_number("transpose", a, self.rank())?,
            axis_or_number("transpose", b, self.rank())?,
        );
        let mut view = self.clone();
        if a != b {
            view.shape.swap(a, b);
            view.strides.swap(a, b);
        }
        Ok(view)
    }

    /// The elements `start, start + step, …` before `end` along an axis, as in Python's slices.
    /// Negative bounds count from the end, and bounds out of range are clamped. A negative step
    /// goes backwards. `None` means the first or last element in the step's direction.
    pub(crate) fn slice(
        &self,
        along: isize,
        start: Option<isize>,
        end: Option<isize>,
        step: isize,
    ) -> Result<Layout> {
        const OPERATION: &str = "slice";
        let axis = axis(OPERATION, along, self.rank())?;
        if step == 0 {
            return Err(shape_error(OPERATION, "the step is 0".into()));
        }
        // A dimension is at most MAX_ELEMENTS, so the sums below fit an isize.
        let dim = self.shape[axis] as isize;
        // The bounds of start and end in the step's direction. Backwards, the end may be one before
        // the first element.
        let (lowest, highest) = if step > 0 { (0, dim) } else { (-1, dim - 1) };
        let clamp = |bound: Option<isize>, default: isize| match bound {
            None => default,
            Some(bound) if bound < 0 => bound.saturating_add(dim).clamp(lowest, highest),
            Some(bound) => bound.clamp(lowest, highest),
        };
        let (first, last) = if step > 0 {
            (lowest, highest)
        } else {
            (highest, lowest)
        };
        let (start, end) = (clamp(start, first), clamp(end, last));
        let ahead = if step > 0 { end - start } else { start - end };
        let len = ahead.max(0).unsigned_abs().div_ceil(step.unsigned_abs());
        Ok(self.strided(axis, start.max(0).unsigned_abs(), len, step))
    }

    /// `len` elements along an axis, from `start` on. A negative start counts from the end.
    pub(crate) fn narrow(&self, along: isize, start: isize, len: usize) -> Result<Layout> {
        const OPERATION: &str = "narrow";
        let axis = axis(OPERATION, along, self.rank())?;
        let dim = self.shape[axis];
        // One past the last element is a valid start of no elements.
        let first = match start < 0 {
            true => dim.checked_sub(start.unsigned_abs()),
            false => Some(start.unsigned_abs()),
        };
        let is_inside = |first: &usize| first.checked_add(len).is_some_and(|end| end <= dim);
        let Some(first) = first.filter(is_inside) else {
            return Err(shape_error(
                OPERATION,
                format!("{len} elements from {start} on exceed axis {axis} of size {dim}"),
            ));
        };
        Ok(self.strided(axis, first, len, 1))
    }

    /// One index along an axis, which is removed. −1 is the last index.
    pub(crate) fn select(&self, along: isize, index: isize) -> Result<Layout> {
        const OPERATION: &str = "select";
        let axis = axis(OPERATION, along, self.rank())?;
        let dim = self.shape[axis];
        let Some(position) = position(index, dim) else {
            return Err(shape_error(
                OPERATION,
                format!("index {index} is out of range: axis {axis} has size {dim}"),
            ));
        };
        let mut view = self.strided(axis, position, 1, 1);
        view.drop_axis(axis);
        Ok(view)
    }

    /// `len` elements along an axis, `step` apart. The caller checked that they exist.
    fn strided(&self, axis: usize, start: usize, len: usize, step: isize) -> Layout {
        let mut view = self.clone();
        view.shape[axis] = len;
        // An empty view keeps its offset, so that no offset is outside the storage.
        if !view.shape.contains(&0) {
            let ahead = self.strides[axis].wrapping_mul(start as isize);
            view.offset = view.offset.wrapping_add_signed(ahead);
        }
        if len > 1 {
            view.strides[axis] = view.strides[axis].wrapping_mul(step);
        }
        view
    }

    /// Removes all dimensions of size 1.
    pub(crate) fn squeeze(&self) -> Layout {
        let kept = |axis: &usize| self.shape[*axis] != 1;
        Layout {
            shape: (0..self.rank())
                .filter(kept)
                .map(|axis| self.shape[axis])
                .collect(),
            strides: (0..self.rank())
                .filter(kept)
                .map(|axis| self.strides[axis])
                .collect(),
            offset: self.offset,
        }
    }

    /// Removes one dimension of size 1.
    pub(crate) fn squeeze_axis(&self, along: isize) -> Result<Layout> {
        const OPERATION: &str = "squeeze";
        let axis = axis_or_number(OPERATION, along, self.rank())?;
        if self.rank() == 0 {
            return Ok(self.clone());
        }
        if self.shape[axis] != 1 {
            return Err(shape_error(
                OPERATION,
                format!("axis {axis} of {:?} is not of size 1", &self.shape[..]),
            ));
        }
        let mut view = self.clone();
        view.drop_axis(axis);
        Ok(view)
    }

    fn drop_axis(&mut self, axis: usize) {
        self.shape.remove(axis);
        self.strides.remove(axis);
    }

    /// Adds a dimension of size 1 at position `along` of the result.
    pub(crate) fn unsqueeze(&self, along: isize) -> Result<Layout> {
        const OPERATION: &str = "unsqueeze";
        let axis = axis(OPERATION, along, self.rank() + 1)?;
        let mut view = self.clone();
        view.shape.insert(axis, 1);
        check_view(OPERATION, &view.shape)?;
        // The stride of a row-major tensor of that shape.
        let inner = match (self.shape.get(axis), self.strides.get(axis)) {
            (Some(&dim), Some(&stride)) => stride.wrapping_mul(dim.max(1) as isize),
            _ => 1,
        };
        view.strides.insert(axis, inner);
        Ok(view)
    }

    /// Reverses the named axes; each occurs once.
    pub(crate) fn flip(&self, axes: &[isize]) -> Result<Layout> {
        const OPERATION: &str = "flip";
        let mut view = self.clone();
        let mut seen = [false; MAX_RANK];
        for &given in axes {
            let axis = axis_or_number(OPERATION, given, self.rank())?;
            if std::mem::replace(&mut seen[axis], true) {
                return Err(shape_error(
                    OPERATION,
                    format!("{axes:?} names axis {axis} twice"),
                ));
            }
            if let Some(&dim) = view.shape.get(axis) {
                view = view.strided(axis, dim.saturating_sub(1), dim, -1);
            }
        }
        Ok(view)
    }

    /// Repeats dimensions of size 1, and adds dimensions in front, with strides of 0.
    pub(crate) fn broadcast_to(&self, shape: &[usize]) -> Result<Layout> {
        const OPERATION: &str = "broadcast_to";
        check_view(OPERATION, shape)?;
        let refuse = |what: String| {
            Err(shape_error(
                OPERATION,
                format!("{:?} to {shape:?}: {what}", &self.shape[..]),
            ))
        };
        let Some(added) = shape.len().checked_sub(self.rank()) else {
            return refuse(format!("{} dimensions are too few", shape.len()));
        };
        let mut strides = Strides::from_elem(0, added);
        for (axis, (&dim, &stride)) in self.shape.iter().zip(&self.strides).enumerate() {
            let wanted = shape[added + axis];
            strides.push(match dim {
                _ if dim == wanted => stride,
                1 => 0,
                _ => {
                    return refuse(format!(
                        "dimension {axis} is {dim}, which cannot be {wanted}"
                    ));
                }
            });
        }
        Ok(Layout {
            shape: Dims::from_slice(shape),
            strides,
            offset: self.offset,
        })
    }
}

fn shape_error(operation: &'static str, reason: String) -> Error {
    Error::Shape { operation, reason }
}
