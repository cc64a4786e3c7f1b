//! The methods of [`Tensor`] that write or add at indices.

use super::settle::Settle;
use super::{first, place, place_nothing};
use crate::ops::gather;
use crate::ops::index_select::check_index_type;
use crate::ops::operation::same_dtype;
use crate::ops::scatter_into::InPlace;
use crate::tensor::Tensor;
use crate::tensor::called::Called;
use crate::tensor::layout::{Dims, axis, axis_or_number};
use lapidary_core::internal::MadeFor;
use lapidary_core::{Error, Result};

impl Tensor {
    /// A copy in which elements of `src` replace those that `indices` names along `axis`, as
    /// PyTorch's `scatter`. For `axis` 1, `y[a, indices[a, b, c], c] = src[a, b, c]`. All three
    /// have as many dimensions. `indices`, `u32` or `i32`, is not larger than `src` in any
    /// dimension, and not larger than `self` except along `axis`.
    ///
    /// A 0-d tensor counts as one of shape `[1]`. Without an index, all shapes fit.
    ///
    /// If several name one element, the last one along `axis` wins. Indices outside of the axis are
    /// skipped. So are all negative indices, which do not count from the end.
    ///
    /// ```
    /// # use lapidary::Tensor;
    /// # fn demo(zeros: &Tensor, classes: &Tensor, ones: &Tensor) -> lapidary::Result<()> {
    /// let hot = zeros.scatter(1, classes, ones)?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Axis`] if there is no such axis. [`Error::Shape`] unless the dimensions match.
    /// [`Error::DType`] unless the indices are `u32` or `i32` and `src` has the type of `self`.
    /// [`Error::Foreign`] for tensors of several `Gpu`s. [`Error::NeverFits`] if the operands are
    /// too large.
    #[track_caller]
    pub fn scatter(&self, axis: isize, indices: &Tensor, src: &Tensor) -> Result<Tensor> {
        let _method = MadeFor::method("scatter");
        self.scattered("scatter", axis, indices, src, Settle::WRITE)
    }

    /// A copy in which each element of `src` is added to the one that `indices` names along `axis`,
    /// as PyTorch's `scatter_add`. Shapes and indices are as in [`scatter`](Tensor::scatter).
    /// Integers wrap. A bool is true if any of the added ones is.
    ///
    /// Elements with the same index are added in their order along `axis`, in f32 for f16 and bf16.
    /// So the result is the same in every run. The time for an element grows with the number of
    /// those that name it.
    ///
    /// # Errors
    ///
    /// Those of [`scatter`](Tensor::scatter).
    #[track_caller]
    pub fn scatter_add(&self, axis: isize, indices: &Tensor, src: &Tensor) -> Result<Tensor> {
        let _method = MadeFor::method("scatter_add");
        self.scattered("scatter_add", axis, indices, src, Settle::ADD)
    }

    /// A copy in which each slice of `src` along `axis` is added to the one that `indices` names:
    /// the gradient of [`index_select`](Tensor::index_select). `indices` has at most one dimension.
    /// `src` has the shape of `self`, but along `axis` the size of `indices`. Order, types and
    /// indices outside of the axis are as in [`scatter_add`](Tensor::scatter_add).
    ///
    /// ```
    /// # use lapidary::Tensor;
    /// # fn demo(zeros: &Tensor, tokens: &Tensor, gradient: &Tensor) -> lapidary::Result<()> {
    /// let of_weight = zeros.index_add(0, tokens, gradient)?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`scatter_add`](Tensor::scatter_add).
    #[track_caller]
    pub fn index_add(&self, axis: isize, indices: &Tensor, src: &Tensor) -> Result<Tensor> {
        let _method = MadeFor::method("index_add");
        if let Some([x, indices, src]) = Tensor::as_axes([self, indices, src]) {
            return Ok(x.index_add(axis, &indices, &src)?.with_rank_of(self));
        }
        let lined = indices.as_axis();
        let indices = lined.as_ref().unwrap_or(indices);
        let at = self.check_index_add(axis, indices, src)?;
        place(self, at, indices, src, Settle::ADD)
    }

    /// Checks the operands, and returns the axis.
    #[track_caller]
    fn check_index_add(&self, axis: isize, indices: &Tensor, src: &Tensor) -> Result<usize> {
        const OPERATION: &str = "index_add";
        let at = self::axis(OPERATION, axis, self.layout.rank())?;
        self.check_source(OPERATION, src)?;
        check_index_type(OPERATION, self, indices)?;
        let mut wanted = self.layout.shape.clone();
        wanted[at] = indices.layout.len();
        if indices.layout.rank() != 1 || src.layout.shape != wanted {
            return Err(Error::Shape {
                operation: OPERATION,
                reason: format!(
                    "indices of shape {:?} and slices of shape {:?} do not match axis {at} of \
                     {:?}",
                    indices.layout.shape, src.layout.shape, self.layout.shape
                ),
            })
            .located();
        }
        Ok(at)
    }

    /// [`scatter`](Tensor::scatter) in place. Elements that no index names take no time or memory
    /// under these conditions; otherwise all of `self` is copied twice.
    ///
    /// - `self` is contiguous, and neither `indices` nor `src` is a view of the same memory.
    /// - `indices` is as large as `self`, except along `axis`.
    /// - For elements of fewer than 4 bytes: `indices` has one element along `axis`. The number of
    ///   elements after `axis` and the offset of `self` are multiples of 4.
    ///
    /// # Errors
    ///
    /// Those of [`scatter`](Tensor::scatter) and of [`add_`](Tensor::add_).
    #[track_caller]
    pub fn scatter_(&self, axis: isize, indices: &Tensor, src: &Tensor) -> Result<()> {
        let _method = MadeFor::method("scatter_");
        self.check_writable("scatter_")?;
        let written = self.scatter_within("scatter", axis, indices, src, Settle::WRITE);
        written.called("scatter_")
    }

