//! The gradients of ternary operations.

use super::{BinaryOp, TernaryOp};
use crate::tensor::Tensor;
use crate::tensor::history::{Backward, Grads, Save, grads};
use lapidary_core::Result;

impl Tensor {
    /// The operation, with its gradients.
    #[cold]
    #[track_caller]
    pub(super) fn ternary_recorded(
        &self,
        op: TernaryOp,
        others: [&Tensor; 2],
        value: u32,
    ) -> Result<Tensor> {
        let [b, c] = others.map(Tensor::untracked);
        let y = self.untracked().ternary(op, [&b, &c], value)?;
        let operands = [self, others[0], others[1]];
        let shapes = operands.map(|operand| operand.layout.shape.clone());
        let value = f32::from_bits(value);
        let saves = [Save::Operand(2), Save::Operand(1), Save::Operand(0)];
        // The last operand's gradient needs the others, and theirs only the last one.
        let count = match (op, others.map(Tensor::is_tracked)) {
            (TernaryOp::Lerp, [_, true]) => 3,
            (TernaryOp::Lerp, _) => 1,
            (TernaryOp::Addcmul | TernaryOp::Addcdiv, [_, true]) => 2,
            (TernaryOp::Addcmul | TernaryOp::Addcdiv, [true, _]) => 1,
            (TernaryOp::Addcmul | TernaryOp::Addcdiv, [false, false]) => 0,
        };
        let rule = move |b: &Backward| {
            let mut grads = through(op, b, value)?;
            for (grad, shape) in grads.iter_mut().zip(&shapes) {
                if let Some(wide) = grad {
                    *wide = wide.sum_to(shape)?;
                }
            }
            Ok(grads)
        };
        Ok(y.recorded_as(op.name(), &operands, &saves[..count], rule))
    }

    /// [`lerp`](Tensor::lerp) with a number, of these bits, with its gradients.
    #[cold]
    #[track_caller]
    pub(super) fn lerp_by_recorded(&self, end: &Tensor, weight: u32) -> Result<Tensor> {
        let y = self.untracked().lerp_by(&end.untracked(), weight)?;
        let weight = f32::from_bits(weight);
        let shapes = [self, end].map(|operand| operand.layout.shape.clone());
        let rule = move |b: &Backward| {
            grads![b;
                (&b.grad * (1.0 - weight))?.sum_to(&shapes[0])?,
                (&b.grad * weight)?.sum_to(&shapes[1])?,
            ]
        };
        Ok(y.recorded_as(BinaryOp::Lerp.name(), &[self, end], &[], rule))
    }
}

/// The gradients of the three operands, in the shape of the result.
fn through(op: TernaryOp, b: &Backward, value: f32) -> Result<Grads> {
    let g = &b.grad;
    let saved = |index: usize| &b.saved[index];
    match op {
        TernaryOp::Lerp => grads![b;
            (g * (1.0 - saved(0))?)?,
            (g * saved(0))?,
            (g * (saved(1) - saved(2))?)?,
        ],
        TernaryOp::Addcmul => grads![b;
            g.clone(),
            ((g * saved(0))? * value)?,
            ((g * saved(1))? * value)?,
        ],
        TernaryOp::Addcdiv => grads![b;
            g.clone(),
            ((g / saved(0))? * value)?,
            (((g / saved(0))? * (saved(1) / saved(0))?)? * -value)?,
        ],
    }
}
