//! The gradients of choices: that of the result where the operand was chosen, else 0.

use super::{OPERATION, Scalar};
use crate::ops::bits::KeptMask;
use crate::tensor::Tensor;
use crate::tensor::history::{Backward, grads};
use lapidary_core::Result;

impl Tensor {
    /// [`filled`](Tensor::filled), with its gradient.
    #[cold]
    #[track_caller]
    pub(super) fn filled_recorded(
        &self,
        operation: &'static str,
        mask: &Tensor,
        value: Scalar,
    ) -> Result<Tensor> {
        let y = self.untracked().filled(operation, mask, value)?;
        let shape = self.layout.shape.clone();
        let mask = KeptMask::of_app(mask, y.len())?;
        let of_mask = mask.shape();
        let rule = move |b: &Backward| {
            let is_filled = of_mask.mask(&b.saved[0])?;
            grads![b; b.grad.masked_fill(&is_filled, 0.0)?.sum_to(&shape)?]
        };
        Ok(y.recorded_as(operation, &[self], &[mask.save()], rule))
    }

    /// [`where_`](Tensor::where_) of two tensors, with its gradients.
    #[cold]
    #[track_caller]
    pub(super) fn where_recorded(&self, a: &Tensor, b: &Tensor) -> Result<Tensor> {
        let y = self.where_tensors(&a.untracked(), &b.untracked())?;
        let shapes = [a, b].map(|operand| operand.layout.shape.clone());
        let mask = KeptMask::of_app(self, y.len())?;
        let of_mask = mask.shape();
        let rule = move |b: &Backward| {
            let is_first = of_mask.mask(&b.saved[0])?;
            grads![b;
                b.grad.masked_fill(&is_first.logical_not()?, 0.0)?.sum_to(&shapes[0])?,
                b.grad.masked_fill(&is_first, 0.0)?.sum_to(&shapes[1])?,
            ]
        };
        Ok(y.recorded_as(OPERATION, &[a, b], &[mask.save()], rule))
    }
}
