//! Elementwise operations composed of others. Fusion makes one kernel of each, together with its
//! neighbours.

mod gradient;

use half::{bf16, f16};

use super::binary::BinaryOp;
use super::normalize::check_float;
use super::operation::{Takes, same_dtype};
use super::scalar::Scalar;
use crate::tensor::Tensor;
use crate::tensor::called::Called;
use crate::tensor::layout::axis as checked_axis;
use lapidary_core::internal::MadeFor;
use lapidary_core::{DType, Error, Result};

/// Operations on each element that are composed of others. Without fusion they take more than one
/// launch.
impl Tensor {
    /// Whether each element is as near to `other` as `atol + rtol * |other|`, or the same infinity.
    /// A bool tensor, for floats whose shapes broadcast. `equal_nan` says whether NaN is near NaN.
    /// PyTorch's tolerances are `rtol` 1e-5 and `atol` 1e-8.
    ///
    /// ```
    /// # fn demo(x: &lapidary::Tensor, y: &lapidary::Tensor) -> lapidary::Result<()> {
    /// let differ = x.is_close(y, 1e-5, 1e-8, false)?.logical_not()?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`add`](Tensor::add). [`Error::DType`] also for other types than floats.
    #[doc(alias = "isclose")]
    #[track_caller]
    pub fn is_close(
        &self,
        other: &Tensor,
        rtol: f32,
        atol: f32,
        equal_nan: bool,
    ) -> Result<Tensor> {
        let _method = MadeFor::method("is_close");
        let tolerances = [rtol.to_bits(), atol.to_bits()];
        let near = self.binary_with(BinaryOp::IsClose, other, &tolerances)?;
        match equal_nan {
            true => near.logical_or(&self.is_nan()?.logical_and(&other.is_nan()?)?),
            false => Ok(near),
        }
    }

    /// Whether each element is ∞, as a bool tensor, for floats: `x == ∞`.
    ///
    /// # Errors
    ///
    /// [`Error::DType`] for other types.
    #[doc(alias = "isposinf")]
    #[track_caller]
    pub fn is_pos_inf(&self) -> Result<Tensor> {
        let _method = MadeFor::method("is_pos_inf");
        check_float("is_pos_inf", self)?;
        self.eq(f32::INFINITY)
    }

    /// Whether each element is -∞, as a bool tensor, for floats: `x == -∞`.
    ///
    /// # Errors
    ///
    /// [`Error::DType`] for other types.
    #[doc(alias = "isneginf")]
    #[track_caller]
    pub fn is_neg_inf(&self) -> Result<Tensor> {
        let _method = MadeFor::method("is_neg_inf");
        check_float("is_neg_inf", self)?;
        self.eq(f32::NEG_INFINITY)
    }

    /// Replaces NaN by `nan`, ∞ by `pos_inf` and -∞ by `neg_inf`, for floats. Without the last two,
    /// the largest and the least number of the type take their place.
    ///
    /// ```
    /// # fn demo(x: &lapidary::Tensor) -> lapidary::Result<()> {
    /// let finite = x.nan_to_num(0.0, None, None)?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::DType`] for other types.
    #[track_caller]
    pub fn nan_to_num(
        &self,
        nan: f32,
        pos_inf: Option<f32>,
        neg_inf: Option<f32>,
    ) -> Result<Tensor> {
        let _method = MadeFor::method("nan_to_num");
        check_float("nan_to_num", self)?;
        if self.is_tracked() {
            return self.nan_to_num_recorded(nan, pos_inf, neg_inf);
        }
        let largest = match self.dtype {
            DType::F16 => f16::MAX.to_f32(),
            DType::Bf16 => bf16::MAX.to_f32(),
            _ => f32::MAX,
        };
        let filled = self.masked_fill(&self.is_nan()?, nan)?;
        let filled = filled.masked_fill(&self.is_pos_inf()?, pos_inf.unwrap_or(largest))?;
        filled.masked_fill(&self.is_neg_inf()?, neg_inf.unwrap_or(-largest))
    }

    /// [`nan_to_num`](Tensor::nan_to_num) in place.
    ///
    /// # Errors
    ///
    /// Those of [`nan_to_num`](Tensor::nan_to_num) and of [`add_`](Tensor::add_).
    #[track_caller]
    pub fn nan_to_num_(&self, nan: f32, pos_inf: Option<f32>, neg_inf: Option<f32>) -> Result<()> {
        let _method = MadeFor::method("nan_to_num_");
        if self.records_write(&[]) {
            let old = self.elements_before("nan_to_num_")?;
            let made = old
                .nan_to_num(nan, pos_inf, neg_inf)
                .called("nan_to_num_")?;
            return self.assign("nan_to_num_", &made);
        }
        let made = self
            .nan_to_num(nan, pos_inf, neg_inf)
            .called("nan_to_num_")?;
        self.copy_(&made).called("nan_to_num_")
    }

