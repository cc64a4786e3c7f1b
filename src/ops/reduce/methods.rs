//! The methods of [`Tensor`] that reduce by one pass.

use super::{Fold, Lift, Op, fold};
use crate::ops::normalize::check_float;
use crate::ops::rows::Axes;
use crate::tensor::Tensor;
use crate::tensor::layout::Layout;
use lapidary_core::{DType, Result};

/// Reductions over axes, as in NumPy: negative axes count from the last, no axes at all fold
/// nothing, and an axis that is named twice or is not there is an error
/// ([`Error::Shape`](crate::Error::Shape), [`Error::Axis`](crate::Error::Axis)). The axes go away,
/// or with `_keepdim` stay with size 1; `_all` folds everything, into shape `[]`. All of them take
/// any view, read each element once, and add in blocks, so that the error of a sum does not grow
/// with the number of its terms.
///
/// ```
/// # fn demo(x: &lapidary::Tensor) -> lapidary::Result<()> {
/// let total = x.sum_all()?; // shape []
/// let centred = x.mean_keepdim(&[-1])?; // shape [.., 1], broadcasts against x
/// let peaks = x.max(&[0, 1])?;
/// let zeros = x.len() as f32 - x.count_nonzero_all()?.cast(x.dtype())?;
/// # Ok(()) }
/// ```
impl Tensor {
    /// Refuses axes that are not there or come twice.
    pub(super) fn checked_axes(&self, operation: &'static str, axes: &[isize]) -> Result<Axes> {
        Axes::named(operation, axes, self.layout.rank())
    }

    #[track_caller]
    pub(super) fn reduce(
        &self,
        operation: &'static str,
        op: Op,
        folded: Axes,
        keep: bool,
    ) -> Result<Tensor> {
        let shape = &self.layout.shape;
        if op == Op::MEAN {
            check_float(operation, self)?;
        }
        let is_extreme = matches!(op.fold, Fold::Max | Fold::Min);
        let out = match (op.lift, self.dtype) {
            (Lift::Truth, _) if is_extreme => DType::Bool,
            (Lift::Truth, _) => DType::U32,
            (_, DType::U8 | DType::Bool) if !is_extreme => DType::U32,
            (_, DType::I8) if !is_extreme => DType::I32,
            (_, dtype) => dtype,
        };
        if is_extreme && op.lift != Lift::Truth {
            super::refuse_empty(operation, shape, folded)?;
        }
        let mut result = fold(self, None, op, folded, out)?;
        result.layout = Layout::contiguous(&folded.fold_shape(shape, keep));
        Ok(result)
    }
}

macro_rules! reductions {
    ($($(#[$doc:meta])+ $name:ident $keepdim:ident $all:ident $of:literal $op:ident;)+) => {
        impl Tensor {$(
            $(#[$doc])+
            #[track_caller]
            pub fn $name(&self, axes: &[isize]) -> Result<Tensor> {
                self.reduce($of, Op::$op, self.checked_axes($of, axes)?, false)
            }

            #[doc = concat!("As [`", $of, "`](Tensor::", $of, "); the axes stay, with size 1.")]
            ///
            /// # Errors
            ///
            #[doc = concat!("Those of [`", $of, "`](Tensor::", $of, ").")]
            #[track_caller]
            pub fn $keepdim(&self, axes: &[isize]) -> Result<Tensor> {
                self.reduce($of, Op::$op, self.checked_axes($of, axes)?, true)
            }

            #[doc = concat!("As [`", $of, "`](Tensor::", $of, ") of all elements, with shape `[]`.")]
            ///
            /// # Errors
            ///
            #[doc = concat!("Those of [`", $of, "`](Tensor::", $of, ").")]
            #[track_caller]
            pub fn $all(&self) -> Result<Tensor> {
                self.reduce($of, Op::$op, Axes::all(self.layout.rank()), false)
            }
        )+}
    };
}

reductions! {
    /// The sum over `axes`; the sum of nothing is 0.
    ///
    /// f16 and bf16 are accumulated in f32. Sums of `i32` and `u32` wrap around; those of `u8` and
    /// `bool` are `u32`, so that a sum of bools counts, and those of `i8` are `i32`.
    ///
    /// # Errors
    ///
    /// [`Error::Axis`](crate::Error::Axis) or [`Error::Shape`](crate::Error::Shape) for axes that
    /// are not there or come twice.
    sum sum_keepdim sum_all "sum" SUM;
    /// The product over `axes`; the product of nothing is 1. Types as in [`sum`](Tensor::sum).
    ///
    /// # Errors
    ///
    /// Those of [`sum`](Tensor::sum).
    prod prod_keepdim prod_all "prod" PROD;
    /// The mean over `axes` of a float tensor; the mean of nothing is NaN.
    ///
    /// # Errors
    ///
    /// [`Error::DType`](crate::Error::DType) for integers and bools; else those of
    /// [`sum`](Tensor::sum).
    mean mean_keepdim mean_all "mean" MEAN;
    /// The largest element over `axes`, of the tensor's own type. NaN wins, as in PyTorch.
    ///
    /// # Errors
    ///
    /// [`Error::Shape`](crate::Error::Shape) if an axis of size 0 is folded; else those of
    /// [`sum`](Tensor::sum).
    max max_keepdim max_all "max" MAX;
    /// The smallest element over `axes`, of the tensor's own type. NaN wins, as in PyTorch.
    ///
    /// # Errors
    ///
    /// [`Error::Shape`](crate::Error::Shape) if an axis of size 0 is folded; else those of
    /// [`sum`](Tensor::sum).
    min min_keepdim min_all "min" MIN;
    /// Is any element over `axes` true, which is what is not 0, and so NaN? A bool tensor, for
    /// every type; of nothing it is false.
    ///
    /// # Errors
    ///
    /// Those of [`sum`](Tensor::sum).
    any any_keepdim any_all "any" ANY;
    /// Are all elements over `axes` true, which is what is not 0, and so NaN? A bool tensor, for
    /// every type; of nothing it is true.
    ///
    /// # Errors
    ///
    /// Those of [`sum`](Tensor::sum).
    all all_keepdim all_all "all" ALL;
    /// How many elements over `axes` are not 0, as `u32`, for every type; NaN counts.
    ///
    /// # Errors
    ///
    /// Those of [`sum`](Tensor::sum).
    count_nonzero count_nonzero_keepdim count_nonzero_all "count_nonzero" COUNT;
}
