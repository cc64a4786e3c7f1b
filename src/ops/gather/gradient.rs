//! The gradient of picked elements: they are added where they come from.

use super::pick;
use crate::tensor::Tensor;
use crate::tensor::history::{Save, grads};
use lapidary_core::Result;

/// [`pick`], with its gradient.
#[cold]
#[track_caller]
pub(super) fn pick_recorded(x: &Tensor, at: usize, indices: &Tensor) -> Result<Tensor> {
    let y = pick(&x.untracked(), at, indices)?;
    let shape = x.layout.shape.clone();
    Ok(y.recorded_as(
        "gather",
        &[x],
        &[Save::Other(indices)],
        move |b| grads![b; b.grad.added_to_zeros(&shape, at, &b.saved[0])?],
    ))
}
