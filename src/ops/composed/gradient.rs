//! The gradients of those composed operations that have a shorter formula than their parts.

use super::{BinaryOp, Scalar};
use crate::ops::bits::KeptMask;
use crate::tensor::Tensor;
use crate::tensor::history::{Backward, Save, grads};
use lapidary_core::Result;

impl Tensor {
    /// [`nan_to_num`](Tensor::nan_to_num), with its gradient: 0 where it replaces.
    #[cold]
    #[track_caller]
    pub(super) fn nan_to_num_recorded(
        &self,
        nan: f32,
        pos_inf: Option<f32>,
        neg_inf: Option<f32>,
    ) -> Result<Tensor> {
        let x = self.untracked();
        let y = x.nan_to_num(nan, pos_inf, neg_inf)?;
        let is_replaced = KeptMask::new(&x.is_finite()?.logical_not()?)?;
        let shape = is_replaced.shape();
        let rule =
            move |b: &Backward| grads![b; b.grad.masked_fill(&shape.mask(&b.saved[0])?, 0.0)?];
        Ok(y.recorded_as("nan_to_num", &[self], &[is_replaced.save()], rule))
    }

    /// [`hardtanh`](Tensor::hardtanh), with its gradient: 0 at the bounds too, unlike `clamp`'s.
    #[cold]
    #[track_caller]
    pub(super) fn hardtanh_recorded(&self, min: Scalar, max: Scalar) -> Result<Tensor> {
        let y = self.untracked().clamp(min, max)?;
        if !y.dtype.is_float() {
            return Ok(y);
        }
        let mask = move |y: &Tensor| {
            // A NaN is outside of neither bound, and its gradient passes, as in PyTorch.
            y.le(min)?.logical_or(&y.ge(max)?)
        };
        Ok(y.recorded_by_mask("hardtanh", self, mask))
    }

    /// [`prelu`](Tensor::prelu) with a weight that broadcasts, with its gradients.
    #[cold]
    #[track_caller]
    pub(super) fn prelu_recorded(&self, weight: &Tensor) -> Result<Tensor> {
        let y = self.untracked().prelu_by(&weight.untracked())?;
        let shape = weight.layout.shape.clone();
        let rule = move |b: &Backward| {
            let (g, x) = (&b.grad, &b.saved[0]);
            let is_above = x.gt(0)?;
            grads![b;
                is_above.where_(g, &(g * &b.saved[1])?)?,
                (g * x)?.masked_fill(&is_above, 0.0)?.sum_to(&shape)?,
            ]
        };
        let saves = [Save::Operand(0), Save::Operand(1)];
        Ok(y.recorded_as("prelu", &[self, weight], &saves, rule))
    }

    /// `self · sigmoid(gate)`, with its gradients.
    #[cold]
    #[track_caller]
    pub(super) fn glu_recorded(&self, gate: &Tensor) -> Result<Tensor> {
        let y = (self.untracked()).binary(BinaryOp::Glu, &gate.untracked())?;
        let rule = |b: &Backward| {
            let share = b.saved[1].sigmoid()?;
            let by_first = (&b.grad * &share)?;
            grads![b;
                by_first.clone(),
                ((by_first * &b.saved[0])? * (1.0 - share)?)?,
            ]
        };
        let saves = [Save::Operand(0), Save::Operand(1)];
        let again = |saved: &[Tensor]| saved[0].binary(BinaryOp::Glu, &saved[1]);
        Ok(y.recorded_cheap_as("glu", &[self, gate], &saves, again, rule))
    }
}
