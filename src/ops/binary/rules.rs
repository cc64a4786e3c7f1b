//! Gradients that several rows of the [table](super::table) have, or that are long.

use crate::tensor::Tensor;
use crate::tensor::history::{Backward, Grads, grads};
use lapidary_core::Result;

pub(super) fn pow(b: &Backward, x: &Tensor, z: &Tensor, y: &Tensor) -> Result<Grads> {
    let g = &b.grad;
    grads![b;
        // `0 · x⁻¹` would be NaN at 0.
        ((g * z)? * x.pow(&(z - 1.0)?)?)?.masked_fill(&z.eq(0.0)?, 0.0)?,
        {
            // There the result is 0 or 1, whatever the exponent is.
            let is_constant = x.eq(0.0)?.logical_and(&z.ge(0.0)?)?;
            ((g * y)? * x.log()?)?.masked_fill(&is_constant, 0.0)?
        },
    ]
}

pub(super) fn copysign(b: &Backward, x: &Tensor, _: &Tensor, y: &Tensor) -> Result<Grads> {
    let ratio = (y / x)?.masked_fill(&x.eq(0.0)?, 0.0)?;
    let of_first = b.needs(0).then(|| &b.grad * ratio).transpose()?;
    Ok([of_first, None].into_iter().collect())
}

/// Those of a logarithm of a sum of powers. The result would be rounded, or infinite.
pub(super) fn of_sums(
    b: &Backward,
    x: &Tensor,
    z: &Tensor,
    power: fn(&Tensor) -> Result<Tensor>,
) -> Result<Grads> {
    grads![b;
        (&b.grad / (power(&(z - x)?)? + 1.0)?)?,
        (&b.grad / (power(&(x - z)?)? + 1.0)?)?,
    ]
}

/// Those of `x` times the logarithm of `below`. A gradient of 0 stays 0 where the logarithm is
/// infinite: `by_log` is the gradient of the result times the logarithm.
pub(super) fn of_logs(
    b: &Backward,
    x: &Tensor,
    below: &Tensor,
    by_log: impl FnOnce() -> Result<Tensor>,
) -> Result<Grads> {
    grads![b;
        {
            // There the operation is 0 whatever the logarithm is.
            let is_zero = x.eq(0.0)?.logical_and(&below.le(0.0)?)?;
            by_log()?.masked_fill(&is_zero, 0.0)?
        },
        (&b.grad * (x / below)?)?,
    ]
}
