//! Operations whose elements decide the shape of the result. They wait for a count, or have it from
//! the caller.
//!
//! All are a running count `ends` and a search in it: element `k` of the result is the first one
//! whose count is above `k`.

use std::panic::Location;

use super::fill;
use super::index_select::check_index_type;
use super::operation::Takes;
use crate::tensor::Tensor;
use crate::tensor::called::Called;
use crate::tensor::layout::{axis as checked_axis, broadcast_shapes};
use lapidary_core::internal::MadeFor;
use lapidary_core::{DType, Error, Result};

impl Tensor {
    /// The elements where `mask`, a bool tensor, is true, in row-major order along one axis. The
    /// two shapes broadcast, as in PyTorch. For a mask of the first axes, which selects whole rows,
    /// use [`index`](Tensor::index).
    ///
    /// The number of elements decides the shape, so this reads the count and waits for the device.
    /// If that is too slow, count ahead and use
    /// [`masked_select_first`](Tensor::masked_select_first); in a browser use
    /// [`masked_select_async`](Tensor::masked_select_async).
    ///
    /// ```no_run
    /// # fn demo(x: &lapidary::Tensor) -> lapidary::Result<()> {
    /// let positive = x.masked_select(&x.gt(0)?)?; // x[x > 0]
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::DType`] if the mask holds no bools. [`Error::Shape`] if the shapes do not
    /// broadcast. [`Error::Foreign`]. [`Error::NeverFits`] if the operands are too large. And
    /// errors of the work that computes the mask.
    #[cfg(not(target_arch = "wasm32"))]
    #[track_caller]
    pub fn masked_select(&self, mask: &Tensor) -> Result<Tensor> {
        let _method = MadeFor::method("masked_select");
        let (x, ends) = counted(self, mask).called("masked_select")?;
        selected(&x, &ends, count_now(&ends)?).called("masked_select")
    }

    /// As [`masked_select`](Tensor::masked_select), as a future: the only form in a browser.
    ///
    /// # Errors
    ///
    /// Those of [`masked_select`](Tensor::masked_select).
    #[track_caller]
    pub fn masked_select_async(
        &self,
        mask: &Tensor,
    ) -> impl Future<Output = Result<Tensor>> + use<> {
        let _method = MadeFor::method("masked_select_async");
        let counted = counted(self, mask).called("masked_select_async");
        when_counted("masked_select_async", counted, selected)
    }

    /// The first `count` elements where `mask`, a bool tensor, is true, in row-major order along
    /// one axis. If there are fewer, zeros follow. The two shapes broadcast. It does not wait for
    /// the device.
    ///
    /// ```
    /// # fn demo(x: &lapidary::Tensor) -> lapidary::Result<()> {
    /// let positive = x.masked_select_first(&x.gt(0)?, 16)?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::DType`] if the mask holds no bools, [`Error::Shape`] if the shapes do not
    /// broadcast, [`Error::Foreign`], [`Error::NeverFits`] if the operands are too large.
    #[track_caller]
    pub fn masked_select_first(&self, mask: &Tensor, count: usize) -> Result<Tensor> {
        let _method = MadeFor::method("masked_select_first");
        let counted = counted(self, mask).called("masked_select_first");
        let (x, ends) = counted?;
        selected(&x, &ends, count).called("masked_select_first")
    }

