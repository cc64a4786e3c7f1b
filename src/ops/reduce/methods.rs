//! The methods of [`Tensor`] that reduce in one pass.

use super::{Fold, Lift, Op, fold};
use crate::ops::normalize::check_float;
use crate::ops::rows::Axes;
use crate::tensor::Tensor;
use crate::tensor::called::Called;
use crate::tensor::layout::Layout;
use lapidary_core::internal::MadeFor;
use lapidary_core::{DType, Result};

/// Reductions over axes, as in NumPy. Negative axes count from the last, and no axes fold nothing.
/// An axis that is named twice or does not exist is an error
/// ([`Error::Shape`](crate::Error::Shape), [`Error::Axis`](crate::Error::Axis)). The axes are
/// removed, or stay with size 1 with `_keepdim`. `_all` folds everything into shape `[]`. All
/// reductions take any view and read each element once. They add in blocks, so the error of a sum
/// does not grow with the number of terms.
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
    /// Returns an error for axes that do not exist or are named twice.
    #[track_caller]
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
        if self.is_tracked() {
            return self.reduce_recorded(operation, op, folded, keep);
        }
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
                let _method = MadeFor::method(stringify!($name));
                let axes = self.checked_axes($of, axes).called(stringify!($name))?;
                let made = self.reduce($of, Op::$op, axes, false);
                made.called(stringify!($name))
            }

            #[doc = concat!("As [`", $of, "`](Tensor::", $of, "), but the axes stay with size 1.")]
            ///
            /// # Errors
            ///
            #[doc = concat!("Those of [`", $of, "`](Tensor::", $of, ").")]
            #[track_caller]
            pub fn $keepdim(&self, axes: &[isize]) -> Result<Tensor> {
                let _method = MadeFor::method(stringify!($keepdim));
                let axes = self.checked_axes($of, axes).called(stringify!($keepdim))?;
                let made = self.reduce($of, Op::$op, axes, true);
                made.called(stringify!($keepdim))
            }

            #[doc = concat!("As [`", $of, "`](Tensor::", $of, ") of all elements, with shape `[]`.")]
            ///
            /// # Errors
            ///
            #[doc = concat!("Those of [`", $of, "`](Tensor::", $of, ").")]
            #[track_caller]
            pub fn $all(&self) -> Result<Tensor> {
                let _method = MadeFor::method(stringify!($all));
                let made = self.reduce($of, Op::$op, Axes::all(self.layout.rank()), false);
                made.called(stringify!($all))
            }
        )+}
    };
}

reductions! {
    /// The sum over `axes`; the sum of nothing is 0.
    ///
    /// f16 and bf16 are accumulated in f32. Sums of `i32` and `u32` wrap around. Sums of `u8` and
    /// `bool` are `u32`, so a sum of bools counts them. Sums of `i8` are `i32`.
    ///
    /// # Errors
    ///
    /// [`Error::Axis`](crate::Error::Axis) or [`Error::Shape`](crate::Error::Shape) for axes that
    /// do not exist or are named twice.
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
    /// [`Error::DType`](crate::Error::DType) for integers and bools; those of [`sum`](Tensor::sum).
    mean mean_keepdim mean_all "mean" MEAN;
    /// The largest element over `axes`, in the tensor's type. NaN wins, as in PyTorch.
    ///
    /// # Errors
    ///
    /// [`Error::Shape`](crate::Error::Shape) if an axis of size 0 is folded; those of
    /// [`sum`](Tensor::sum).
    max max_keepdim max_all "max" MAX;
    /// The smallest element over `axes`, in the tensor's type. NaN wins, as in PyTorch.
    ///
    /// # Errors
    ///
    /// [`Error::Shape`](crate::Error::Shape) if an axis of size 0 is folded; those of
    /// [`sum`](Tensor::sum).
    min min_keepdim min_all "min" MIN;
    /// Whether any element over `axes` is true, as a bool tensor, for every type. All values except
    /// 0 are true, also NaN. Without elements it is false.
    ///
    /// # Errors
    ///
    /// Those of [`sum`](Tensor::sum).
    any any_keepdim any_all "any" ANY;
    /// Whether all elements over `axes` are true, as a bool tensor, for every type. All values
    /// except 0 are true, also NaN. Without elements it is true.
    ///
    /// # Errors
    ///
    /// Those of [`sum`](Tensor::sum).
    all all_keepdim all_all "all" ALL;
    /// The number of elements over `axes` that are not 0, as `u32`, for every type. NaN counts.
    ///
    /// # Errors
    ///
    /// Those of [`sum`](Tensor::sum).
    count_nonzero count_nonzero_keepdim count_nonzero_all "count_nonzero" COUNT;
}
