//! The gradient of a frame of constants: the part inside.

use crate::ops::scalar::Scalar;
use crate::tensor::Tensor;
use crate::tensor::history::grads;
use crate::tensor::layout::Dims;
use lapidary_core::Result;

impl Tensor {
    /// [`pad`](Tensor::pad), with its gradient.
    #[cold]
    #[track_caller]
    pub(super) fn pad_recorded(&self, widths: &[(usize, usize)], value: Scalar) -> Result<Tensor> {
        let y = self.untracked().pad(widths, value)?;
        let shape = self.layout.shape.clone();
        let before: Dims = widths.iter().map(|&(before, _)| before).collect();
        Ok(y.recorded_as(
            "pad",
            &[self],
            &[],
            move |b| grads![b; b.grad.inside(&before, &shape)?],
        ))
    }
}
