//! The table of unary operations. A row is all that the library and its documentation know of an
//! operation, beside its section of `shaders/unary.wgsl`. Tests know in addition PyTorch's function
//! and its edges: see CONTRIBUTING.md.
//!
//! ```text
//! /// The sentence of the page's table; more lines are only in the method's documentation.
//! Operation method + in_place = "another name" Takes Gives or OfIntegers,
//!     in [low, high], [relative, absolute];
//!     reference, gradient;
//! ```
//!
//! The group around a row is its page: `functions`, `activations` or `comparison`; `by_hand` has
//! methods in [`unary`](super), and scalars that the tests use. Another name is for searches only.
//! [`Takes`](crate::ops::operation::Takes) has the types, and
//! [`Gives`](crate::ops::operation::Gives) the result's: `Floats Same` refuses integers, and
//! `Floats Float` casts them to f32. [`Reference`](super::reference::Reference) has the forms of a
//! reference, and [`Gradient`](super::row::Gradient) those of a gradient.
//!
//! The slope of the operation is continuous from `low` to `high`; finite differences test its
//! gradient there. If `high` is above 0 and below 1, tests give it only numbers from 0 to 1. A
//! result of f32 differs from the reference, and from PyTorch's value, by at most `absolute` plus
//! `relative` of the value; f16 and bf16 may be rounded once more. `[0.0, 0.0]` is for what is
//! exact on all adapters.
//!
//! Tests take the rows from `internal::UNARY_ROWS`, and the methods from `unary_methods!`.

use std::f64::consts::{FRAC_2_SQRT_PI, LN_2, LN_10, PI};

#[cfg(any(test, feature = "sim"))]
use super::reference::{self as of, Reference::*, SQRT_2};
use super::row::Gradient::*;
use super::row::{MaskRule, OfIntegers, UnaryRow, rows};
use super::rules::{bell, by_gelu_tanh, one_less_square};
use crate::ops::method_link;
use crate::tensor::Tensor;
use crate::tensor::called::Called;
use lapidary_core::Result;
use lapidary_core::internal::MadeFor;

