//! The gradient of picked slices: they are added where they come from.

use super::OPERATION;
use crate::tensor::Tensor;
use crate::tensor::history::{Save, grads};
use lapidary_core::Result;

impl Tensor {
    /// [`index_select`](Tensor::index_select), with its gradient, which goes to the slices that
    /// `learned` names.
    #[cold]
    #[track_caller]
    pub(super) fn index_select_recorded(
        &self,
        at: usize,
        indices: &Tensor,
        learned: &Tensor,
    ) -> Result<Tensor> {
        let y = self.untracked().index_select(at as isize, indices)?;
        let shape = self.layout.shape.clone();
        Ok(y.recorded_as(
            OPERATION,
            &[self],
            &[Save::Other(learned)],
            move |b| grads![b; b.grad.added_to_zeros(&shape, at, &b.saved[0])?],
        ))
    }
}
