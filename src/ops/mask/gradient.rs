//! The gradient of an operation that keeps some elements: it keeps those of the gradient.

use super::MaskOp;
use crate::tensor::Tensor;
use crate::tensor::history::grads;
use lapidary_core::Result;

impl Tensor {
    /// The operation, with its gradient.
    #[cold]
    #[track_caller]
    pub(super) fn masked_recorded(&self, op: MaskOp, scalars: [u32; 4]) -> Result<Tensor> {
        let y = self.untracked().masked(op, scalars)?;
        Ok(y.recorded_as(
            op.name(),
            &[self],
            &[],
            move |b| grads![b; b.grad.masked(op, scalars)?],
        ))
    }
}
