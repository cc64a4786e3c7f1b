//! The gradients of softmax and its logarithm, from their results.

use super::along;
use crate::tensor::Tensor;
use crate::tensor::history::{Save, grads};
use lapidary_core::Result;

/// Softmax along an axis, or its logarithm, with its gradient.
#[cold]
#[track_caller]
pub(super) fn along_recorded(
    x: &Tensor,
    operation: &'static str,
    axis: isize,
    log: u64,
) -> Result<Tensor> {
    let y = along(&x.untracked(), operation, axis, log)?;
    Ok(y.recorded_as(operation, &[x], &[Save::Result], move |b| {
        grads![b; match log {
            0 => b.grad.softmax_backward(&b.saved[0], axis)?,
            _ => b.grad.log_softmax_backward(&b.saved[0], axis)?,
        }]
    }))
}
