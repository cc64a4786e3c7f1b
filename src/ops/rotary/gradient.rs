//! The gradients of rotations.

use super::OPERATION;
use crate::tensor::Tensor;
use crate::tensor::history::{Backward, Save, grads};
use lapidary_core::{DType, Result};

impl Tensor {
    /// The rotation, with its gradients. That of the elements is the rotation back.
    #[cold]
    #[track_caller]
    pub(super) fn rotary_recorded(
        &self,
        cos: &Tensor,
        sin: &Tensor,
        interleaved: bool,
    ) -> Result<Tensor> {
        let plain = [cos, sin].map(Tensor::untracked);
        let y = (self.untracked()).rotary(&plain[0], &plain[1], interleaved)?;
        let angles = cos.layout.shape.clone();
        let dtypes = [cos.dtype, sin.dtype];
        let pairs = cos.shape()[1];
        let rule = move |b: &Backward| {
            let g = &b.grad;
            // Sums over everything but the angles.
            let sum = |terms: Tensor, of: usize| terms.sum_to(&angles)?.cast(dtypes[of]);
            let halves = |x: &Tensor| halves(x, pairs, interleaved);
            grads![b;
                g.rotary(&b.saved[0], &b.saved[1].neg()?, interleaved)?,
                {
                    let ([g, h], [x, y]) = (halves(g)?, halves(&b.saved[2])?);
                    sum(((g * x)? + (h * y)?)?, 0)?
                },
                {
                    let ([g, h], [x, y]) = (halves(g)?, halves(&b.saved[2])?);
                    sum(((h * x)? - (g * y)?)?, 1)?
                },
            ]
        };
        let saves = [Save::Operand(1), Save::Operand(2), Save::Operand(0)];
        // The elements are kept for gradients of the angles alone.
        let kept = 2 + usize::from(cos.is_tracked() || sin.is_tracked());
        Ok(y.recorded_as(OPERATION, &[self, cos, sin], &saves[..kept], rule))
    }
}

/// The first and the second elements of the pairs, in f32.
#[track_caller]
fn halves(x: &Tensor, pairs: usize, interleaved: bool) -> Result<[Tensor; 2]> {
    let half = |second: usize| {
        let half = match interleaved {
            true => x
                .narrow(-1, 0, 2 * pairs)?
                .slice(-1, second as isize, None, 2)?,
            false => x.narrow(-1, second * pairs, pairs)?,
        };
        half.cast(DType::F32)
    };
    Ok([half(0)?, half(1)?])
}
