//! The gradient of weighted sums of logarithms of probabilities.

use super::sum_of_logs;
use crate::tensor::Tensor;
use crate::tensor::history::{Backward, Save, grads};
use lapidary_core::{DType, Result};

/// [`sum_of_logs`] with its gradients. Only its operands are kept.
#[cold]
#[track_caller]
pub(super) fn sum_of_logs_recorded(
    x: &Tensor,
    operation: &'static str,
    axis: usize,
    weights: Option<&Tensor>,
) -> Result<Tensor> {
    let detached = weights.map(Tensor::untracked);
    let y = sum_of_logs(&x.untracked(), operation, axis, detached.as_ref())?;
    let (classes, dtype, rank) = (x.shape()[axis], x.dtype, x.rank());
    let none = x.untracked();
    let operands = [x, weights.unwrap_or(&none)];
    let shape_of_weights = operands[1].layout.shape.clone();
    let rule = move |b: &Backward| {
        let along = axis as isize;
        let g = b.grad.unsqueeze(along)?;
        let logs = b.saved[0].cast(DType::F32)?.log_softmax(along)?;
        grads![b;
            {
                let away = match b.saved.get(1) {
                    None => (1.0 - (logs.exp()? * classes as f64)?)?,
                    Some(weights) => {
                        // They may have fewer dimensions, and broadcast.
                        let total = weights.sum_keepdim(&[along - rank as isize])?;
                        (weights - (logs.exp()? * total)?)?
                    }
                };
                (away * &g)?.cast(dtype)?
            },
            (&logs * &g)?.sum_to(&shape_of_weights)?,
        ]
    };
    let saves = [0, 1].map(Save::Operand);
    let saves = if weights.is_some() {
        &saves[..]
    } else {
        &saves[..1]
    };
    Ok(y.recorded_as(operation, &operands, saves, rule))
}