    /// The indices of the elements that are not 0, in row-major order: `u32` of shape
    /// `[elements, axes]`, for every type. NaN is not 0.
    ///
    /// It waits for the count, as [`masked_select`](Tensor::masked_select) does. A browser has only
    /// [`nonzero_async`](Tensor::nonzero_async).
    ///
    /// ```no_run
    /// # fn demo(x: &lapidary::Tensor) -> lapidary::Result<()> {
    /// let places = x.gt(0)?.nonzero()?;
    /// let [rows, columns] = &places.unbind(1)?[..] else { return Ok(()) };
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::NeverFits`] if the operands are too large, and errors of the work that computes the
    /// elements.
    #[cfg(not(target_arch = "wasm32"))]
    #[track_caller]
    pub fn nonzero(&self) -> Result<Tensor> {
        let _method = MadeFor::method("nonzero");
        let (x, ends) = self.counted_nonzero().called("nonzero")?;
        places_of_all_axes(&x, &ends, count_now(&ends)?).called("nonzero")
    }

    /// As [`nonzero`](Tensor::nonzero), as a future.
    ///
    /// # Errors
    ///
    /// Those of [`nonzero`](Tensor::nonzero).
    #[track_caller]
    pub fn nonzero_async(&self) -> impl Future<Output = Result<Tensor>> + use<> {
        const OPERATION: &str = "nonzero_async";
        let _method = MadeFor::method(OPERATION);
        let counted = self.counted_nonzero().called(OPERATION);
        when_counted(OPERATION, counted, places_of_all_axes)
    }

    #[track_caller]
    fn counted_nonzero(&self) -> Result<(Tensor, Tensor)> {
        let is_counted = match self.dtype {
            DType::Bool => self.clone(),
            _ => self.ne(0)?,
        };
        Ok((self.clone(), is_counted.flatten()?.cumsum(0)?))
    }

    /// Repeats each index along `axis` as often as `counts` says, as PyTorch's `repeat_interleave`
    /// by a tensor. `counts` are `u32` or `i32`: one for each index, or one for all.
    ///
    /// It reads the counts, and waits for the device. A browser has only
    /// [`repeat_interleave_by_async`](Tensor::repeat_interleave_by_async).
    ///
    /// ```no_run
    /// # use lapidary::Tensor;
    /// # fn demo(x: &Tensor, counts: &Tensor) -> lapidary::Result<()> {
    /// let longer = x.repeat_interleave_by(counts, 0)?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Axis`] if there is no such axis. [`Error::Shape`] for another number of counts, and
    /// for a count below 0 or of 2³¹ and more. [`Error::DType`] for other counts. Those of creating
    /// a tensor, and errors of the work that computes the counts.
    #[cfg(not(target_arch = "wasm32"))]
    #[track_caller]
    pub fn repeat_interleave_by(&self, counts: &Tensor, axis: isize) -> Result<Tensor> {
        let _method = MadeFor::method(REPEAT);
        let counts = self.check_counts(counts, axis)?;
        repeated(self, axis, &counts, &counts.to_vec()?).called(REPEAT)
    }

    /// As [`repeat_interleave_by`](Tensor::repeat_interleave_by), as a future.
    ///
    /// # Errors
    ///
    /// Those of [`repeat_interleave_by`](Tensor::repeat_interleave_by).
    #[track_caller]
    pub fn repeat_interleave_by_async(
        &self,
        counts: &Tensor,
        axis: isize,
    ) -> impl Future<Output = Result<Tensor>> + use<> {
        let _method = MadeFor::method(REPEAT_ASYNC);
        let line = MadeFor::or(Location::caller());
        let checked = self.check_counts(counts, axis);
        let begun = match checked.called(REPEAT_ASYNC) {
            Ok(counts) => Ok((counts.to_vec_async(), counts, self.clone())),
            Err(error) => Err(error),
        };
        async move {
            let (read, counts, x) = begun?;
            let all = read.await?;
            let (_line, _method) = (MadeFor::line(line), MadeFor::method(REPEAT_ASYNC));
            repeated(&x, axis, &counts, &all).called(REPEAT_ASYNC)
        }
    }

    /// The counts of all indices along an axis, as `u32`. A negative one becomes a large one.
    #[track_caller]
    fn check_counts(&self, counts: &Tensor, axis: isize) -> Result<Tensor> {
        check_index_type(REPEAT, self, counts)?;
        let size = self.shape()[checked_axis(REPEAT, axis, self.rank())?];
        if counts.rank() > 1 || counts.len() != 1 && counts.len() != size {
            return Err(Error::Shape {
                operation: REPEAT,
                reason: format!("counts of shape {:?} for {size} indices", counts.shape()),
            })
            .located();
        }
        counts.cast(DType::U32)?.flatten()?.broadcast_to(&[size])
    }

    /// One more than the largest class.
    #[cfg(not(target_arch = "wasm32"))]
    #[track_caller]
    pub(super) fn count_of_classes(&self, operation: &'static str) -> Result<usize> {
        let refuse = |reason: String| Err(Error::Shape { operation, reason });
        if self.is_empty() {
            return refuse(format!("no class among {:?} elements", self.shape()));
        }
        if self.dtype == DType::U32 {
            return Ok(self.max_all()?.item::<u32>()? as usize + 1);
        }
        let bounds = Tensor::stack(&[&self.min_all()?, &self.max_all()?], 0)?;
        match bounds.to_vec::<i32>()?[..] {
            [least, most] if least >= 0 => Ok(most as usize + 1),
            [least, ..] => refuse(format!("{least} is no class")),
            [] => refuse("no class".into()),
        }
    }

