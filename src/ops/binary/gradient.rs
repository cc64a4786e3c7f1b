//! The gradients of binary operations.

use smallvec::{SmallVec, smallvec};

use super::BinaryOp;
use crate::ops::bits::KeptMask;
use crate::ops::fill;
use crate::ops::scalar::Scalar;
use crate::tensor::Tensor;
use crate::tensor::history::{Backward, Grads, Save, grads, without_gradient};
use crate::tensor::layout::Dims;
use lapidary_core::Result;

impl BinaryOp {
    /// Is the result differentiable? The others count, compare or jump.
    fn has_gradient(self) -> bool {
        use BinaryOp::*;
        !matches!(self, Heaviside)
    }

    /// Does the gradient need no operand?
    fn keeps_nothing(self) -> bool {
        use BinaryOp::*;
        matches!(self, Add | Sub | FloorDivide)
    }

    /// Does the gradient need no more than [which](choices) operand the result is?
    fn is_extreme(self) -> bool {
        use BinaryOp::*;
        matches!(self, Maximum | Minimum | Fmax | Fmin)
    }

    /// Does the gradient need the result too?
    fn keeps_result(self) -> bool {
        use BinaryOp::*;
        matches!(self, Pow | Hypot | Copysign)
    }
}

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
        if !y.dtype.is_float() || !op.has_gradient() {
            return Ok(y);
        }
        if op.is_extreme() && [self, other].iter().any(|x| x.is_better_reduced()) {
            return self.extreme_recorded(op, other, y);
        }
        let factors = Save::factors(self, other);
        let saves = [Save::Operand(0), Save::Operand(1), Save::Result];
        let saves = match op {
            _ if op.keeps_nothing() => &saves[..0],
            BinaryOp::Mul => &factors[..],
            // Only the gradient of the divisor needs the dividend.
            BinaryOp::Div if !other.is_tracked() => &saves[1..2],
            _ if op.keeps_result() => &saves[..],
            _ => &saves[..2],
        };
        let shapes = [self, other].map(|operand| operand.layout.shape.clone());
        let rule = move |b: &Backward| summed(through(op, b)?, &shapes);
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
    fn extreme_recorded(&self, op: BinaryOp, other: &Tensor, y: Tensor) -> Result<Tensor> {
        for operand in [self, other] {
            operand.keep_less()?;
        }
        let choices = choices(op, &self.untracked(), &other.untracked())?;
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
                &b.grad * (b.saved[0].pow_scalar(by - 1.0)? * by)?
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

/// The gradients of both operands, in the shape of the result.
#[track_caller]
fn through(op: BinaryOp, b: &Backward) -> Result<Grads> {
    use BinaryOp as Op;
    let g = &b.grad;
    if op.keeps_nothing() {
        return of_sum(op, b);
    }
    match op {
        Op::Mul => return grads![b; (g * b.factor_of_first())?, (g * b.factor_of_second())?],
        Op::Div => {
            let (x, z) = (&b.saved[0], &b.saved[b.saved.len() - 1]);
            return grads![b; (g / z)?, ((g * (x / z)?)? / z)?.neg()?];
        }
        _ => {}
    }
    let [x, z] = [&b.saved[0], &b.saved[1]];
    // Those that do not keep the result do not use it.
    let y = b.saved.get(2).unwrap_or(x);
    match op {
        Op::Rem => grads![b; g.clone(), (g * (x / z)?.trunc()?)?.neg()?],
        Op::Remainder => grads![b; g.clone(), (g * (x / z)?.floor()?)?.neg()?],
        Op::Pow => {
            grads![b;
                // `0 · x⁻¹` would be NaN at 0.
                ((g * z)? * x.pow(&(z - 1.0)?)?)?.masked_fill(&z.eq_scalar(0.0)?, 0.0)?,
                {
                    // There the result is 0 or 1, whatever the exponent is.
                    let is_constant = x.eq_scalar(0.0)?.logical_and(&z.ge_scalar(0.0)?)?;
                    ((g * y)? * x.log()?)?.masked_fill(&is_constant, 0.0)?
                },
            ]
        }
        Op::Atan2 => {
            let g = (g / (x.square()? + z.square()?)?)?;
            grads![b; (&g * z)?, (&g * x)?.neg()?]
        }
        Op::Hypot => grads![b; (g * (x / y)?)?, (g * (z / y)?)?],
        Op::Copysign => {
            let ratio = (y / x)?.masked_fill(&x.eq_scalar(0.0)?, 0.0)?;
            Ok([b.needs(0).then(|| g * ratio).transpose()?, None]
                .into_iter()
                .collect())
        }
        Op::Maximum | Op::Minimum | Op::Fmax | Op::Fmin => of_extreme(b, &choices(op, x, z)?),
        // The result would be rounded, or infinite.
        Op::Logaddexp => grads![b;
            (g / ((z - x)?.exp()? + 1.0)?)?,
            (g / ((x - z)?.exp()? + 1.0)?)?,
        ],
        Op::Logaddexp2 => grads![b;
            (g / ((z - x)?.exp2()? + 1.0)?)?,
            (g / ((x - z)?.exp2()? + 1.0)?)?,
        ],
        Op::Xlogy | Op::Xlog1py => {
            let below = match op {
                Op::Xlogy => z.clone(),
                _ => (z + 1.0)?,
            };
            // There the operation is 0 whatever the logarithm is.
            let is_zero = x.eq_scalar(0.0)?.logical_and(&below.le_scalar(0.0)?)?;
            grads![b;
                {
                    // A gradient of 0 stays 0 where the logarithm is infinite.
                    let by_log = match op {
                        Op::Xlogy => g.xlogy(z)?,
                        _ => g.xlog1py(z)?,
                    };
                    by_log.masked_fill(&is_zero, 0.0)?
                },
                (g * (x / below)?)?,
            ]
        }
        // The others give no floats, or are recorded by the methods that call them.
        _ => Err(without_gradient(op.name())),
    }
}

/// Which operand an extreme is: whether it is the first, and whether it is the second. Of equal
/// operands it is both. With a NaN it is neither, unless the operation ignores NaN: then the first
/// mask alone says which.
fn choices(op: BinaryOp, x: &Tensor, z: &Tensor) -> Result<SmallVec<[Tensor; 2]>> {
    use BinaryOp as Op;
    let or_alone = |is_first: Tensor| is_first.logical_or(&z.is_nan()?);
    Ok(match op {
        Op::Maximum => smallvec![x.ge(z)?, x.le(z)?],
        Op::Minimum => smallvec![x.le(z)?, x.ge(z)?],
        Op::Fmax => smallvec![or_alone(x.ge(z)?)?],
        Op::Fmin => smallvec![or_alone(x.le(z)?)?],
        _ => return Err(without_gradient(op.name())),
    })
}

/// The gradients of an extreme, by its [`choices`].
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

/// The gradients of an operation that keeps nothing.
fn of_sum(op: BinaryOp, b: &Backward) -> Result<Grads> {
    use BinaryOp as Op;
    let g = &b.grad;
    match op {
        Op::Add => grads![b; g.clone(), g.clone()],
        Op::Sub => grads![b; g.clone(), g.neg()?],
        // A quotient without its fraction changes in steps.
        Op::FloorDivide => Ok([None, None].into_iter().collect()),
        _ => Err(without_gradient(op.name())),
    }
}
