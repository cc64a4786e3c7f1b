//! The methods of [`Tensor`] that reduce floats with a parameter or in several passes: variances,
//! norms, and the logarithm of a sum of exponentials.

mod gradient;

use super::{Lower, Op, fold, mean_and_spread, refuse_empty};
use crate::ops::fill;
use crate::ops::normalize::check_float;
use crate::ops::rows::Axes;
use crate::ops::scalar::Scalar;
use crate::tensor::Tensor;
use crate::tensor::called::Called;
use crate::tensor::layout::Layout;
use lapidary_core::internal::MadeFor;
use lapidary_core::{DType, Error, Result};

impl Tensor {
    #[track_caller]
    fn spread(
        &self,
        operation: &'static str,
        folded: Axes,
        correction: Scalar,
        lower: Lower,
        keep: bool,
    ) -> Result<Tensor> {
        check_float(operation, self)?;
        let correction = correction.as_f64();
        if !correction.is_finite() {
            return Err(Error::Option {
                option: "correction",
                reason: format!("{correction} cannot be subtracted from a number of elements"),
            });
        }
        if self.is_tracked() {
            return self.spread_recorded(operation, folded, correction, lower, keep);
        }
        let shape = folded.fold_shape(&self.layout.shape, keep);
        let op = Op::variance(correction, lower);
        if folded.length(&self.layout.shape) == 0 {
            return fill::full(&self.engine, &shape, Scalar::Float(f64::NAN), self.dtype);
        }
        let [_, mut result] = mean_and_spread(self, op, folded, self.dtype)?;
        result.layout = Layout::contiguous(&shape);
        Ok(result)
    }

    /// The distances from the mean over `axes`, in f32. The mean is measured from the first
    /// element, so that one far from 0 costs no precision.
    #[track_caller]
    pub(in crate::ops) fn centred(&self, axes: &[isize]) -> Result<Tensor> {
        let away = self.relative_to_first(axes)?;
        &away - away.mean_keepdim(axes)?
    }

    /// The distances from the first element along `axes`, in f32. It has no gradient: distances
    /// from a mean do not depend on it.
    #[track_caller]
    pub(in crate::ops) fn relative_to_first(&self, axes: &[isize]) -> Result<Tensor> {
        self.cast(DType::F32)? - self.first_along(axes)?
    }

    /// The first elements along `axes`, which stay, in f32 and without a gradient.
    #[track_caller]
    pub(in crate::ops) fn first_along(&self, axes: &[isize]) -> Result<Tensor> {
        let mut shape = self.layout.shape.clone();
        for &axis in axes {
            shape[axis as usize] = shape[axis as usize].min(1);
        }
        let layout = Layout {
            shape,
            ..self.layout.clone()
        };
        self.untracked().view(layout).cast(DType::F32)
    }

    #[track_caller]
    fn p_norm(&self, p: f32, folded: Axes, keep: bool) -> Result<Tensor> {
        const OPERATION: &str = "norm";
        check_float(OPERATION, self)?;
        let op = match p {
            p if p.is_nan() => {
                return Err(Error::Option {
                    option: "p",
                    reason: "the order of a norm cannot be NaN".into(),
                });
            }
            0.0 => {
                let count = self.reduce(OPERATION, Op::COUNT, folded, keep)?;
                let count = count.cast(self.dtype)?;
                return Ok(match self.is_tracked() {
                    // It changes in steps.
                    true => count.recorded_as(OPERATION, &[self], &[], |_| {
                        Ok([None].into_iter().collect())
                    }),
                    false => count,
                });
            }
            1.0 => Op::SUM_SIZES,
            2.0 => Op::EUCLIDEAN,
            f32::INFINITY => Op::MAX_SIZE,
            f32::NEG_INFINITY => Op::MIN_SIZE,
            p => Op::p_norm(p),
        };
        if p.is_infinite() {
            refuse_empty(OPERATION, &self.layout.shape, folded)?;
        }
        self.reduce(OPERATION, op, folded, keep)
    }

    #[track_caller]
    fn log_sum_exp(&self, folded: Axes, keep: bool) -> Result<Tensor> {
        const OPERATION: &str = "logsumexp";
        check_float(OPERATION, self)?;
        if self.is_tracked() {
            return self.log_sum_exp_recorded(OPERATION, folded, keep);
        }
        let shape = folded.fold_shape(&self.layout.shape, keep);
        if folded.length(&self.layout.shape) == 0 {
            let lowest = Scalar::Float(f64::NEG_INFINITY);
            return fill::full(&self.engine, &shape, lowest, self.dtype);
        }
        let result = self.log_sum_exp_rows(folded)?.cast(self.dtype)?;
        Ok(result.view(Layout::contiguous(&shape)))
    }

    /// One f32 for each row, in one dimension. Rows must not be empty.
    #[track_caller]
    pub(in crate::ops) fn log_sum_exp_rows(&self, folded: Axes) -> Result<Tensor> {
        let kept = folded.fold_shape(&self.layout.shape, false);
        let rows = Layout::contiguous(&[kept.iter().product()]);
        let max = fold(self, None, Op::MAX, folded, DType::F32)?.view(rows.clone());
        // Infinity cannot be subtracted, and need not be.
        let middle = max.masked_fill(&max.is_finite()?.logical_not()?, 0.0)?;
        let sum = fold(self, Some(&middle), Op::SUM_EXP, folded, DType::F32)?.view(rows);
        sum.log()?.add(&middle)
    }
}