    /// Nothing can wait for the classes here.
    #[cfg(target_arch = "wasm32")]
    pub(super) fn count_of_classes(&self, operation: &'static str) -> Result<usize> {
        Err(Error::WouldBlock { what: operation })
    }
}

const REPEAT: &str = "repeat_interleave_by";
const REPEAT_ASYNC: &str = "repeat_interleave_by_async";

/// The elements in one dimension, and the running count of those that the mask selects.
#[track_caller]
fn counted(x: &Tensor, mask: &Tensor) -> Result<(Tensor, Tensor)> {
    const OPERATION: &str = "masked_select";
    x.same_engine(OPERATION, mask)?;
    Takes::Bools.check(OPERATION, mask.dtype)?;
    let shape = broadcast_shapes(OPERATION, x.shape(), mask.shape())?;
    let x = x.broadcast_to(&shape)?.flatten()?;
    let ends = mask.broadcast_to(&shape)?.flatten()?.cumsum(0)?;
    Ok((x, ends))
}

/// The last of running counts, if there are any.
fn last(ends: &Tensor) -> Result<Option<Tensor>> {
    match ends.len() {
        0 => Ok(None),
        _ => ends.narrow(0, -1, 1).map(Some),
    }
}

/// The last of running counts. Waits for it.
#[cfg(not(target_arch = "wasm32"))]
#[track_caller]
fn count_now(ends: &Tensor) -> Result<usize> {
    match last(ends)? {
        None => Ok(0),
        Some(count) => Ok(count.item::<u32>()? as usize),
    }
}

/// What `finish` makes of a tensor, its running counts, and the last of them.
#[track_caller]
fn when_counted(
    operation: &'static str,
    counted: Result<(Tensor, Tensor)>,
    finish: fn(&Tensor, &Tensor, usize) -> Result<Tensor>,
) -> impl Future<Output = Result<Tensor>> + use<> {
    let line = MadeFor::or(Location::caller());
    let begin = |(x, ends): (Tensor, Tensor)| {
        let read = last(&ends)?.map(|count| count.to_vec_async::<u32>());
        Ok((read, x, ends))
    };
    let begun = counted.and_then(begin);
    async move {
        let (read, x, ends) = begun?;
        let count = match read {
            None => 0,
            Some(read) => read.await?.first().map_or(0, |&count| count as usize),
        };
        let (_line, _method) = (MadeFor::line(line), MadeFor::method(operation));
        finish(&x, &ends, count).called(operation)
    }
}

/// The first `count` selected elements.
#[track_caller]
fn selected(x: &Tensor, ends: &Tensor, count: usize) -> Result<Tensor> {
    x.index_select(0, &places(ends, count)?)
}

/// The positions of the first `count` selected elements. If there are fewer, positions past the end
/// follow.
#[track_caller]
fn places(ends: &Tensor, count: usize) -> Result<Tensor> {
    let numbers = fill::counting(&ends.engine, count)?;
    ends.search_sorted(&numbers, true)
}

/// The indices of these elements along all axes of `x`.
#[track_caller]
fn places_of_all_axes(x: &Tensor, ends: &Tensor, count: usize) -> Result<Tensor> {
    if x.rank() == 0 || count == 0 {
        return fill::empty(&x.engine, &[count, x.rank()], DType::U32);
    }
    let mut left = places(ends, count)?;
    let mut columns = Vec::with_capacity(x.rank());
    for &size in x.shape().iter().skip(1).rev() {
        // A tensor has fewer elements than 2³².
        columns.push(left.rem(size as u32)?);
        left = left.floor_divide(size as u32)?;
    }
    columns.push(left);
    let columns: Vec<&Tensor> = columns.iter().rev().collect();
    Tensor::stack(&columns, 1)
}

/// The indices of `x` along `axis`, each as often as `all` says, which are the elements of
/// `counts`.
#[track_caller]
fn repeated(x: &Tensor, axis: isize, counts: &Tensor, all: &[u32]) -> Result<Tensor> {
    if let Some(count) = all.iter().find(|&&count| count > i32::MAX as u32) {
        return Err(Error::Shape {
            operation: REPEAT,
            reason: format!(
                "a count of {} as i32, of {count} as u32, is not from 0 to {}",
                *count as i32,
                i32::MAX
            ),
        });
    }
    let total = all.iter().fold(0, |total: usize, &count| {
        total.saturating_add(count as usize)
    });
    x.index_select(axis, &places(&counts.cumsum(0)?, total)?)
}
