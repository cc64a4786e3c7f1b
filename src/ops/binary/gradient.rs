//! The gradients of binary operations.

use smallvec::SmallVec;

use super::BinaryOp;
use super::row::{Choose, Gradient};
use crate::ops::bits::KeptMask;
use crate::ops::fill;
use crate::ops::scalar::Scalar;
use crate::tensor::Tensor;
use crate::tensor::history::{Backward, Grads, Save, grads, without_gradient};
use crate::tensor::layout::Dims;
use lapidary_core::Result;

/// The gradient of an operation with this number.
type ByNumber = fn(&Backward, f64) -> Result<Tensor>;

impl Tensor {
    /// The operation, with its gradients.
    #[cold]
    #[track_caller]
    pub(super) fn binary_recorded(
        &self,
        op: BinaryOp,
        other: &Tensor,
        scalars: &[u32],
    ) -> Result<Tensor> {
        let y = (self.untracked()).binary_with(op, &other.untracked(), scalars)?;
        let gradient = op.row().gradient;
        if !y.dtype.is_float() || matches!(gradient, Gradient::Constant) {
            return Ok(y);
        }
        let factors = Save::factors(self, other);
        let saves = [Save::Operand(0), Save::Operand(1), Save::Result];
        let saves = match gradient {
            Gradient::OfExtreme(choose) if [self, other].iter().any(|x| x.is_better_reduced()) => {
                return self.extreme_recorded(op, other, y, choose);
            }
            Gradient::Alone(_) => &saves[..0],
            Gradient::OfProduct => &factors[..],
            Gradient::OfQuotient if !other.is_tracked() => &saves[1..2],
            Gradient::WithResult(_) => &saves[..],
            _ => &saves[..2],
        };
        let shapes = [self, other].map(|operand| operand.layout.shape.clone());
        let rule = move |b: &Backward| summed(gradient.through(op, b)?, &shapes);
        let operands = [self, other];
        if op != BinaryOp::Mul || saves.len() < 2 {
            return Ok(y.recorded_as(op.name(), &operands, saves, rule));
        }
        // The factor of each operand is the other one.
        let again = |saved: &[Tensor]| saved[1].binary_with(BinaryOp::Mul, &saved[0], &[]);
        Ok(y.recorded_cheap_as(op.name(), &operands, saves, again, rule))
    }

    /// An extreme `y`, with its gradients. The bits of its choices are kept.
    #[track_caller]
    fn extreme_recorded(
        &self,
        op: BinaryOp,
        other: &Tensor,
        y: Tensor,
        choose: Choose,
    ) -> Result<Tensor> {
        for operand in [self, other] {
            operand.keep_less()?;
        }
        let choices = choose(&self.untracked(), &other.untracked())?;
        let kept = choices.iter().map(KeptMask::new);
        let kept: SmallVec<[KeptMask; 2]> = kept.collect::<Result<_>>()?;
        let saves: SmallVec<[Save<'_>; 2]> = kept.iter().map(KeptMask::save).collect();
        let of_mask = kept[0].shape();
        let shapes = [self, other].map(|operand| operand.layout.shape.clone());
        let rule = move |b: &Backward| {
            let choices = b.saved.iter().map(|kept| of_mask.mask(kept));
            let choices: SmallVec<[Tensor; 2]> = choices.collect::<Result<_>>()?;
            summed(of_extreme(b, &choices)?, &shapes)
        };
        Ok(y.recorded_as(op.name(), &[self, other], &saves, rule))
    }

    /// The operation with a number on the right, with its gradient.
    #[cold]
    #[track_caller]
    pub(super) fn with_scalar_recorded(&self, op: BinaryOp, value: Scalar) -> Result<Tensor> {
        let factor = value.as_f64();
        let y = |x: &Tensor| x.untracked().with_scalar(op, value);
        let (saves, rule): (&[Save<'_>], ByNumber) = match op {
            BinaryOp::Add | BinaryOp::Sub => (&[], |b, _| Ok(b.grad.clone())),
            BinaryOp::Mul => (&[], |b, by| &b.grad * by),
            BinaryOp::Div => (&[], |b, by| &b.grad / by),
            BinaryOp::Pow => (&[Save::Operand(0)], |b, by| {
                if by == 0.0 {
                    return b.grad.zeros_like();
                }
                &b.grad * (b.saved[0].pow(by - 1.0)? * by)?
            }),
            _ => return self.binary_recorded(op, &self.number(value)?, &[]),
        };
        let made = y(self)?;
        Ok(made.recorded_as(
            op.name(),
            &[self],
            saves,
            move |b| grads![b; rule(b, factor)?],
        ))
    }

    /// The operation with a number on the left, with its gradient.
    #[cold]
    #[track_caller]
    pub(super) fn scalar_first_recorded(&self, op: BinaryOp, value: Scalar) -> Result<Tensor> {
        match op {
            BinaryOp::Add | BinaryOp::Mul => self.with_scalar_recorded(op, value),
            BinaryOp::Sub => {
                let y = self.untracked().scalar_first(op, value)?;
                Ok(y.recorded_as(op.name(), &[self], &[], |b| grads![b; b.grad.neg()?]))
            }
            _ => self.number(value)?.binary_recorded(op, self, &[]),
        }
    }

    /// A tensor of one number, of this type.
    #[track_caller]
    fn number(&self, value: Scalar) -> Result<Tensor> {
        fill::full(&self.engine, &[], value, self.dtype)
    }
}

/// The gradients in the shapes of the operands, which were broadcast.
#[track_caller]
fn summed(mut grads: Grads, shapes: &[Dims; 2]) -> Result<Grads> {
    for (grad, shape) in grads.iter_mut().zip(shapes) {
        if let Some(wide) = grad {
            *wide = wide.sum_to(shape)?;
        }
    }
    Ok(grads)
}

impl Gradient {
    /// The gradients of both operands, in the shape of the result.
    fn through(self, op: BinaryOp, b: &Backward) -> Result<Grads> {
        let g = &b.grad;
        match self {
            Gradient::Alone(rule) => rule(b),
            Gradient::Operands(rule) => rule(b, &b.saved[0], &b.saved[1]),
            Gradient::WithResult(rule) => rule(b, &b.saved[0], &b.saved[1], &b.saved[2]),
            Gradient::OfExtreme(choose) => of_extreme(b, &choose(&b.saved[0], &b.saved[1])?),
            Gradient::OfProduct => {
                grads![b; (g * b.factor_of_first())?, (g * b.factor_of_second())?]
            }
            Gradient::OfQuotient => {
                let (x, z) = (&b.saved[0], &b.saved[b.saved.len() - 1]);
                grads![b; (g / z)?, ((g * (x / z)?)? / z)?.neg()?]
            }
            Gradient::Constant | Gradient::ByMethod => Err(without_gradient(op.name())),
        }
    }
}

/// The gradients of an extreme, by which operand it is.
#[track_caller]
fn of_extreme(b: &Backward, choices: &[Tensor]) -> Result<Grads> {
    let g = &b.grad;
    let is_first = &choices[0];
    let Some(is_second) = choices.get(1) else {
        return grads![b;
            g.masked_fill(&is_first.logical_not()?, 0.0)?,
            g.masked_fill(is_first, 0.0)?,
        ];
    };
    // Equal operands share the gradient. A NaN gives it to both.
    let share = is_first.logical_and(is_second)?.where_(&(g * 0.5)?, g)?;
    grads![b;
        share.masked_fill(&is_second.logical_and(&is_first.logical_not()?)?, 0.0)?,
        share.masked_fill(&is_first.logical_and(&is_second.logical_not()?)?, 0.0)?,
    ]
}
