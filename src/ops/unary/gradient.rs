//! The gradients of unary operations.
//!
//! Some depend on the operand by a mask alone. Then its bits are kept, unless the operand is kept
//! anyhow.

use super::UnaryOp;
use super::row::{Gradient, MaskRule};
use crate::ops::bits::KeptMask;
use crate::tensor::Tensor;
use crate::tensor::history::{Backward, Save, grads};
use lapidary_core::Result;

impl Tensor {
    /// The operation, with its gradient.
    #[cold]
    #[track_caller]
    pub(super) fn unary_recorded(&self, op: UnaryOp, scalars: [u32; 2]) -> Result<Tensor> {
        let y = self.untracked().unary_with(op, scalars)?;
        if !y.dtype.is_float() {
            return Ok(y);
        }
        let (bits, scalars) = (scalars, scalars.map(f32::from_bits));
        let gradient = op.row().gradient;
        let save = match gradient {
            Gradient::ResultMask(mask) => return Ok(y.recorded_by_mask(op.name(), self, mask)),
            Gradient::Constant | Gradient::Alone(_) => None,
            Gradient::Result(_) => Some(Save::Result),
            Gradient::Mask(mask) if self.is_better_reduced() => {
                return self.unary_recorded_by_mask(op, mask, y, scalars);
            }
            Gradient::Operand(_) | Gradient::Scaled(_) | Gradient::Mask(_) => {
                Some(Save::Operand(0))
            }
        };
        let rule = move |b: &Backward| {
            if let Gradient::Constant = gradient {
                return Ok([None].into_iter().collect());
            }
            grads![b; gradient.through(&b.grad, b.saved.first().unwrap_or(&b.grad), scalars)?]
        };
        if !matches!(save, Some(Save::Operand(_))) {
            return Ok(y.recorded_as(op.name(), &[self], save.as_slice(), rule));
        }
        let again = move |saved: &[Tensor]| saved[0].unary_with(op, bits);
        Ok(y.recorded_cheap_as(op.name(), &[self], save.as_slice(), again, rule))
    }

    /// The result of an operation whose rule reads a mask, with its gradient.
    #[track_caller]
    fn unary_recorded_by_mask(
        &self,
        op: UnaryOp,
        mask: MaskRule,
        y: Tensor,
        scalars: [f32; 2],
    ) -> Result<Tensor> {
        self.keep_less()?;
        let kept = KeptMask::new(&(mask.of)(&self.untracked(), scalars)?)?;
        let shape = kept.shape();
        let rule = move |b: &Backward| {
            let bits = shape.mask(&b.saved[0])?;
            grads![b; (mask.through)(&b.grad, &bits, scalars)?]
        };
        Ok(y.recorded_as(op.name(), &[self], &[kept.save()], rule))
    }
}

impl Gradient {
    /// The gradient of the operand. `x` is the operand or the result, whichever was kept.
    fn through(self, g: &Tensor, x: &Tensor, scalars: [f32; 2]) -> Result<Tensor> {
        match self {
            Gradient::Alone(rule) => rule(g),
            Gradient::Result(rule) | Gradient::Operand(rule) => rule(g, x),
            Gradient::Scaled(rule) => rule(g, x, scalars),
            Gradient::Mask(mask) => (mask.through)(g, &(mask.of)(x, scalars)?, scalars),
            Gradient::Constant => g.zeros_like(),
            Gradient::ResultMask(mask) => g.masked_fill(&mask(x)?, 0.0),
        }
    }
}
