//! The gradients of unary operations.
//!
//! Some depend on the operand by a mask alone. Then its bits are kept, unless the operand is kept
//! anyhow.

use std::f64::consts::{FRAC_2_SQRT_PI, LN_2, LN_10, PI};

use super::UnaryOp;
use crate::ops::bits::KeptMask;
use crate::tensor::Tensor;
use crate::tensor::history::{Backward, Save, grads, without_gradient};
use lapidary_core::Result;

/// What the rule of an operation reads beside the gradient of the result.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reads {
    /// Nothing, and the gradient is 0 everywhere: the result is no float, or changes in steps.
    Constant,
    Nothing,
    Result,
    Operand,
    /// Of the operand no more than a mask.
    Mask(MaskRule),
}

/// An operation whose rule reads a [mask](MaskRule::of) of the operand.
#[derive(Clone, Copy, PartialEq, Eq)]
enum MaskRule {
    Clamp,
    Hardsigmoid,
    LeakyRelu,
}

impl UnaryOp {
    /// Names each operation, so that a new one does not compile until its author has decided.
    fn reads(self) -> Reads {
        use UnaryOp::*;
        match self {
            Sign | Floor | Ceil | Round | Trunc => Reads::Constant,
            LogicalNot | IsNan | IsFinite | IsInf | Signbit | BitwiseNot => Reads::Constant,
            Neg | Frac | Deg2rad | Rad2deg => Reads::Nothing,
            Exp | Exp2 | Expm1 | Sqrt | Rsqrt | Recip | Tanh | Sigmoid | Tan | Erfinv | Relu => {
                Reads::Result
            }
            Abs | Square | Log | Log2 | Log10 | Log1p | Sin | Cos | Asin | Acos | Atan | Sinh
            | Cosh | Asinh | Acosh | Atanh | Erf | Erfc | Ndtr | Sinc | Logit | Tanhshrink
            | Silu | Gelu | GeluTanh | Softplus | LogSigmoid | Softsign | Mish | Hardswish
            | Elu | Celu => Reads::Operand,
            Clamp => Reads::Mask(MaskRule::Clamp),
            Hardsigmoid => Reads::Mask(MaskRule::Hardsigmoid),
            LeakyRelu => Reads::Mask(MaskRule::LeakyRelu),
        }
    }
}

impl Tensor {
    /// The operation, with its gradient.
    #[cold]
    #[track_caller]
    pub(super) fn unary_recorded(&self, op: UnaryOp, scalars: [u32; 2]) -> Result<Tensor> {
        let y = self.untracked().unary_with(op, scalars)?;
        if !y.dtype.is_float() {
            return Ok(y);
        }
        if op == UnaryOp::Relu {
            return Ok(y.recorded_by_mask(op.name(), self, |y| y.le_scalar(0.0)));
        }
        let (bits, scalars) = (scalars, scalars.map(f32::from_bits));
        let reads = op.reads();
        let save = match reads {
            Reads::Constant | Reads::Nothing => None,
            Reads::Result => Some(Save::Result),
            Reads::Mask(mask) if self.is_better_reduced() => {
                return self.unary_recorded_by_mask(op, mask, y, scalars);
            }
            Reads::Operand | Reads::Mask(_) => Some(Save::Operand(0)),
        };
        let rule = move |b: &Backward| {
            if reads == Reads::Constant {
                return Ok([None].into_iter().collect());
            }
            grads![b; through(op, &b.grad, b.saved.first().unwrap_or(&b.grad), scalars)?]
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
        let kept = KeptMask::new(&mask.mask(&self.untracked(), scalars)?)?;
        let shape = kept.shape();
        let rule = move |b: &Backward| {
            let bits = shape.mask(&b.saved[0])?;
            grads![b; mask.through(&b.grad, &bits, scalars)?]
        };
        Ok(y.recorded_as(op.name(), &[self], &[kept.save()], rule))
    }
}

impl MaskRule {
    /// Where the gradient of the operand `x` is 0; of a leaky relu, where it is not scaled.
    fn mask(self, x: &Tensor, [first, second]: [f32; 2]) -> Result<Tensor> {
        let is_within = match self {
            MaskRule::Clamp => x.ge_scalar(first)?.logical_and(&x.le_scalar(second)?)?,
            MaskRule::Hardsigmoid => x.abs()?.lt_scalar(3.0)?,
            MaskRule::LeakyRelu => return x.gt_scalar(0.0),
        };
        is_within.logical_not()
    }