macro_rules! trios {
    ($($(#[$doc:meta])+ $name:ident $keepdim:ident $all:ident $of:literal
       ($($arg:ident: $type:ty),*) |$x:ident, $folded:ident, $keep:ident| $call:expr;)+) => {
        impl Tensor {$(
            $(#[$doc])+
            #[track_caller]
            pub fn $name(&self, axes: &[isize] $(, $arg: $type)*) -> Result<Tensor> {
                let _method = MadeFor::method(stringify!($name));
                let axes = self.checked_axes($of, axes).called(stringify!($name))?;
                let ($x, $folded, $keep) = (self, axes, false);
                let made: Result<Tensor> = $call;
                made.called(stringify!($name))
            }

            #[doc = concat!("As [`", $of, "`](Tensor::", $of, "), but the axes stay with size 1.")]
            ///
            /// # Errors
            ///
            #[doc = concat!("Those of [`", $of, "`](Tensor::", $of, ").")]
            #[track_caller]
            pub fn $keepdim(&self, axes: &[isize] $(, $arg: $type)*) -> Result<Tensor> {
                let _method = MadeFor::method(stringify!($keepdim));
                let axes = self.checked_axes($of, axes).called(stringify!($keepdim))?;
                let ($x, $folded, $keep) = (self, axes, true);
                let made: Result<Tensor> = $call;
                made.called(stringify!($keepdim))
            }

            #[doc = concat!("As [`", $of, "`](Tensor::", $of, ") of all elements, with shape `[]`.")]
            ///
            /// # Errors
            ///
            #[doc = concat!("Those of [`", $of, "`](Tensor::", $of, ").")]
            #[track_caller]
            pub fn $all(&self $(, $arg: $type)*) -> Result<Tensor> {
                let _method = MadeFor::method(stringify!($all));
                let ($x, $folded, $keep) = (self, Axes::all(self.layout.rank()), false);
                let made: Result<Tensor> = $call;
                made.called(stringify!($all))
            }
        )+}
    };
}

trios! {
    /// The variance over `axes` of a float tensor: the sum of the squared distances from the mean,
    /// divided by the number of elements less `correction`. That is 1 for a sample (PyTorch's
    /// default) and 0 for a population (NumPy's); any finite number will do. Two passes from the
    /// first element keep the precision for a mean far from 0; equal elements give exactly 0. If
    /// there are no more elements than `correction`, the sum is divided by 0, as in PyTorch. The
    /// squares are summed in f32: distances beyond about 1e19 give infinity, and those below 1e-23
    /// count as 0. Distances that are no f32, beyond 3.4e38, may give NaN.
    ///
    /// ```
    /// # fn demo(x: &lapidary::Tensor) -> lapidary::Result<()> {
    /// let spread = x.var(&[-1], 1)?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`mean`](Tensor::mean); [`Error::Option`] for a correction that is not finite.
    var var_keepdim var_all "var" (correction: impl Into<Scalar>)
        |x, folded, keep| x.spread("var", folded, correction.into(), Lower::Divide, keep);
    /// The standard deviation over `axes` of a float tensor: the square root of the
    /// [`variance`](Tensor::var). Where all elements are equal, its gradient is 0.
    ///
    /// # Errors
    ///
    /// Those of [`var`](Tensor::var).
    std std_keepdim std_all "std" (correction: impl Into<Scalar>)
        |x, folded, keep| x.spread("std", folded, correction.into(), Lower::DivideRoot, keep);
    /// The `p`-norm over `axes` of a float tensor: the `p`-th root of the sum of the `p`-th powers
    /// of the absolute values. At 0 it counts the elements that are not 0, at ∞ it is the largest
    /// absolute value, at -∞ the smallest. The powers are summed in f32, where they may overflow:
    /// at 2, elements beyond about 1e19 give infinity, and those below 1e-23 count as 0. To avoid
    /// it, divide by the norm at ∞ first.
    ///
    /// ```
    /// # fn demo(gradient: &lapidary::Tensor) -> lapidary::Result<()> {
    /// let length = gradient.norm_all(2.0)?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Option`] if `p` is NaN; [`Error::Shape`] if it is infinite and an axis of size 0 is
    /// folded; those of [`mean`](Tensor::mean).
    norm norm_keepdim norm_all "norm" (p: impl Into<Scalar>)
        |x, folded, keep| x.p_norm(p.into().as_f64() as f32, folded, keep);
    /// The logarithm of the sum of the exponentials over `axes` of a float tensor, without
    /// intermediate overflow. Without elements it is -∞.
    ///
    /// # Errors
    ///
    /// Those of [`mean`](Tensor::mean).
    logsumexp logsumexp_keepdim logsumexp_all "logsumexp" ()
        |x, folded, keep| x.log_sum_exp(folded, keep);
}
