//! The methods of [`Tensor`] that reduce.

use super::{Op, fold};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::ops::rows::Axes;
use crate::tensor::Tensor;
use crate::tensor::layout::Layout;

/// Reductions over axes, as in NumPy: negative axes count from the last, no axes at all fold
/// nothing, and an axis that is named twice or is not there is an error ([`Error::Shape`],
/// [`Error::Axis`]). The axes go away, or with `_keepdim` stay with size 1. All of them take any
/// view, read each element once, and add in blocks, so that the error of a sum does not grow with
/// the number of its terms.
///
/// ```
/// # fn demo(x: &lapidary::Tensor) -> lapidary::Result<()> {
/// let total = x.sum_all()?; // shape []
/// let centred = x.mean_keepdim(&[-1])?; // shape [.., 1], broadcasts against x
/// let peaks = x.max(&[0, 1])?;
/// # Ok(()) }
/// ```
impl Tensor {
    /// The sum over `axes`; the sum of nothing is 0.
    ///
    /// f16 is accumulated in f32. Sums of `i32` and `u32` wrap around; those of `u8` and `bool`
    /// are `u32`, so that a sum of bools counts.
    ///
    /// # Errors
    ///
    /// [`Error::Axis`] or [`Error::Shape`] for axes that are not there or come twice.
    #[track_caller]
    pub fn sum(&self, axes: &[isize]) -> Result<Tensor> {
        self.reduce("sum", Op::Sum, self.checked_axes("sum", axes)?, false)
    }

    /// As [`sum`](Tensor::sum); the axes stay, with size 1.
    ///
    /// # Errors
    ///
    /// Those of [`sum`](Tensor::sum).
    #[track_caller]
    pub fn sum_keepdim(&self, axes: &[isize]) -> Result<Tensor> {
        self.reduce("sum", Op::Sum, self.checked_axes("sum", axes)?, true)
    }

    /// The sum of all elements, with shape `[]`.
    ///
    /// # Errors
    ///
    /// Only those of making a tensor.
    #[track_caller]
    pub fn sum_all(&self) -> Result<Tensor> {
        self.reduce("sum", Op::Sum, Axes::all(self.layout.rank()), false)
    }

    /// The mean over `axes` of a float tensor; the mean of nothing is NaN.
    ///
    /// # Errors
    ///
    /// [`Error::DType`] for integers and bools; else those of [`sum`](Tensor::sum).
    #[track_caller]
    pub fn mean(&self, axes: &[isize]) -> Result<Tensor> {
        self.reduce("mean", Op::Mean, self.checked_axes("mean", axes)?, false)
    }

    /// As [`mean`](Tensor::mean); the axes stay, with size 1.
    ///
    /// # Errors
    ///
    /// Those of [`mean`](Tensor::mean).
    #[track_caller]
    pub fn mean_keepdim(&self, axes: &[isize]) -> Result<Tensor> {
        self.reduce("mean", Op::Mean, self.checked_axes("mean", axes)?, true)
    }

    /// The mean of all elements, with shape `[]`.
    ///
    /// # Errors
    ///
    /// [`Error::DType`] for integers and bools.
    #[track_caller]
    pub fn mean_all(&self) -> Result<Tensor> {
        self.reduce("mean", Op::Mean, Axes::all(self.layout.rank()), false)
    }

    /// The largest element over `axes`, of the tensor's own type. NaN wins, as in PyTorch.
    ///
    /// # Errors
    ///
    /// [`Error::Shape`] if an axis of size 0 is folded; else those of [`sum`](Tensor::sum).
    #[track_caller]
    pub fn max(&self, axes: &[isize]) -> Result<Tensor> {
        self.reduce("max", Op::Max, self.checked_axes("max", axes)?, false)
    }

    /// As [`max`](Tensor::max); the axes stay, with size 1.
    ///
    /// # Errors
    ///
    /// Those of [`max`](Tensor::max).
    #[track_caller]
    pub fn max_keepdim(&self, axes: &[isize]) -> Result<Tensor> {
        self.reduce("max", Op::Max, self.checked_axes("max", axes)?, true)
    }

    /// The largest of all elements, with shape `[]`. NaN wins.
    ///
    /// # Errors
    ///
    /// [`Error::Shape`] if there are none.
    #[track_caller]
    pub fn max_all(&self) -> Result<Tensor> {
        self.reduce("max", Op::Max, Axes::all(self.layout.rank()), false)
    }

    /// The smallest element over `axes`, of the tensor's own type. NaN wins, as in PyTorch.
    ///
    /// # Errors
    ///
    /// [`Error::Shape`] if an axis of size 0 is folded; else those of [`sum`](Tensor::sum).
    #[track_caller]
    pub fn min(&self, axes: &[isize]) -> Result<Tensor> {
        self.reduce("min", Op::Min, self.checked_axes("min", axes)?, false)
    }

    /// As [`min`](Tensor::min); the axes stay, with size 1.
    ///
    /// # Errors
    ///
    /// Those of [`min`](Tensor::min).
    #[track_caller]
    pub fn min_keepdim(&self, axes: &[isize]) -> Result<Tensor> {
        self.reduce("min", Op::Min, self.checked_axes("min", axes)?, true)
    }

    /// The smallest of all elements, with shape `[]`. NaN wins.
    ///
    /// # Errors
    ///
    /// [`Error::Shape`] if there are none.
    #[track_caller]
    pub fn min_all(&self) -> Result<Tensor> {
        self.reduce("min", Op::Min, Axes::all(self.layout.rank()), false)
    }

    fn checked_axes(&self, operation: &'static str, axes: &[isize]) -> Result<Axes> {
        Axes::named(operation, axes, self.layout.rank())
    }

    #[track_caller]
    fn reduce(&self, operation: &'static str, op: Op, folded: Axes, keep: bool) -> Result<Tensor> {
        let shape = &self.layout.shape;
        let out = match (op, self.dtype) {
            (Op::Mean, dtype) if !dtype.is_float() => {
                return Err(Error::DType {
                    operation,
                    expected: "f32 or f16".into(),
                    got: dtype,
                    hint: "Cast it to f32 first",
                });
            }
            (Op::Sum, DType::U8 | DType::Bool) => DType::U32,
            (_, dtype) => dtype,
        };
        if matches!(op, Op::Max | Op::Min) {
            super::refuse_empty(operation, shape, folded)?;
        }
        let mut result = fold(self, None, op, folded, out)?;
        result.layout = Layout::contiguous(&folded.fold_shape(shape, keep));
        Ok(result)
    }
}