    /// The gradient of an operand with these bits.
    #[track_caller]
    fn through(self, g: &Tensor, bits: &Tensor, [first, _]: [f32; 2]) -> Result<Tensor> {
        match self {
            MaskRule::Clamp => g.masked_fill(bits, 0.0),
            MaskRule::Hardsigmoid => (g * (1.0 / 6.0))?.masked_fill(bits, 0.0),
            MaskRule::LeakyRelu => bits.where_(g, &(g * first)?),
        }
    }
}

/// The gradient of the operand. `x` is the operand or the result, whichever was kept.
#[track_caller]
fn through(op: UnaryOp, g: &Tensor, x: &Tensor, scalars: [f32; 2]) -> Result<Tensor> {
    use UnaryOp as Op;
    match op {
        Op::Neg => g.neg(),
        Op::Abs => g * x.sign()?,
        Op::Square => (g * x)? * 2.0,
        Op::Exp => g * x,
        Op::Exp2 => (g * x)? * LN_2,
        Op::Expm1 => g * (x + 1.0)?,
        Op::Log => g / x,
        Op::Log2 => (g / x)? * LN_2.recip(),
        Op::Log10 => (g / x)? * LN_10.recip(),
        Op::Log1p => g / (x + 1.0)?,
        Op::Sqrt => (g * 0.5)? / x,
        Op::Rsqrt => ((g * -0.5)? * x)? * x.square()?,
        Op::Recip => (g * x.square()?)?.neg(),
        Op::Sin => g * x.cos()?,
        Op::Cos => (g * x.sin()?)?.neg(),
        Op::Tan => g * (x.square()? + 1.0)?,
        Op::Asin => g * one_less_square(x)?.rsqrt()?,
        Op::Acos => (g * one_less_square(x)?.rsqrt()?)?.neg(),
        Op::Atan => g / (x.square()? + 1.0)?,
        Op::Sinh => g * x.cosh()?,
        Op::Cosh => g * x.sinh()?,
        Op::Tanh => g * one_less_square(x)?,
        Op::Asinh => g * (x.square()? + 1.0)?.rsqrt()?,
        Op::Acosh => g * (x.square()? - 1.0)?.rsqrt()?,
        Op::Atanh => g / one_less_square(x)?,
        Op::Erf => (g * bell(x, 1.0)?)? * FRAC_2_SQRT_PI,
        Op::Erfc => (g * bell(x, 1.0)?)? * -FRAC_2_SQRT_PI,
        Op::Erfinv => (g * x.square()?.exp()?)? * FRAC_2_SQRT_PI.recip(),
        Op::Ndtr => (g * bell(x, 0.5)?)? * (2.0 * PI).sqrt().recip(),
        Op::Sigmoid => (g * x)? * (1.0 - x)?,
        Op::Sinc => {
            let slope = (((x * PI)?.cos()? - x.sinc()?)? / x)?;
            g * slope.masked_fill(&x.eq_scalar(0.0)?, 0.0)?
        }
        Op::Logit => {
            // As the result, it is NaN outside of the domain.
            let is_outside = x.lt_scalar(0.0)?.logical_or(&x.gt_scalar(1.0)?)?;
            (g / (x * (1.0 - x)?)?)?.masked_fill(&is_outside, f32::NAN)
        }
        Op::Tanhshrink => g * x.tanh()?.square()?,
        Op::Deg2rad => g * (PI / 180.0),
        Op::Rad2deg => g * (180.0 / PI),
        Op::Frac => Ok(g.clone()),
        _ => through_activation(op, g, x, scalars),
    }
}

/// The gradient of an activation's operand `x`.
#[track_caller]
fn through_activation(op: UnaryOp, g: &Tensor, x: &Tensor, scalars: [f32; 2]) -> Result<Tensor> {
    use UnaryOp as Op;
    if let Reads::Mask(mask) = op.reads() {
        return mask.through(g, &mask.mask(x, scalars)?, scalars);
    }
    let [first, second] = scalars;
    match op {
        Op::Silu => {
            let s = x.sigmoid()?;
            let inner = (x * (1.0 - &s)?)?;
            (g * s)? * (inner + 1.0)?
        }
        Op::Gelu => g.gelu_backward(x),
        Op::GeluTanh => by_gelu_tanh(g, x),
        Op::Softplus => g * x.sigmoid()?,
        Op::LogSigmoid => g * x.neg()?.sigmoid()?,
        Op::Softsign => g / (x.abs()? + 1.0)?.square()?,
        Op::Mish => {
            let t = x.softplus()?.tanh()?;
            let inner = ((x * x.sigmoid()?)? * one_less_square(&t)?)?;
            g * (t + inner)?
        }
        Op::Hardswish => {
            let slope = ((x * (1.0 / 3.0))? + 0.5)?;
            let slope = slope.masked_fill(&x.gt_scalar(3.0)?, 1.0)?;
            g * slope.masked_fill(&x.lt_scalar(-3.0)?, 0.0)?
        }
        Op::Elu => {
            let above = (g * second)?;
            let below = (&above * (x.clamp(f32::MIN, 0.0)?.exp()? * first)?)?;
            x.gt_scalar(0.0)?.where_(&above, &below)
        }
        Op::Celu => {
            let below = (g * (x.clamp(f32::MIN, 0.0)? * first.recip())?.exp()?)?;
            x.gt_scalar(0.0)?.where_(g, &below)
        }
        // The others are constant, or are recorded by the methods that call them.
        _ => Err(without_gradient(op.name())),
    }
}

/// `1 - x²`.
fn one_less_square(x: &Tensor) -> Result<Tensor> {
    1.0 - x.square()?
}

/// `exp(-scale · x²)`.
fn bell(x: &Tensor, scale: f64) -> Result<Tensor> {
    (x.square()? * -scale)?.exp()
}

fn by_gelu_tanh(g: &Tensor, x: &Tensor) -> Result<Tensor> {
    const CUBE: f64 = 0.044_715;
    let scale = (2.0 / PI).sqrt();
    let square = x.square()?;
    let inner = ((x * scale)? * ((&square * CUBE)? + 1.0)?)?;
    let t = inner.tanh()?;
    let slope = ((square * (3.0 * CUBE))? + 1.0)?;
    let bend = ((x * (0.5 * scale))? * (one_less_square(&t)? * slope)?)?;
    g * (((t + 1.0)? * 0.5)? + bend)?
}
