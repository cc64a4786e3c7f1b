//! Gradients for hand-written training: of softmax, layer normalization and gelu. They are composed
//! of the crate's other operations. 16-bit floats are computed in f32 and rounded once.

use std::f64::consts::PI;

use super::layer_norm::gradient::Normalization;
use super::normalize::check_float;
use super::operation::same_dtype;
use crate::tensor::Tensor;
use crate::tensor::called::Called;
use crate::tensor::layout::axis_or_number;
use lapidary_core::internal::MadeFor;
use lapidary_core::{DType, Error, Result};

impl Tensor {
    /// The gradient of [`softmax`](Tensor::softmax) with respect to its input. `self` is the
    /// gradient with respect to its result `output`: `output · (grad − Σ grad · output)` along
    /// `axis`.
    ///
    /// ```
    /// # fn demo(x: &lapidary::Tensor, by_y: &lapidary::Tensor) -> lapidary::Result<()> {
    /// let y = x.softmax(-1)?;
    /// let by_x = by_y.softmax_backward(&y, -1)?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`softmax`](Tensor::softmax). [`Error::Shape`] and [`Error::DType`] unless both
    /// have one shape and type; [`Error::Foreign`].
    #[track_caller]
    pub fn softmax_backward(&self, output: &Tensor, axis: isize) -> Result<Tensor> {
        let _method = MadeFor::method("softmax_backward");
        let [g, y] = operands("softmax_backward", self, output, Some(axis))?;
        let weighted = (&g * &y)?;
        let sum = weighted.sum_keepdim(&[axis])?;
        (weighted - (y * sum)?)?.cast(self.dtype)
    }

    /// The gradient of [`log_softmax`](Tensor::log_softmax) with respect to its input. `self` is
    /// the gradient with respect to its result `output`: `grad − exp(output) · Σ grad` along
    /// `axis`.
    ///
    /// # Errors
    ///
    /// Those of [`softmax_backward`](Tensor::softmax_backward).
    #[track_caller]
    pub fn log_softmax_backward(&self, output: &Tensor, axis: isize) -> Result<Tensor> {
        let _method = MadeFor::method("log_softmax_backward");
        let [g, y] = operands("log_softmax_backward", self, output, Some(axis))?;
        let sum = g.sum_keepdim(&[axis])?;
        (&g - (y.exp()? * sum)?)?.cast(self.dtype)
    }

    /// The gradient of [`gelu`](Tensor::gelu) with respect to its input. `self` is the gradient
    /// with respect to its result: `grad · (Φ(x) + x · φ(x))`.
    ///
    /// ```
    /// # fn demo(x: &lapidary::Tensor, by_y: &lapidary::Tensor) -> lapidary::Result<()> {
    /// let by_x = by_y.gelu_backward(x)?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::DType`] unless both are of one float type; [`Error::Shape`] unless both have
    /// one shape; [`Error::Foreign`].
    #[track_caller]
    pub fn gelu_backward(&self, input: &Tensor) -> Result<Tensor> {
        let _method = MadeFor::method("gelu_backward");
        let [g, x] = operands("gelu_backward", self, input, None)?;
        let below = x.ndtr()?;
        let bell = ((x.square()? * -0.5)?.exp()? * (0.5 / PI).sqrt())?;
        // Far from 0 the bell curve is 0, and 0 · ∞ would be NaN.
        let near = x.clamp(-1e4, 1e4)?;
        (g * (below + (near * bell)?)?)?.cast(self.dtype)
    }

    /// The gradients of [`layer_norm`](Tensor::layer_norm) with respect to its input, its weight
    /// and its bias. `self` is the gradient with respect to its result. The last two have the shape
    /// `normalized_shape`, even if there was no weight or no bias.
    ///
    /// ```
    /// # use lapidary::Tensor;
    /// # fn demo(x: &Tensor, weight: &Tensor, by_y: &Tensor) -> lapidary::Result<()> {
    /// let [by_x, by_weight, by_bias] =
    ///     by_y.layer_norm_backward(x, &[768], Some(weight), 1e-5)?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`layer_norm`](Tensor::layer_norm). [`Error::Shape`] and [`Error::DType`] also
    /// unless `self` has the shape and type of the input.
    #[track_caller]
    pub fn layer_norm_backward(
        &self,
        input: &Tensor,
        normalized_shape: &[usize],
        weight: Option<&Tensor>,
        eps: f32,
    ) -> Result<[Tensor; 3]> {
        const OPERATION: &str = "layer_norm_backward";
        let _method = MadeFor::method(OPERATION);
        let [g, x] = operands(OPERATION, self, input, None)?;
        let refuse = |reason: String| {
            Err(Error::Shape {
                operation: OPERATION,
                reason,
            })
        };
        if normalized_shape.is_empty() || !x.shape().ends_with(normalized_shape) {
            return refuse(format!(
                "shape {:?} does not end in {normalized_shape:?}",
                x.shape()
            ))
            .located();
        }
        if let Some(weight) = weight.filter(|weight| weight.shape() != normalized_shape) {
            return refuse(format!(
                "the weight has shape {:?}, not {normalized_shape:?}",
                weight.shape()
            ))
            .located();
        }
        let first = (x.rank() - normalized_shape.len()) as isize;
        let weight = match weight {
            None => None,
            Some(weight) => {
                self.same_engine(OPERATION, weight)?;
                check_float(OPERATION, weight)?;
                Some(weight.cast(DType::F32)?)
            }
        };
        let by = Normalization {
            is_centred: true,
            own: (first..x.rank() as isize).collect(),
            repeated: (0..first).collect(),
            eps,
        };
        let normalized = by.for_input(&x, &g, weight.as_ref())?;
        Ok([
            normalized.by_input(&g, weight.as_ref())?.cast(self.dtype)?,
            normalized.by_weight(&g)?.cast(self.dtype)?,
            normalized.by_bias(&g)?.cast(self.dtype)?,
        ])
    }
}

/// Checks a gradient and the tensor that it belongs to, and casts both to f32.
#[track_caller]
fn operands(
    operation: &'static str,
    grad: &Tensor,
    other: &Tensor,
    along: Option<isize>,
) -> Result<[Tensor; 2]> {
    check_float(operation, grad)?;
    grad.same_engine(operation, other)?;
    same_dtype(operation, grad.dtype, other.dtype)?;
    if grad.shape() != other.shape() {
        return Err(Error::Shape {
            operation,
            reason: format!(
                "the gradient has shape {:?}, and its tensor {:?}",
                grad.shape(),
                other.shape()
            ),
        })
        .located();
    }
    if let Some(along) = along {
        axis_or_number(operation, along, grad.rank())?;
    }
    Ok([grad.cast(DType::F32)?, other.cast(DType::F32)?])
}
