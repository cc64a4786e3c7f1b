//! The gradients of sorted elements: those of the elements at their old places.

use super::ordered;
use crate::ops::fill;
use crate::tensor::Tensor;
use crate::tensor::history::{Backward, Save, grads};
use lapidary_core::Result;

/// The first `keep` of the sorted elements, with their gradient, and their indices.
#[cold]
#[track_caller]
pub(super) fn ordered_recorded(
    x: &Tensor,
    operation: &'static str,
    at: usize,
    descending: bool,
    keep: Option<usize>,
) -> Result<(Tensor, Tensor)> {
    let axis = at as isize;
    let (values, indices) = ordered(&x.untracked(), operation, axis, descending, keep)?;
    let shape = x.layout.shape.clone();
    let rule = move |b: &Backward| {
        let (g, indices) = (&b.grad, &b.saved[0]);
        grads![b; {
            let zeros = fill::full(&g.engine, &shape, fill::zero_of(g.dtype), g.dtype)?;
            zeros.scatter(axis, indices, g)?
        }]
    };
    let saves = [Save::Other(&indices)];
    let values = values.recorded_as(operation, &[x], &saves, rule);
    Ok((values, indices))
}
