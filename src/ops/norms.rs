//! Norms that are composed of other operations.

use super::normalize::check_float;
use super::scalar::Scalar;
use crate::tensor::Tensor;
use crate::tensor::called::Called;
use crate::tensor::layout::axis_or_number;
use lapidary_core::internal::MadeFor;
use lapidary_core::{DType, Error, Result};

impl Tensor {
    /// `(x − mean) / √(variance + eps) · weight + bias` of a tensor `[batch, channels, ..]`, as in
    /// PyTorch. The statistics are those of each channel of each sample. Weight and bias are as in
    /// [`group_norm`](Tensor::group_norm), which this is with a group for each channel.
    ///
    /// ```
    /// # fn demo(image: &lapidary::Tensor) -> lapidary::Result<()> {
    /// let y = image.instance_norm(None, None, 1e-5)?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Shape`] for fewer than three dimensions, a channel of a single element, or a weight
    /// or bias of another shape. [`Error::DType`] for integers and bools. [`Error::Foreign`] for
    /// tensors of another `Gpu`.
    #[track_caller]
    pub fn instance_norm(
        &self,
        weight: Option<&Tensor>,
        bias: Option<&Tensor>,
        eps: f32,
    ) -> Result<Tensor> {
        const OPERATION: &str = "instance_norm";
        let _method = MadeFor::method(OPERATION);
        check_float(OPERATION, self)?;
        let refuse = |reason| {
            Err(Error::Shape {
                operation: OPERATION,
                reason,
            })
        };
        let channels = match self.shape() {
            [_, _, each @ ..] if each.is_empty() || each.iter().product::<usize>() == 1 => {
                return refuse(format!(
                    "{:?} has one element a channel, which has no spread",
                    self.shape()
                ))
                .located();
            }
            [_, channels, ..] => *channels,
            shape => {
                return refuse(format!("{shape:?} has fewer than three dimensions")).located();
            }
        };
        for (name, operand) in [("weight", weight), ("bias", bias)] {
            let Some(operand) = operand else { continue };
            self.same_engine(OPERATION, operand)?;
            check_float(OPERATION, operand)?;
            if operand.shape() != [channels] {
                return refuse(format!(
                    "the {name} has shape {:?}, not [{channels}]",
                    operand.shape()
                ))
                .located();
            }
        }
        if !self.is_empty() {
            let made = self.group_norm(channels, weight, bias, eps);
            return made.called(OPERATION);
        }
        // No element is computed, and the gradients of weight and bias are zeros.
        let mut shape = vec![1; self.rank() - 1];
        shape[0] = channels;
        let along = |operand: &Tensor| operand.cast(self.dtype)?.reshape(&shape);
        let scaled = match weight {
            Some(weight) => self.mul(&along(weight)?)?,
            None => self.copy()?,
        };
        match bias {
            Some(bias) => scaled.add(&along(bias)?),
            None => Ok(scaled),
        }
    }

    /// `x` divided by its `p`-[`norm`](Tensor::norm) along `axis`, or by `eps` if that is larger,
    /// for floats: PyTorch's `normalize`. Its defaults are `p` 2, axis 1 and `eps` 1e-12.
    ///
    /// Everything is computed in f32 and rounded once.
    ///
    /// ```
    /// # fn demo(embeddings: &lapidary::Tensor) -> lapidary::Result<()> {
    /// let directions = embeddings.normalize(2, -1, 1e-12)?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Axis`] if there is no such axis; those of [`norm`](Tensor::norm).
    #[track_caller]
    pub fn normalize(&self, p: impl Into<Scalar>, axis: isize, eps: f32) -> Result<Tensor> {
        const OPERATION: &str = "normalize";
        let _method = MadeFor::method(OPERATION);
        check_float(OPERATION, self)?;
        axis_or_number(OPERATION, axis, self.rank())?;
        let wide = self.cast(DType::F32)?;
        let length = wide.norm_keepdim(&[axis], p)?.maximum(eps)?;
        wide.div(&length)?.cast(self.dtype)
    }
}