rows! {
    ($)

    by_hand {
        Clamp clamp(1, 2) Numbers Same, in [1.1, 1.9], [0.0, 0.0];
            Any(of::clamp), Mask(MaskRule {
                of: |x, [low, high]| {
                    x.ge(low)?.logical_and(&x.le(high)?)?.logical_not()
                },
                through: |g, is_outside, _| g.masked_fill(is_outside, 0.0),
            });

        LeakyRelu leaky_relu(0.25) Floats Same, in [-2.0, -0.1], [0.0, 0.0];
            ByScalars(|x, [slope, _]| if x < 0.0 { x * slope } else { x }), Mask(MaskRule {
                of: |x, _| x.gt(0.0),
                through: |g, is_above, [slope, _]| is_above.where_(g, &(g * slope)?),
            });

        Elu elu(1.5) Floats Same, in [-2.0, -0.1], [2e-5, 1e-12];
            ByScalars(|x, [alpha, scale]| scale * if x < 0.0 { alpha * x.exp_m1() } else { x }),
            Scaled(|g, x, [alpha, scale]| {
                let above = (g * scale)?;
                let below = (&above * (x.clamp(f32::MIN, 0.0)?.exp()? * alpha)?)?;
                x.gt(0.0)?.where_(&above, &below)
            });

        Celu celu(1.5) Floats Same, in [-2.0, -0.1], [2e-5, 1e-12];
            ByScalars(|x, [alpha, _]| if x < 0.0 { alpha * (x / alpha).exp_m1() } else { x }),
            Scaled(|g, x, [alpha, _]| {
                let below = (g * (x.clamp(f32::MIN, 0.0)? * alpha.recip())?.exp()?)?;
                x.gt(0.0)?.where_(g, &below)
            });

        BitwiseNot bitwise_not() Whole Same, in [0.0, 0.0], [0.0, 0.0];
            Whole(|x| !x, |x| !x), Constant;
    }

    functions {
        /// `-x`, for all numbers; unsigned integers wrap.
        Neg neg + neg_ Numbers Same, in [-2.0, 2.0], [0.0, 0.0];
            Numbers(|x| -x, i32::wrapping_neg, u32::wrapping_neg), Alone(Tensor::neg);

        /// The absolute value, for all numbers; the least `i32` or `i8` stays negative.
        Abs abs + abs_ Numbers Same, in [0.2, 2.0], [0.0, 0.0];
            Numbers(f32::abs, i32::wrapping_abs, |x| x), Operand(|g, x| g * x.sign()?);

        /// -1, 0 or 1, for all numbers; NaN for NaN.
        Sign sign = "sgn" Numbers Same, in [0.2, 2.0], [0.0, 0.0];
            Numbers(of::sign, i32::signum, |x| x.min(1)), Constant;

        /// `x * x`, for all numbers.
        Square square + square_ Numbers Same, in [-2.0, 2.0], [0.0, 0.0];
            Numbers(|x| x * x, |x| x.wrapping_mul(x), |x| x.wrapping_mul(x)),
            Operand(|g, x| (g * x)? * 2.0);

        /// eˣ, for floats; integers give f32.
        Exp exp + exp_ Floats Float, in [-1.0, 1.0], [2e-5, 0.0];
            Narrow(f32::exp), Result(|g, y| g * y);

        /// 2ˣ, for floats; integers give f32.
        Exp2 exp2 Floats Float, in [-1.0, 1.0], [2e-5, 0.0];
            Narrow(f32::exp2), Result(|g, y| (g * y)? * LN_2);

        /// `exp(x) - 1`, for floats; integers give f32. It is exact near 0, too.
        Expm1 expm1 Floats Float, in [-1.0, 1.0], [2e-5, 1e-12];
            Narrow(f32::exp_m1), Result(|g, y| g * (y + 1.0)?);

        /// The natural logarithm, for floats; integers give f32. It is -∞ at 0, and NaN below.
        Log log + log_ Floats Float, in [0.5, 3.0], [1e-6, 1e-6];
            Narrow(f32::ln), Operand(|g, x| g / x);

        /// The logarithm with base 2, for floats; integers give f32.
        Log2 log2 Floats Float, in [0.5, 3.0], [1e-6, 1e-6];
            Narrow(f32::log2), Operand(|g, x| (g / x)? * LN_2.recip());

        /// The logarithm with base 10, for floats; integers give f32.
        Log10 log10 Floats Float, in [0.5, 3.0], [1e-6, 1e-6];
            Narrow(f32::log10), Operand(|g, x| (g / x)? * LN_10.recip());

        /// `log(1 + x)`, for floats; integers give f32. It is exact near 0, too.
        Log1p log1p Floats Float, in [-0.5, 2.0], [1e-6, 0.0];
            Narrow(f32::ln_1p), Operand(|g, x| g / (x + 1.0)?);

        /// The square root, for floats; integers give f32. It is NaN below 0.
        Sqrt sqrt + sqrt_ Floats Float, in [0.5, 3.0], [1e-6, 2e-7];
            Narrow(f32::sqrt), Result(|g, y| (g * 0.5)? / y);

        /// `1 / sqrt(x)`, for floats; integers give f32.
        Rsqrt rsqrt + rsqrt_ Floats Float, in [0.5, 3.0], [1e-6, 2e-7];
            Narrow(|x| 1.0 / x.sqrt()), Result(|g, y| ((g * -0.5)? * y)? * y.square()?);

        /// `1 / x`, for floats; integers give f32.
        Recip recip + recip_ = "reciprocal" Floats Float, in [0.5, 3.0], [1e-6, 2e-7];
            Narrow(|x| 1.0 / x), Result(|g, y| (g * y.square()?)?.neg());

        /// The sine of radians, for floats; integers give f32. It is exact to 1e-6 up to 30,000.
        /// Beyond, it is the adapter's own.
        Sin sin + sin_ Floats Float, in [-2.0, 2.0], [1e-6, 1e-6];
            Narrow(f32::sin), Operand(|g, x| g * x.cos()?);

        /// The cosine of radians, for floats; integers give f32.
        /// It is as exact as [`sin`](Tensor::sin).
        Cos cos + cos_ Floats Float, in [-2.0, 2.0], [1e-6, 1e-6];
            Narrow(f32::cos), Operand(|g, x| (g * x.sin()?)?.neg());

        /// The tangent of radians, for floats; integers give f32.
        /// It is [`sin`](Tensor::sin) divided by [`cos`](Tensor::cos), whose errors are large
        /// relative to a value near 0.
        Tan tan Floats Float, in [-1.0, 1.0], [1e-4, 1e-6];
            Narrow(f32::tan), Result(|g, y| g * (y.square()? + 1.0)?);

        /// The arc sine, from -π/2 to π/2, for floats; integers give f32.
        /// It is NaN outside of -1 to 1. The error is at most 1e-6, also for the next two.
        Asin asin Floats Float, in [-0.8, 0.8], [1e-6, 1e-6];
            Narrow(f32::asin), Operand(|g, x| g * one_less_square(x)?.rsqrt()?);

        /// The arc cosine, from 0 to π, for floats; integers give f32.
        /// It is NaN outside of -1 to 1.
        Acos acos Floats Float, in [-0.8, 0.8], [1e-6, 1e-6];
            Narrow(f32::acos), Operand(|g, x| (g * one_less_square(x)?.rsqrt()?)?.neg());

        /// The arc tangent, from -π/2 to π/2, for floats; integers give f32.
        Atan atan Floats Float, in [-2.0, 2.0], [1e-6, 1e-6];
            Narrow(f32::atan), Operand(|g, x| g / (x.square()? + 1.0)?);

        /// The hyperbolic sine, for floats; integers give f32.
        Sinh sinh Floats Float, in [-1.0, 1.0], [2e-5, 1e-12];
            Narrow(f32::sinh), Operand(|g, x| g * x.cosh()?);

        /// The hyperbolic cosine, for floats; integers give f32.
        Cosh cosh Floats Float, in [-1.0, 1.0], [2e-5, 1e-12];
            Narrow(f32::cosh), Operand(|g, x| g * x.sinh()?);

        /// The hyperbolic tangent, for floats; integers give f32.
        Tanh tanh + tanh_ Floats Float, in [-2.0, 2.0], [1e-6, 2e-7];
            Narrow(f32::tanh), Result(|g, y| g * one_less_square(y)?);

        /// The inverse hyperbolic sine, for floats; integers give f32.
        Asinh asinh Floats Float, in [-2.0, 2.0], [1e-6, 1e-6];
            Wide(f64::asinh), Operand(|g, x| g * (x.square()? + 1.0)?.rsqrt()?);

        /// The inverse hyperbolic cosine, at least 0, for floats; integers give f32.
        /// It is NaN below 1.
        Acosh acosh Floats Float, in [1.3, 3.0], [1e-6, 1e-6];
            Wide(f64::acosh), Operand(|g, x| g * (x.square()? - 1.0)?.rsqrt()?);

        /// The inverse hyperbolic tangent, for floats; integers give f32.
        /// It is ±∞ at ±1, and NaN beyond.
        Atanh atanh Floats Float, in [-0.7, 0.7], [2e-6, 1e-7];
            Wide(f64::atanh), Operand(|g, x| g / one_less_square(x)?);

        /// The error function, for floats; integers give f32. The error is at most 2e-7.
        Erf erf Floats Float, in [-1.5, 1.5], [1e-6, 2e-7];
            Wide(of::erf), Operand(|g, x| (g * bell(x, 1.0)?)? * FRAC_2_SQRT_PI);

        /// `1 - erf(x)`, for floats; integers give f32.
        /// It keeps its digits near 0: the tail is as exact as [`exp`](Tensor::exp), and ends at
        /// 9.2, where f32 ends.
        Erfc erfc Floats Float, in [-1.5, 1.5], [2e-5, 1e-37];
            Wide(of::erfc), Operand(|g, x| (g * bell(x, 1.0)?)? * -FRAC_2_SQRT_PI);

        /// The inverse of the error function, for floats; integers give f32.
        /// The relative error is at most 1e-6. It is ±∞ at ±1, and NaN beyond.
        Erfinv erfinv Floats Float, in [-0.7, 0.7], [1e-6, 0.0];
            Wide(of::erfinv), Result(|g, y| (g * y.square()?.exp()?)? * FRAC_2_SQRT_PI.recip());

        /// The normal distribution function Φ, for floats; integers give f32.
        /// It is PyTorch's `special.ndtr`. The error is at most 3e-7, so it is 0 below -5.66.
        /// There, `0.5 * erfc(-x / sqrt(2))` keeps its digits.
        Ndtr ndtr Floats Float, in [-2.0, 2.0], [0.0, 3e-7];
            Wide(|x| 0.5 * of::erfc(-x / SQRT_2)),
            Operand(|g, x| (g * bell(x, 0.5)?)? * (2.0 * PI).sqrt().recip());

        /// `sin(πx) / (πx)`, and 1 at 0, for floats; integers give f32.
        /// The error is at most 1e-6. It is exactly 0 at all other whole numbers.
        Sinc sinc Floats Float, in [1.2, 1.8], [1e-6, 1e-9];
            Wide(of::sinc), Operand(|g, x| {
                let slope = (((x * PI)?.cos()? - x.sinc()?)? / x)?;
                g * slope.masked_fill(&x.eq(0.0)?, 0.0)?
            });

        /// `log(x / (1 - x))`, the inverse of `sigmoid`, for floats; integers give f32.
        /// It is -∞ at 0, ∞ at 1, and NaN beyond. For PyTorch's `eps`, use
        /// [`clamp`](Tensor::clamp) first.
        Logit logit Floats Float, in [0.2, 0.8], [1e-6, 2e-7];
            Wide(|x| x.ln() - (-x).ln_1p()), Operand(|g, x| {
                // As the result, it is NaN outside of the domain.
                let is_outside = x.lt(0.0)?.logical_or(&x.gt(1.0)?)?;
                (g / (x * (1.0 - x)?)?)?.masked_fill(&is_outside, f32::NAN)
            });

        /// Converts degrees to radians, for floats; integers give f32: `x * π / 180`.
        Deg2rad deg2rad Floats Float, in [-2.0, 2.0], [1e-6, 0.0];
            Wide(f64::to_radians), Alone(|g| g * (PI / 180.0));

        /// Converts radians to degrees, for floats; integers give f32: `x * 180 / π`.
        Rad2deg rad2deg Floats Float, in [1.0, 1.2], [1e-6, 0.0];
            Wide(f64::to_degrees), Alone(|g| g * (180.0 / PI));

        /// Rounds down to a whole number, for all numbers; copies integers.
        Floor floor + floor_ Floats Same or OfIntegers::Themselves, in [1.1, 1.9], [0.0, 0.0];
            Narrow(f32::floor), Constant;

        /// Rounds up to a whole number, for all numbers; copies integers.
        Ceil ceil + ceil_ Floats Same or OfIntegers::Themselves, in [1.1, 1.9], [0.0, 0.0];
            Narrow(f32::ceil), Constant;

        /// Rounds to the nearest whole number, ties to even, for all numbers; copies integers.
        Round round + round_ Floats Same or OfIntegers::Themselves, in [1.6, 2.4], [0.0, 0.0];
            Narrow(f32::round_ties_even), Constant;

        /// Rounds towards 0 to a whole number, for all numbers; copies integers.
        Trunc trunc + trunc_ = "fix" Floats Same or OfIntegers::Themselves,
            in [1.1, 1.9], [0.0, 0.0];
            Narrow(f32::trunc), Constant;

        /// The fraction that `trunc` removes, with the sign of `x`, for floats.
        Frac frac Floats Same, in [1.1, 1.9], [0.0, 0.0];
            Narrow(|x| x - x.trunc()), Alone(|g| Ok(g.clone()));
    }

    activations {
        /// `x` if it is above 0, else 0, for all numbers; NaN for NaN.
        Relu relu + relu_ Numbers Same, in [0.1, 2.0], [0.0, 0.0];
            Numbers(|x| if x < 0.0 { 0.0 } else { x }, |x| x.max(0), |x| x),
            ResultMask(|y| y.le(0.0));

        /// `1 / (1 + exp(-x))`, for floats; integers give f32.
        /// There is no intermediate overflow.
        Sigmoid sigmoid + sigmoid_ = "expit" Floats Float, in [-3.0, 3.0], [2e-5, 1e-6];
            Narrow(of::sigmoid), Result(|g, y| (g * y)? * (1.0 - y)?);

        /// `x * sigmoid(x)`, also called swish, for floats.
        Silu silu + silu_ Floats Same, in [-3.0, 3.0], [2e-5, 1e-6];
            Narrow(|x| x * of::sigmoid(x)), Operand(|g, x| {
                let s = x.sigmoid()?;
                let inner = (x * (1.0 - &s)?)?;
                (g * s)? * (inner + 1.0)?
            });

        /// `x · Φ(x)` with the normal distribution function Φ, for floats.
        /// It is PyTorch's default. The error is at most 5e-7 where `x` is below 8.
        Gelu gelu + gelu_ Floats Same, in [-3.0, 3.0], [2e-5, 1e-6];
            Wide(|x| 0.5 * x * (1.0 + of::erf(x / SQRT_2))), Operand(Tensor::gelu_backward);

        /// The approximation of `gelu` by the hyperbolic tangent, for floats.
        /// It is PyTorch's `approximate="tanh"`.
        GeluTanh gelu_tanh Floats Same, in [-3.0, 3.0], [2e-5, 1e-6];
            Narrow(of::gelu_tanh), Operand(by_gelu_tanh);

        /// `log(1 + exp(x))`, for floats, without intermediate overflow.
        Softplus softplus Floats Same, in [-3.0, 3.0], [2e-5, 2e-6];
            Wide(of::softplus), Operand(|g, x| g * x.sigmoid()?);

        /// The logarithm of `sigmoid`, for floats.
        LogSigmoid log_sigmoid = "logsigmoid" Floats Same, in [-3.0, 3.0], [2e-5, 2e-6];
            Wide(|x| -of::softplus(-x)), Operand(|g, x| g * x.neg()?.sigmoid()?);

        /// `x / (1 + abs(x))`, for floats.
        Softsign softsign Floats Same, in [-3.0, 3.0], [1e-6, 0.0];
            Narrow(|x| x / (1.0 + x.abs())), Operand(|g, x| g / (x.abs()? + 1.0)?.square()?);

        /// `x * tanh(softplus(x))`, for floats.
        Mish mish Floats Same, in [-3.0, 3.0], [2e-5, 2e-6];
            Wide(|x| x * of::softplus(x).tanh()), Operand(|g, x| {
                let t = x.softplus()?.tanh()?;
                let inner = ((x * x.sigmoid()?)? * one_less_square(&t)?)?;
                g * (t + inner)?
            });

        /// `x / 6 + 1/2`, clamped to between 0 and 1, for floats.
        Hardsigmoid hardsigmoid Floats Same, in [-2.9, 2.9], [1e-6, 1e-7];
            Narrow(|x| (x / 6.0 + 0.5).clamp(0.0, 1.0)), Mask(MaskRule {
                of: |x, _| x.abs()?.lt(3.0)?.logical_not(),
                through: |g, is_flat, _| (g * (1.0 / 6.0))?.masked_fill(is_flat, 0.0),
            });

        /// `x * hardsigmoid(x)`, for floats.
        Hardswish hardswish Floats Same, in [-2.9, 2.9], [1e-6, 1e-7];
            Narrow(|x| x * ((x + 3.0).clamp(0.0, 6.0) / 6.0)), Operand(|g, x| {
                let slope = ((x * (1.0 / 3.0))? + 0.5)?;
                let slope = slope.masked_fill(&x.gt(3.0)?, 1.0)?;
                g * slope.masked_fill(&x.lt(-3.0)?, 0.0)?
            });

        /// `x - tanh(x)`, for floats. The relative error is at most 2e-6, also near 0.
        Tanhshrink tanhshrink Floats Same, in [-2.0, 2.0], [2e-6, 0.0];
            Wide(of::tanhshrink), Operand(|g, x| g * x.tanh()?.square()?);
    }

    comparison {
        /// Whether it is 0 or false. A bool tensor, for every type.
        LogicalNot logical_not All Bool, in [0.0, 0.0], [0.0, 0.0];
            Truth(|x| !x.is_true()), Constant;

        /// Whether it is NaN. A bool tensor, for every type.
        IsNan is_nan = "isnan" Floats Bool or OfIntegers::All(false),
            in [0.0, 0.0], [0.0, 0.0];
            Truth(|x| x.float().is_nan()), Constant;

        /// Whether it is infinite. A bool tensor, for every type.
        IsInf is_inf = "isinf" Floats Bool or OfIntegers::All(false),
            in [0.0, 0.0], [0.0, 0.0];
            Truth(|x| x.float().is_infinite()), Constant;

        /// Whether it is neither infinite nor NaN. A bool tensor, for every type.
        IsFinite is_finite = "isfinite" Floats Bool or OfIntegers::All(true),
            in [0.0, 0.0], [0.0, 0.0];
            Truth(|x| x.float().is_finite()), Constant;

        /// Whether its sign is negative, also that of -0. A bool tensor, for all numbers.
        Signbit signbit Numbers Bool, in [0.0, 0.0], [0.0, 0.0];
            Truth(of::signbit), Constant;
    }
}
