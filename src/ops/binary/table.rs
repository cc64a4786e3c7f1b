//! The table of binary operations, as [that of unary ones](crate::ops::unary):
//!
//! ```text
//! /// The sentence of the page's table; more lines are only in the method's documentation.
//! Operation method + method_in_place = "another name" Takes Gives,
//!     in [[low, high], [low, high]], [relative, absolute];
//!     reference, gradient;
//! ```
//!
//! The two intervals are those of the operands. Tests take the rows from `internal::BINARY_ROWS`,
//! and the methods from `binary_methods!`.

#[cfg(any(test, feature = "sim"))]
use std::f64::consts::LN_2;

use smallvec::smallvec;

#[cfg(any(test, feature = "sim"))]
use super::reference::{self as of, Reference::*};
use super::row::Gradient::*;
use super::row::{BinaryRow, rows};
use super::rules::{copysign, of_logs, of_sums, pow};
use crate::ops::method_link;
use crate::ops::scalar::TensorOrNumber;
use crate::tensor::Tensor;
use crate::tensor::called::Called;
use crate::tensor::history::grads;
use lapidary_core::Result;
use lapidary_core::internal::MadeFor;

rows! {
    ($)

    by_hand {
        Lerp lerp Floats Same; Scaled(|a, b, [weight, _]| of::lerp(a, b, weight));
        IsClose is_close Floats Bool; Near(|a, b, [relative, absolute]| {
            let (gap, allowed) = ((a - b).abs(), absolute + (relative * b).abs());
            a == b || gap.is_finite() && gap <= allowed
        });
        Glu glu Floats Same; Narrow(|a, b| a / (1.0 + (-b).exp()));
        Bit bit Whole Bool; Truth(
            |_, _| false,
            |a, b| a >> (b & 31) & 1 != 0,
            |a, b| a >> (b & 31) & 1 != 0,
        );
    }

    numbers {
        /// `a + b`, for all numbers.
        Add add + add_ Numbers Same,
            in [[-2.0, 2.0], [-2.0, 2.0]], [1e-7, 1e-36];
            Numbers(|a, b| a + b, i32::wrapping_add, u32::wrapping_add),
            Alone(|b| grads![b; b.grad.clone(), b.grad.clone()]);

        /// `a - b`, for all numbers.
        Sub sub + sub_ Numbers Same,
            in [[-2.0, 2.0], [-2.0, 2.0]], [1e-7, 1e-36];
            Numbers(|a, b| a - b, i32::wrapping_sub, u32::wrapping_sub),
            Alone(|b| grads![b; b.grad.clone(), b.grad.neg()?]);

        /// `a * b`, for all numbers.
        Mul mul + mul_ Numbers Same,
            in [[-2.0, 2.0], [-2.0, 2.0]], [1e-7, 1e-36];
            Numbers(|a, b| a * b, i32::wrapping_mul, u32::wrapping_mul), OfProduct;

        /// `a / b`, for all numbers. Integers are rounded towards 0.
        /// For integers, `a / 0` is `a`, and the least `i32` or `i8` by -1 is itself.
        Div div + div_ Numbers Same,
            in [[-2.0, 2.0], [0.5, 2.0]], [4e-7, 1e-36];
            Numbers(
                |a, b| a / b,
                |a, b| if b == 0 { a } else { a.wrapping_div(b) },
                |a, b| a.checked_div(b).unwrap_or(a),
            ),
            OfQuotient;

        /// The remainder of `div` with the sign of the dividend, for all numbers.
        /// It is Rust's `%` and C's `fmod`. For integers, `a % 0` is 0. For floats it is exact, and
        /// NaN by 0 and of infinity. If an adapter treats subnormal numbers as 0, so does this.
        Rem rem + rem_ = "fmod" Numbers Same,
            in [[2.1, 2.9], [1.6, 1.9]], [0.0, 0.0];
            Numbers(
                |a, b| a % b,
                |a, b| if b == 0 { 0 } else { a.wrapping_rem(b) },
                |a, b| a.checked_rem(b).unwrap_or(0),
            ),
            Operands(|b, x, z| grads![b;
                b.grad.clone(),
                (&b.grad * (x / z)?.trunc()?)?.neg()?,
            ]);

        /// The remainder of `floor_divide` with the sign of the divisor, for all numbers.
        /// It is Python's and NumPy's `%`. By 0 it is 0 for integers, NaN for floats. It equals
        /// [`rem`](Tensor::rem); if the signs differ, the divisor is added and the sum rounded
        /// once. If an adapter treats subnormal numbers as 0, the error may reach the least normal
        /// number.
        Remainder remainder + remainder_ Numbers Same,
            in [[2.1, 2.9], [1.6, 1.9]], [0.0, 1.2e-38];
            Numbers(of::remainder, of::signed_remainder, |a, b| a.checked_rem(b).unwrap_or(0)),
            Operands(|b, x, z| grads![b;
                b.grad.clone(),
                (&b.grad * (x / z)?.floor()?)?.neg()?,
            ]);

        /// `a / b`, rounded down to a whole number, as Python's `//`, for all numbers.
        /// Integers by 0 are `a`, as in [`div`](Tensor::div), and the least `i32` or `i8` by -1 is
        /// itself. For floats it is `(a - rem) / b`, rounded, as in PyTorch, but an infinite `a`
        /// gives an infinite quotient and not NaN. It is exact up to 2²⁰, and at most 4 units in
        /// the last place off beyond.
        FloorDivide floor_divide + floor_divide_
            Numbers Same, in [[2.1, 2.9], [1.6, 1.9]], [4.8e-7, 0.0];
            Numbers(
                of::floor_divide,
                of::signed_floor_divide,
                |a, b| a.checked_div(b).unwrap_or(a),
            ),
            // A quotient without its fraction changes in steps.
            Alone(|_| Ok([None, None].into_iter().collect()));

        /// `a` to the power of `b`, for all numbers.
        /// Floats follow C: a negative base needs whole exponents, and anything to the power of 0
        /// is 1. They are exact to about 1e-6 of the result times its logarithm. Integers wrap. To
        /// a negative power they are 0, except 1 and -1. If `b` is the number 2, 1/2, -1/2 or -1, a
        /// float is as exact as [`square`](Tensor::square), [`sqrt`](Tensor::sqrt),
        /// [`rsqrt`](Tensor::rsqrt) or [`recip`](Tensor::recip).
        Pow pow + pow_ = "float_power" Numbers Same,
            in [[0.5, 2.0], [-1.0, 2.0]], [3e-5, 1e-36];
            Numbers(f32::powf, of::signed_pow, u32::wrapping_pow), WithResult(pow);

        /// The angle of the point (`b`, `a`), from -π to π, for floats; integers give f32.
        /// It is the arc tangent of `a / b` in the right quadrant, to 1e-6. The signs of zeros and
        /// infinities count, as in C.
        Atan2 atan2 + atan2_ Floats Float,
            in [[0.5, 2.0], [0.5, 2.0]], [1e-6, 1e-36];
            Narrow(f32::atan2), Operands(|b, x, z| {
                let g = (&b.grad / (x.square()? + z.square()?)?)?;
                grads![b; (&g * z)?, (&g * x)?.neg()?]
            });

        /// `sqrt(a² + b²)`, for floats, without intermediate overflow. ∞ if either is infinite.
        Hypot hypot + hypot_ Floats Same,
            in [[0.5, 2.0], [0.5, 2.0]], [5e-7, 1e-36];
            Narrow(f32::hypot), WithResult(|b, x, z, y| grads![b;
                (&b.grad * (x / y)?)?,
                (&b.grad * (z / y)?)?,
            ]);

        /// The magnitude of `a` with the sign of `b`, for floats; integers give f32.
        Copysign copysign + copysign_ Floats Float,
            in [[0.5, 2.0], [-2.0, -0.5]], [0.0, 0.0];
            Narrow(f32::copysign), WithResult(copysign);

        /// The larger of the two, for all numbers; NaN if either is.
        Maximum maximum + maximum_ Numbers Same,
            in [[-2.0, -0.1], [0.1, 2.0]], [0.0, 0.0];
            Numbers(of::maximum, i32::max, u32::max),
            OfExtreme(|x, z| Ok(smallvec![x.ge(z)?, x.le(z)?]));

        /// The smaller of the two, for all numbers; NaN if either is.
        Minimum minimum + minimum_ Numbers Same,
            in [[-2.0, -0.1], [0.1, 2.0]], [0.0, 0.0];
            Numbers(of::minimum, i32::min, u32::min),
            OfExtreme(|x, z| Ok(smallvec![x.le(z)?, x.ge(z)?]));

        /// The larger of the two, for floats. If one is NaN, the other one.
        Fmax fmax Floats Same, in [[-2.0, -0.1], [0.1, 2.0]], [0.0, 0.0];
            Narrow(f32::max), OfExtreme(|x, z| Ok(smallvec![x.ge(z)?.logical_or(&z.is_nan()?)?]));

        /// The smaller of the two, for floats. If one is NaN, the other one.
        Fmin fmin Floats Same, in [[-2.0, -0.1], [0.1, 2.0]], [0.0, 0.0];
            Narrow(f32::min), OfExtreme(|x, z| Ok(smallvec![x.le(z)?.logical_or(&z.is_nan()?)?]));

        /// `log(exp(a) + exp(b))`, for floats, without intermediate overflow.
        /// The error is at most 5e-7 plus the rounding of the larger one.
        Logaddexp logaddexp Floats Same,
            in [[-1.0, 1.0], [-1.0, 1.0]], [4e-7, 4e-7];
            Wide(|a, b| of::sum_of_powers(a, b, f64::exp, 1.0)),
            Operands(|b, x, z| of_sums(b, x, z, Tensor::exp));

        /// [`logaddexp`](crate::Tensor::logaddexp) with base 2, for floats.
        Logaddexp2 logaddexp2 Floats Same,
            in [[-1.0, 1.0], [-1.0, 1.0]], [4e-7, 4e-7];
            Wide(|a, b| of::sum_of_powers(a, b, f64::exp2, LN_2)),
            Operands(|b, x, z| of_sums(b, x, z, Tensor::exp2));

        /// `a * log(b)`, for floats; integers give f32.
        /// It is 0 if `a` is 0, and NaN if either is NaN.
        Xlogy xlogy + xlogy_ Floats Float,
            in [[0.5, 2.0], [0.5, 2.0]], [2e-6, 0.0];
            Narrow(|a, b| of::times_log(a, b, b.ln())),
            Operands(|b, x, z| of_logs(b, x, z, || b.grad.xlogy(z)));

        /// `a * log(1 + b)`, for floats; integers give f32.
        /// It is 0 if `a` is 0, and NaN if either is NaN.
        Xlog1py xlog1py Floats Float,
            in [[0.5, 2.0], [0.5, 2.0]], [2e-6, 0.0];
            Narrow(|a, b| of::times_log(a, b, b.ln_1p())),
            Operands(|b, x, z| of_logs(b, x, &(z + 1.0)?, || b.grad.xlog1py(z)));

        /// The greatest common divisor, at least 0, for `i32`, `u32`, `u8` and `i8`.
        /// With 0 it is the absolute value of the other one, which wraps for the least number.
        Gcd gcd + gcd_ Whole Same, in [[0.0; 2]; 2], [0.0, 0.0];
            Whole(|a, b| of::gcd(a.unsigned_abs(), b.unsigned_abs()) as i32, of::gcd), Constant;

        /// The least common multiple, for `i32`, `u32`, `u8` and `i8`.
        /// 0 if either is 0, else at least 1 unless it wraps.
        Lcm lcm + lcm_ Whole Same, in [[0.0; 2]; 2], [0.0, 0.0];
            Whole(of::signed_lcm, |a, b| (a / of::gcd(a, b).max(1)).wrapping_mul(b)), Constant;
    }

    bits {
        /// `a & b`, bit by bit, for `i32`, `u32`, `u8`, `i8` and bools.
        BitwiseAnd bitwise_and + bitwise_and_ Bits Same,
            in [[0.0; 2]; 2], [0.0, 0.0];
            Whole(|a, b| a & b, |a, b| a & b), Constant;

        /// `a` or `b`, bit by bit, for `i32`, `u32`, `u8`, `i8` and bools.
        BitwiseOr bitwise_or + bitwise_or_ Bits Same,
            in [[0.0; 2]; 2], [0.0, 0.0];
            Whole(|a, b| a | b, |a, b| a | b), Constant;

        /// `a ^ b`, bit by bit, for `i32`, `u32`, `u8`, `i8` and bools.
        BitwiseXor bitwise_xor + bitwise_xor_ Bits Same,
            in [[0.0; 2]; 2], [0.0, 0.0];
            Whole(|a, b| a ^ b, |a, b| a ^ b), Constant;

        /// `a << b`, for `i32`, `u32`, `u8` and `i8`.
        /// It is 0 if `b` is negative, or at least the number of bits of the type.
        LeftShift left_shift + left_shift_ Whole Same,
            in [[0.0; 2]; 2], [0.0, 0.0];
            Whole(
                |a, b| a.checked_shl(b as u32).unwrap_or(0),
                |a, b| a.checked_shl(b).unwrap_or(0),
            ),
            Constant;

        /// `a >> b`, for `i32`, `u32`, `u8` and `i8`. Signed types keep their sign.
        /// If `b` is negative or at least the number of bits of the type, it is 0, or -1 for a
        /// negative `a`.
        RightShift right_shift + right_shift_ Whole Same,
            in [[0.0; 2]; 2], [0.0, 0.0];
            Whole(
                |a, b| a.checked_shr(b as u32).unwrap_or(a >> 31),
                |a, b| a.checked_shr(b).unwrap_or(0),
            ),
            Constant;
    }

    comparison {
        /// `a == b`, as bools, for every type.
        Eq eq All Bool, in [[0.0; 2]; 2], [0.0, 0.0];
            Truth(|a, b| a == b, |a, b| a == b, |a, b| a == b), Constant;

        /// `a != b`, as bools, for every type.
        Ne ne All Bool, in [[0.0; 2]; 2], [0.0, 0.0];
            Truth(|a, b| a != b, |a, b| a != b, |a, b| a != b), Constant;

        /// `a < b`, as bools, for every type.
        Lt lt All Bool, in [[0.0; 2]; 2], [0.0, 0.0];
            Truth(|a, b| a < b, |a, b| a < b, |a, b| a < b), Constant;

        /// `a <= b`, as bools, for every type.
        Le le All Bool, in [[0.0; 2]; 2], [0.0, 0.0];
            Truth(|a, b| a <= b, |a, b| a <= b, |a, b| a <= b), Constant;

        /// `a > b`, as bools, for every type.
        Gt gt All Bool, in [[0.0; 2]; 2], [0.0, 0.0];
            Truth(|a, b| a > b, |a, b| a > b, |a, b| a > b), Constant;

        /// `a >= b`, as bools, for every type.
        Ge ge All Bool, in [[0.0; 2]; 2], [0.0, 0.0];
            Truth(|a, b| a >= b, |a, b| a >= b, |a, b| a >= b), Constant;

        /// Whether both are true, for every type. All values except 0 are true, also NaN.
        And logical_and All Bool, in [[0.0; 2]; 2], [0.0, 0.0];
            Truths(|a, b| a && b), Constant;

        /// Whether either is true, for every type, as `logical_and`.
        Or logical_or All Bool, in [[0.0; 2]; 2], [0.0, 0.0];
            Truths(|a, b| a || b), Constant;

        /// Whether exactly one is true, for every type, as `logical_and`.
        Xor logical_xor All Bool, in [[0.0; 2]; 2], [0.0, 0.0];
            Truths(|a, b| a != b), Constant;

        /// 0 if `a` is below 0, 1 if it is above, and `b` if it is 0, for all numbers.
        /// NaN stays NaN, as in NumPy; PyTorch gives 0. Gradients take the result as a constant.
        Heaviside heaviside + heaviside_ Numbers Same,
            in [[0.2, 2.0], [0.2, 2.0]], [0.0, 0.0];
            Numbers(
                of::heaviside,
                |a, b| if a == 0 { b } else { i32::from(a > 0) },
                |a, b| if a == 0 { b } else { 1 },
            ),
            Constant;
    }
}
