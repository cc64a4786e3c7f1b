//! Splitting, joining and repeating tensors by views and copies, without own kernels.

mod gradient;

use super::fill;
use crate::ops::index_select::check_index_type;
use crate::tensor::Tensor;
use crate::tensor::called::Called;
use crate::tensor::layout::{Dims, MAX_RANK, axis, checked};
use lapidary_core::internal::MadeFor;
use lapidary_core::{DType, Error, Result};

impl Tensor {
    /// Stacks tensors of one shape along a new axis.
    ///
    /// ```
    /// # use lapidary::Tensor;
    /// # fn demo(red: &Tensor, green: &Tensor, blue: &Tensor) -> lapidary::Result<()> {
    /// let image = Tensor::stack(&[red, green, blue], -1)?; // [height, width, 3]
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`concat`](Tensor::concat). The new axis counts as a dimension.
    #[track_caller]
    pub fn stack(tensors: &[&Tensor], axis: isize) -> Result<Tensor> {
        let _method = MadeFor::method("stack");
        if let [first, others @ ..] = tensors {
            if let Some(other) = others.iter().find(|t| t.shape() != first.shape()) {
                return Err(Error::Shape {
                    operation: "stack",
                    reason: format!("shapes {:?} and {:?} differ", first.shape(), other.shape()),
                })
                .located();
            }
        }
        let views = tensors.iter().map(|tensor| tensor.unsqueeze(axis));
        let views = views.collect::<Result<Vec<Tensor>>>().called("stack")?;
        Tensor::concat(&views.iter().collect::<Vec<&Tensor>>(), axis).called("stack")
    }

    /// Views of `size` elements each along `axis`; the last one may be smaller.
    ///
    /// ```
    /// # fn demo(qkv: &lapidary::Tensor) -> lapidary::Result<()> {
    /// let [q, k, v] = &qkv.split(64, -1)?[..] else { return Ok(()) };
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Axis`] if there is no such axis, [`Error::Shape`] if `size` is 0 and the axis has
    /// elements.
    #[track_caller]
    pub fn split(&self, size: usize, axis: isize) -> Result<Vec<Tensor>> {
        const OPERATION: &str = "split";
        let at = self::axis(OPERATION, axis, self.layout.rank())?;
        let whole = self.layout.shape[at];
        if size == 0 && whole > 0 {
            return Err(Error::Shape {
                operation: OPERATION,
                reason: format!("axis {at} of {:?} in pieces of 0", self.layout.shape),
            })
            .located();
        }
        // An empty axis is one empty piece.
        let count = whole.div_ceil(size.max(1)).max(1);
        let piece = |index: usize| {
            let start = index * size;
            self.narrow(axis, start, size.min(whole - start))
        };
        (0..count).map(piece).collect()
    }

    /// Consecutive views of these sizes along `axis`, which together cover it.
    ///
    /// # Errors
    ///
    /// [`Error::Axis`] if there is no such axis, [`Error::Shape`] unless the sizes add up to its
    /// size.
    #[track_caller]
    pub fn split_sizes(&self, sizes: &[usize], axis: isize) -> Result<Vec<Tensor>> {
        const OPERATION: &str = "split_sizes";
        let at = self::axis(OPERATION, axis, self.layout.rank())?;
        let add = |sum: usize, &size: &usize| sum.checked_add(size);
        if sizes.iter().try_fold(0, add) != Some(self.layout.shape[at]) {
            return Err(Error::Shape {
                operation: OPERATION,
                reason: format!(
                    "axis {at} of {:?} in pieces of {sizes:?}",
                    self.layout.shape
                ),
            })
            .located();
        }
        let mut start = 0;
        let piece = |&size: &usize| {
            start += size;
            self.narrow(axis, start - size, size)
        };
        sizes.iter().map(piece).collect()
    }

    /// `count` views along `axis`, as in PyTorch. All have one size, except that the last may be
    /// smaller. There are fewer if that size covers the axis sooner, unless it is empty.
    ///
    /// # Errors
    ///
    /// [`Error::Axis`] if there is no such axis, [`Error::Shape`] if `count` is 0.
    #[track_caller]
    pub fn chunk(&self, count: usize, axis: isize) -> Result<Vec<Tensor>> {
        const OPERATION: &str = "chunk";
        let at = self::axis(OPERATION, axis, self.layout.rank())?;
        match count {
            0 => Err(Error::Shape {
                operation: OPERATION,
                reason: "no chunks".into(),
            })
            .located(),
            // All pieces are empty, so none is too many.
            _ if self.layout.shape[at] == 0 => {
                (0..count).map(|_| self.narrow(axis, 0, 0)).collect()
            }
            _ => self.split(self.layout.shape[at].div_ceil(count), axis),
        }
    }

    /// Repeats the whole tensor along every axis, as PyTorch's `repeat` and NumPy's `tile`. Counts
    /// for more axes than there are add new axes in front.
    ///
    /// ```
    /// # fn demo(row: &lapidary::Tensor) -> lapidary::Result<()> {
    /// let rows = row.repeat(&[4, 1])?; // [n] → [4, n]
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Shape`] for fewer counts than axes, or more than eight; those of creating a tensor.
    #[doc(alias = "tile")]
    #[track_caller]
    pub fn repeat(&self, counts: &[usize]) -> Result<Tensor> {
        const OPERATION: &str = "repeat";
        let _method = MadeFor::method(OPERATION);
        let rank = self.layout.rank();
        if counts.len() < rank {
            return Err(Error::Shape {
                operation: OPERATION,
                reason: format!("{counts:?} are too few for {:?}", self.layout.shape),
            })
            .located();
        }
        let mut old: Dims = counts[rank..].iter().map(|_| 1).collect();
        old.extend_from_slice(&self.layout.shape);
        let shape: Dims = (old.iter().zip(counts))
            .map(|(dim, count)| dim.saturating_mul(*count))
            .collect();
        checked(&shape, self.dtype).called(OPERATION)?;
        let mut made = self.reshape(&old).called(OPERATION)?;
        for (at, &count) in counts.iter().enumerate().filter(|(_, count)| **count != 1) {
            made = made.repeat_blocks(at, 1, count).called(OPERATION)?;
        }
        made.apart_from(self).called(OPERATION)
    }

    /// Repeats every element `count` times along `axis`, as PyTorch's `repeat_interleave` and
    /// NumPy's `repeat`.
    ///
    /// # Errors
    ///
    /// [`Error::Axis`] if there is no such axis; those of creating a tensor.
    #[track_caller]
    pub fn repeat_interleave(&self, count: usize, axis: isize) -> Result<Tensor> {
        const OPERATION: &str = "repeat_interleave";
        let _method = MadeFor::method(OPERATION);
        let at = self::axis(OPERATION, axis, self.layout.rank())?;
        let made = self.repeat_blocks(at, self.layout.shape[at], count);
        made.called(OPERATION)?.apart_from(self).called(OPERATION)
    }

    /// Ensures that the result can be written, and shares no storage with `source`: else copies it.
    #[track_caller]
    pub(super) fn apart_from(self, source: &Tensor) -> Result<Tensor> {
        match self.shares_storage_with(source) || self.layout.has_overlap() {
            true => self.copy(),
            false => Ok(self),
        }
    }

    /// Cuts an axis into `blocks`, and repeats each of them.
    #[track_caller]
    fn repeat_blocks(&self, at: usize, blocks: usize, count: usize) -> Result<Tensor> {
        let mut shape = self.layout.shape.clone();
        shape[at] = shape[at].saturating_mul(count);
        checked(&shape, self.dtype)?;
        if shape.contains(&0) {
            let kept = self.layout.shape[at].min(shape[at]);
            return self.narrow(at as isize, 0, kept)?.reshape(&shape);
        }
        let old = &self.layout.shape;
        let before: usize = old[..at].iter().product();
        let rest: usize = old[at..].iter().product::<usize>() / blocks;
        let rows = self.reshape(&[before * blocks, 1, rest])?;
        rows.broadcast_to(&[before * blocks, count, rest])?
            .reshape(&shape)
    }

    /// Shifts the elements along axes. Elements that leave at one end come back at the other.
    ///
    /// # Errors
    ///
    /// [`Error::Shape`] unless there are as many shifts as axes, [`Error::Axis`] for an axis that
    /// does not exist; those of creating a tensor.
    #[track_caller]
    pub fn roll(&self, shifts: &[isize], axes: &[isize]) -> Result<Tensor> {
        let _method = MadeFor::method("roll");
        if shifts.len() != axes.len() {
            return Err(Error::Shape {
                operation: "roll",
                reason: format!("{} shifts for {} axes", shifts.len(), axes.len()),
            })
            .located();
        }
        if self.is_tracked() {
            return self.roll_recorded(shifts, axes);
        }
        let mut made = self.clone();
        for (&shift, &along) in shifts.iter().zip(axes) {
            let size = made.layout.shape[axis("roll", along, made.layout.rank())?];
            // Sizes fit into an isize.
            let by = shift.rem_euclid(size.max(1) as isize) as usize;
            if by != 0 {
                let last = made.narrow(along, size - by, by)?;
                let first = made.narrow(along, 0, size - by)?;
                made = Tensor::concat(&[&last, &first], along)?;
            }
        }
        made.apart_from(self)
    }

    /// Adds a last axis of `classes` elements: 1 at the index, and 0 elsewhere. Indices are `u32`
    /// or `i32`. An index that is not a class gives only zeros. With `None`, the number of classes
    /// is one more than the largest index, as in PyTorch. That waits for the device.
    ///
    /// ```
    /// # use lapidary::{DType, Tensor};
    /// # fn demo(labels: &Tensor) -> lapidary::Result<()> {
    /// let targets = labels.one_hot(10, DType::F32)?; // [batch] → [batch, 10]
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::DType`] for other indices. [`Error::Shape`] if there are eight dimensions already,
    /// or more than 2³¹ − 1 classes. Those of creating a tensor. With `None` also `Shape` for no
    /// elements or a negative one, errors of the work that computes the indices, and in a browser
    /// [`Error::WouldBlock`].
    #[track_caller]
    pub fn one_hot(&self, classes: impl Into<Option<usize>>, dtype: DType) -> Result<Tensor> {
        const OPERATION: &str = "one_hot";
        let _method = MadeFor::method(OPERATION);
        check_index_type(OPERATION, self, self)?;
        let classes = match classes.into() {
            Some(classes) => classes,
            None => self.count_of_classes(OPERATION)?,
        };
        let count = i32::try_from(classes).map_err(|_| Error::Shape {
            operation: OPERATION,
            reason: format!("{classes} are too many classes"),
        });
        let count = count.located()?;
        if self.layout.rank() == MAX_RANK {
            return Err(Error::Shape {
                operation: OPERATION,
                reason: format!("{:?} has no room for another axis", self.layout.shape),
            })
            .located();
        }
        let numbers = fill::arange(&self.engine, 0.into(), count.into(), 1.into(), self.dtype);
        let is_one = self.unsqueeze(-1)?.eq(&numbers.called(OPERATION)?);
        is_one.called(OPERATION)?.cast(dtype).called(OPERATION)
    }
}