    /// [`clamp`](Tensor::clamp) under its name as an activation, for all numbers.
    ///
    /// # Errors
    ///
    /// Those of [`clamp`](Tensor::clamp).
    #[track_caller]
    pub fn hardtanh(&self, min: impl Into<Scalar>, max: impl Into<Scalar>) -> Result<Tensor> {
        let _method = MadeFor::method("hardtanh");
        if self.is_tracked() {
            let made = self.hardtanh_recorded(min.into(), max.into());
            return made.called("hardtanh");
        }
        self.clamp(min, max).called("hardtanh")
    }

    /// Clamps `x` to between 0 and 6, for all numbers.
    ///
    /// # Errors
    ///
    /// Those of [`clamp`](Tensor::clamp).
    #[track_caller]
    pub fn relu6(&self) -> Result<Tensor> {
        let _method = MadeFor::method("relu6");
        self.hardtanh(0, 6).called("relu6")
    }

    /// `x` if it is above `threshold`, else `value`, for all numbers; NaN for NaN.
    ///
    /// # Errors
    ///
    /// [`Error::DType`] for a bool tensor, or if the tensor's type cannot hold a number.
    #[track_caller]
    pub fn threshold(
        &self,
        threshold: impl Into<Scalar>,
        value: impl Into<Scalar>,
    ) -> Result<Tensor> {
        let _method = MadeFor::method("threshold");
        Takes::Numbers.check("threshold", self.dtype)?;
        let below = self.le(threshold).called("threshold")?;
        self.masked_fill(&below, value).called("threshold")
    }

    /// `x` if it is further from 0 than `lambda`, else 0, for floats; NaN for NaN.
    ///
    /// # Errors
    ///
    /// [`Error::DType`] for other types.
    #[track_caller]
    pub fn hardshrink(&self, lambda: f32) -> Result<Tensor> {
        let _method = MadeFor::method("hardshrink");
        check_float("hardshrink", self)?;
        self.masked_fill(&self.abs()?.le(lambda)?, 0.0)
    }

    /// Moves `x` towards 0 by `lambda`, at most to 0, for floats: `x - clamp(x, -lambda, lambda)`.
    /// NaN for NaN.
    ///
    /// # Errors
    ///
    /// [`Error::DType`] for other types.
    #[track_caller]
    pub fn softshrink(&self, lambda: f32) -> Result<Tensor> {
        let _method = MadeFor::method("softshrink");
        check_float("softshrink", self)?;
        self.sub(&self.clamp(-lambda, lambda)?)
    }

    /// `x`, or `weight * x` below 0, for floats. The weight is one number, or one for each index of
    /// axis 1.
    ///
    /// ```
    /// # fn demo(x: &lapidary::Tensor, weight: &lapidary::Tensor) -> lapidary::Result<()> {
    /// let y = x.prelu(weight)?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::DType`] for other types, or for two different ones; [`Error::Shape`] for another
    /// number of weights; [`Error::Foreign`].
    #[track_caller]
    pub fn prelu(&self, weight: &Tensor) -> Result<Tensor> {
        const OPERATION: &str = "prelu";
        let _method = MadeFor::method(OPERATION);
        check_float(OPERATION, self)?;
        self.same_engine(OPERATION, weight)?;
        same_dtype(OPERATION, self.dtype, weight.dtype)?;
        let channels = self.shape().get(1).copied().unwrap_or(1);
        let weight = match weight.len() {
            1 => weight.reshape(&[])?,
            count if count == channels => {
                let mut shape = vec![1; self.rank() - 1];
                shape[0] = channels;
                weight.reshape(&shape)?
            }
            count => {
                return Err(Error::Shape {
                    operation: OPERATION,
                    reason: format!(
                        "{count} weights for shape {:?}, which takes 1 or {channels}",
                        self.shape()
                    ),
                })
                .located();
            }
        };
        if self.is_tracked() || weight.is_tracked() {
            return self.prelu_recorded(&weight);
        }
        self.prelu_by(&weight)
    }

    /// The same with a weight that broadcasts.
    #[track_caller]
    fn prelu_by(&self, weight: &Tensor) -> Result<Tensor> {
        self.gt(0)?.where_(self, &self.mul(weight)?)
    }

    /// The first half of an axis times the [`sigmoid`](Tensor::sigmoid) of the second, for floats.
    ///
    /// ```
    /// # fn demo(x: &lapidary::Tensor) -> lapidary::Result<()> {
    /// let gated = x.glu(-1)?; // Half as wide.
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::DType`] for other types; [`Error::Axis`]; [`Error::Shape`] if the axis cannot be
    /// halved.
    #[track_caller]
    pub fn glu(&self, axis: isize) -> Result<Tensor> {
        const OPERATION: &str = "glu";
        let _method = MadeFor::method(OPERATION);
        check_float(OPERATION, self)?;
        let len = self.shape()[checked_axis(OPERATION, axis, self.rank())?];
        if !len.is_multiple_of(2) {
            return Err(Error::Shape {
                operation: OPERATION,
                reason: format!("{len} elements along axis {axis} cannot be halved"),
            })
            .located();
        }
        let half = |start: usize| self.narrow(axis, start, len / 2);
        let [first, second] = [half(0)?, half(len / 2)?];
        match self.is_tracked() {
            true => first.glu_recorded(&second),
            false => first.binary(BinaryOp::Glu, &second),
        }
    }
}
