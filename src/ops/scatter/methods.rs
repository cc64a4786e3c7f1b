//! The methods of [`Tensor`] that write or add where indices say.

use super::{Settle, first, place};
use crate::ops::gather;
use crate::ops::index_select::check_index_type;
use crate::ops::operation::same_dtype;
use crate::ops::scatter_into::InPlace;
use crate::tensor::Tensor;
use crate::tensor::layout::{Dims, axis};
use lapidary_core::{Error, Result};

impl Tensor {
    /// A copy in which the elements that `indices` names along `axis` are those of `src`, as
    /// PyTorch's `scatter`: for `axis` 1, `y[a, indices[a, b, c], c] = src[a, b, c]`. All three
    /// have as many dimensions; `indices`, `u32` or `i32`, has none larger than `src`, and none
    /// larger than `self` but for `axis`.
    ///
    /// Of several that name one element, the last along `axis` stays. An index that the axis does
    /// not have is skipped, and so is every negative one, which does not count from the end.
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
    /// [`Error::Axis`] if there is no such axis, [`Error::Shape`] unless the dimensions go
    /// together, [`Error::DType`] unless the indices are `u32` or `i32` and `src` has the type of
    /// `self`, [`Error::Foreign`] for tensors of several `Gpu`s, and [`Error::NeverFits`] if the
    /// operands are too large.
    #[track_caller]
    pub fn scatter(&self, axis: isize, indices: &Tensor, src: &Tensor) -> Result<Tensor> {
        self.scattered("scatter", axis, indices, src, Settle::WRITE)
    }

    /// A copy in which each element of `src` is added to the one that `indices` names along
    /// `axis`, as PyTorch's `scatter_add`; shapes and indices as in [`scatter`](Tensor::scatter).
    /// Integers wrap; a bool is true if any is that was added.
    ///
    /// Several that name one element are added in their order along `axis`, in f32 for f16 and
    /// bf16: the result is the same in every run. An element that very many name takes as long as
    /// they are.
    ///
    /// # Errors
    ///
    /// Those of [`scatter`](Tensor::scatter).
    #[track_caller]
    pub fn scatter_add(&self, axis: isize, indices: &Tensor, src: &Tensor) -> Result<Tensor> {
        self.scattered("scatter_add", axis, indices, src, Settle::ADD)
    }

    /// A copy in which each slice of `src` along `axis` is added to the one that `indices`, of one
    /// dimension, names: the gradient of [`index_select`](Tensor::index_select). `src` has the
    /// shape of `self`, but along `axis` that of `indices`. Order, types and indices that are not
    /// there as in [`scatter_add`](Tensor::scatter_add).
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
        if let (Some(x), Some(i), Some(src)) = (self.as_axis(), indices.as_axis(), src.as_axis()) {
            return Ok(x.index_add(axis, &i, &src)?.into_number());
        }
        let at = self.check_index_add(axis, indices, src)?;
        place(self, at, indices, src, Settle::ADD)
    }

    /// The axis along which slices are added.
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
                    "indices of shape {:?} and slices of shape {:?} do not go along axis {at} \
                     of {:?}",
                    indices.layout.shape, src.layout.shape, self.layout.shape
                ),
            });
        }
        Ok(at)
    }

    /// [`scatter`](Tensor::scatter) in place. It takes no time or memory for what no index names,
    /// if `self` is contiguous, `indices` is as large as `self` but for `axis`, and neither
    /// `indices` nor `src` is a view of the same memory. For elements of fewer than 4 bytes, what
    /// comes after `axis` must be a multiple of 4 elements besides, and so must where `self`
    /// starts, and `indices` has one along `axis`. Else all of `self` is copied twice.
    ///
    /// # Errors
    ///
    /// Those of [`scatter`](Tensor::scatter) and of [`add_`](Tensor::add_).
    #[track_caller]
    pub fn scatter_(&self, axis: isize, indices: &Tensor, src: &Tensor) -> Result<()> {
        self.check_writable("scatter_")?;
        self.scatter_within("scatter", axis, indices, src, Settle::WRITE)
    }

    /// [`scatter_add`](Tensor::scatter_add) in place.
    ///
    /// # Errors
    ///
    /// Those of [`scatter_add`](Tensor::scatter_add) and of [`add_`](Tensor::add_).
    #[track_caller]
    pub fn scatter_add_(&self, axis: isize, indices: &Tensor, src: &Tensor) -> Result<()> {
        self.check_writable("scatter_add_")?;
        self.scatter_within("scatter_add", axis, indices, src, Settle::ADD)
    }

    /// [`index_add`](Tensor::index_add) in place, as [`scatter_`](Tensor::scatter_), with as many
    /// indices along `axis` as there are.
    ///
    /// # Errors
    ///
    /// Those of [`index_add`](Tensor::index_add) and of [`add_`](Tensor::add_).
    #[track_caller]
    pub fn index_add_(&self, axis: isize, indices: &Tensor, src: &Tensor) -> Result<()> {
        self.check_writable("index_add_")?;
        if self.layout.rank() > 0 {
            let at = self.check_index_add(axis, indices, src)?;
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
        }
        self.copy_(&self.index_add(axis, indices, src)?)
    }

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
        if self.layout.rank() > 0 {
            let (at, src, named) = self.check_scatter(operation, along, indices, src)?;
            let into = InPlace {
                x: self,
                at,
                indices,
                src: &src,
                settle,
            };
            if named == self.layout.shape && into.suits() {
                return into.run();
            }
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
        if let (Some(x), Some(i), Some(src)) = (self.as_axis(), indices.as_axis(), src.as_axis()) {
            return Ok(x
                .scattered(operation, along, &i, &src, settle)?
                .into_number());
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

    /// The axis, the part of the source that the indices have, and the shape of the part of the
    /// tensor that they may name.
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
            });
        }
        // Indices may leave a part of the tensor alone, and of the source.
        let mut named = of_indices.clone();
        let src = first(src, &named)?;
        named[at] = self.layout.shape[at];
        Ok((at, src, named))
    }
}
