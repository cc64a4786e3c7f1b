//! Views: other indices for the same elements. None of them touches a byte.

use super::shapes::{axis, axis_or_number, check_view, position};
use super::{Dims, Layout, MAX_RANK, Strides, row_major};
use lapidary_core::{Error, Result};

impl Layout {
    /// The same elements in row-major order under another shape, or `None` if no strides can say
    /// that, and the elements have to be copied first.
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

    /// The strides of a shape with as many elements (not 0): every dimension has to fit into one
    /// run of dimensions that follow each other in memory as if they were one.
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

    /// Size and stride of every maximal run of dimensions that are as good as one, outermost
    /// first; dimensions of size 1 belong to none.
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

    /// Axis `d` of the result is axis `axes[d]`; every axis is named once.
    pub(crate) fn permute(&self, axes: &[isize]) -> Result<Layout> {
        const OPERATION: &str = "permute";
        let rank = self.rank();
        if axes.len() != rank {
            return Err(shape_error(
                OPERATION,
                format!("{axes:?} does not name each of {rank} axes once"),
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

    /// Two axes change places.
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

    /// The elements `start, start + step, …` along an axis, before `end`: as Python slices do it,
    /// negative bounds count from the end, bounds out of range are clamped, `None` means all
    /// there is in the direction of the step, and a negative step goes backwards.
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
        // A dimension is within MAX_ELEMENTS, so it and what is added to it below fit an isize.
        let dim = self.shape[axis] as isize;
        // The positions at which a walk in the step's direction may start or end: going
        // backwards, the end may be one before the first.
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
        // One past the last element is a start too, of no elements.
        let first = match start < 0 {
            true => dim.checked_sub(start.unsigned_abs()),
            false => Some(start.unsigned_abs()),
        };
        let is_inside = |first: &usize| first.checked_add(len).is_some_and(|end| end <= dim);
        let Some(first) = first.filter(is_inside) else {
            return Err(shape_error(
                OPERATION,
                format!("{len} elements from {start} on, of {dim} along axis {axis}"),
            ));
        };
        Ok(self.strided(axis, first, len, 1))
    }

    /// One index along an axis, which goes away. −1 is the last.
    pub(crate) fn select(&self, along: isize, index: isize) -> Result<Layout> {
        const OPERATION: &str = "select";
        let axis = axis(OPERATION, along, self.rank())?;
        let dim = self.shape[axis];
        let Some(position) = position(index, dim) else {
            return Err(shape_error(
                OPERATION,
                format!("index {index} of {dim} along axis {axis}"),
            ));
        };
        let mut view = self.strided(axis, position, 1, 1);
        view.drop_axis(axis);
        Ok(view)
    }

    /// `len` elements along an axis, `step` apart. They are there.
    fn strided(&self, axis: usize, start: usize, len: usize, step: isize) -> Layout {
        let mut view = self.clone();
        view.shape[axis] = len;
        // An empty view keeps its offset, so that no offset ever leaves the storage.
        if !view.shape.contains(&0) {
            let ahead = self.strides[axis].wrapping_mul(start as isize);
            view.offset = view.offset.wrapping_add_signed(ahead);
        }
        if len > 1 {
            view.strides[axis] = view.strides[axis].wrapping_mul(step);
        }
        view
    }

    /// Without the dimensions of size 1.
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

    /// Without one dimension, which is of size 1.
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

    /// With a dimension of size 1 more, which becomes axis `along` of the result.
    pub(crate) fn unsqueeze(&self, along: isize) -> Result<Layout> {
        const OPERATION: &str = "unsqueeze";
        let axis = axis(OPERATION, along, self.rank() + 1)?;
        let mut view = self.clone();
        view.shape.insert(axis, 1);
        check_view(OPERATION, &view.shape)?;
        // What a row-major tensor of that shape has there.
        let inner = match (self.shape.get(axis), self.strides.get(axis)) {
            (Some(&dim), Some(&stride)) => stride.wrapping_mul(dim.max(1) as isize),
            _ => 1,
        };
        view.strides.insert(axis, inner);
        Ok(view)
    }

    /// The axes named here run backwards; each is named once.
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

    /// Repeats dimensions of size 1, and adds dimensions in front, by strides of 0.
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
