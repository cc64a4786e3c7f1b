//! The gradients of extremes with their indices.

use super::extreme_at;
use crate::ops::fill;
use crate::tensor::Tensor;
use crate::tensor::history::{Backward, Save, grads};
use lapidary_core::Result;

/// The elements of a tensor with axes at the indices of extremes, with their gradient.
#[cold]
#[track_caller]
pub(super) fn extreme_at_recorded(
    x: &Tensor,
    operation: &'static str,
    axis: isize,
    indices: Tensor,
) -> Result<(Tensor, Tensor)> {
    let (values, indices) = extreme_at(&x.untracked(), operation, axis, indices)?;
    let at = axis.rem_euclid(x.rank() as isize) as usize;
    let size = x.shape()[at];
    let mut line = vec![1; x.rank()];
    line[at] = size;
    let rule = move |b: &Backward| {
        // A comparison is cheaper than a scatter, which sorts the indices.
        let places = fill::counting(&b.grad.engine, size)?.reshape(&line)?;
        let is_chosen = places.eq(&b.saved[0].unsqueeze(axis)?)?;
        grads![b; is_chosen.where_(&b.grad.unsqueeze(axis)?, 0.0)?]
    };
    let saves = [Save::Other(&indices)];
    let values = values.recorded_as(operation, &[x], &saves, rule);
    Ok((values, indices))
}