    /// [`scatter_add`](Tensor::scatter_add) in place.
    ///
    /// # Errors
    ///
    /// Those of [`scatter_add`](Tensor::scatter_add) and of [`add_`](Tensor::add_).
    #[track_caller]
    pub fn scatter_add_(&self, axis: isize, indices: &Tensor, src: &Tensor) -> Result<()> {
        let _method = MadeFor::method("scatter_add_");
        self.check_writable("scatter_add_")?;
        let written = self.scatter_within("scatter_add", axis, indices, src, Settle::ADD);
        written.called("scatter_add_")
    }

    /// [`index_add`](Tensor::index_add) in place, as [`scatter_`](Tensor::scatter_), but with any
    /// number of indices along `axis`.
    ///
    /// # Errors
    ///
    /// Those of [`index_add`](Tensor::index_add) and of [`add_`](Tensor::add_).
    #[track_caller]
    pub fn index_add_(&self, axis: isize, indices: &Tensor, src: &Tensor) -> Result<()> {
        let _method = MadeFor::method("index_add_");
        self.check_writable("index_add_")?;
        if self.records_write(&[src]) {
            let old = &self.elements_before("index_add_")?;
            let made = old.index_add(axis, indices, src).called("index_add_")?;
            return self.assign("index_add_", &made);
        }
        if let Some([x, indices, src]) = Tensor::as_axes([self, indices, src]) {
            return x.index_add_(axis, &indices, &src);
        }
        let lined = indices.as_axis();
        let indices = lined.as_ref().unwrap_or(indices);
        let at = self
            .check_index_add(axis, indices, src)
            .called("index_add_")?;
        let settle = Settle::ADD;
        let into = InPlace {
            x: self,
            at,
            indices,
            src,
            settle,
        };
        if into.suits() {
            return into.run();
        }
        self.copy_(&self.index_add(axis, indices, src).called("index_add_")?)
    }

    #[track_caller]
    fn check_source(&self, operation: &'static str, src: &Tensor) -> Result<()> {
        self.same_engine(operation, src)?;
        same_dtype(operation, self.dtype, src.dtype)
    }

    #[track_caller]
    pub(super) fn scatter_within(
        &self,
        operation: &'static str,
        along: isize,
        indices: &Tensor,
        src: &Tensor,
        settle: Settle,
    ) -> Result<()> {
        if self.records_write(&[src]) {
            let old = &self.elements_before(operation)?;
            let made = old.scattered(operation, along, indices, src, settle)?;
            return self.assign(operation, &made);
        }
        if self.is_named_nowhere(operation, along, indices, src)? {
            return Ok(());
        }
        if let Some([x, indices, src]) = Tensor::as_axes([self, indices, src]) {
            return x.scatter_within(operation, along, &indices, &src, settle);
        }
        let (at, part, named) = self.check_scatter(operation, along, indices, src)?;
        let into = InPlace {
            x: self,
            at,
            indices,
            src: &part,
            settle,
        };
        if named == self.layout.shape && into.suits() {
            return into.run();
        }
        self.copy_(&self.scattered(operation, along, indices, src, settle)?)
    }

    #[track_caller]
    pub(super) fn scattered(
        &self,
        operation: &'static str,
        along: isize,
        indices: &Tensor,
        src: &Tensor,
        settle: Settle,
    ) -> Result<Tensor> {
        if self.is_named_nowhere(operation, along, indices, src)? {
            return place_nothing(self, src);
        }
        if let Some([x, indices, src]) = Tensor::as_axes([self, indices, src]) {
            let made = x.scattered(operation, along, &indices, &src, settle)?;
            return Ok(made.with_rank_of(self));
        }
        let (at, src, named) = self.check_scatter(operation, along, indices, src)?;
        if named == self.layout.shape {
            return place(self, at, indices, &src, settle);
        }
        let result = self.copy()?;
        let made = place(&first(self, &named)?, at, indices, &src, settle)?;
        first(&result, &named)?.copy_(&made)?;
        Ok(result)
    }

    /// Whether there is no index. Then the shapes do not matter, but all else is checked.
    #[track_caller]
    fn is_named_nowhere(
        &self,
        operation: &'static str,
        along: isize,
        indices: &Tensor,
        src: &Tensor,
    ) -> Result<bool> {
        if indices.layout.len() > 0 {
            return Ok(false);
        }
        axis_or_number(operation, along, self.layout.rank())?;
        check_index_type(operation, self, indices)?;
        self.check_source(operation, src)?;
        Ok(true)
    }

    /// The axis, the part of `src` that `indices` covers, and the shape of the part of `self` that
    /// it may name.
    #[track_caller]
    fn check_scatter(
        &self,
        operation: &'static str,
        along: isize,
        indices: &Tensor,
        src: &Tensor,
    ) -> Result<(usize, Tensor, Dims)> {
        let at = gather::check(operation, self, along, indices)?;
        self.check_source(operation, src)?;
        let (of_indices, of_src) = (&indices.layout.shape, &src.layout.shape);
        gather::fits_within(operation, of_indices, &self.layout.shape, at)?;
        let is_in_src = of_src.len() == of_indices.len()
            && of_src
                .iter()
                .zip(of_indices)
                .all(|(src, index)| index <= src);
        if !is_in_src {
            return Err(Error::Shape {
                operation,
                reason: format!("the indices {of_indices:?} do not fit into {of_src:?}"),
            })
            .located();
        }
        // Indices may cover only a part of the tensor and of the source.
        let mut named = of_indices.clone();
        let src = first(src, &named)?;
        named[at] = self.layout.shape[at];
        Ok((at, src, named))
    }
}
