//! Functions of floats. An f16 is computed as an f32, and rounded when it is stored.

use super::code::{Binary, Ternary, Unary};

/// A function of one float. The host computes `1 / ln`, `2^x` and the like.
pub(super) fn unary(op: Unary, x: f32) -> f32 {
    match op {
        Unary::Negate => -x,
        Unary::Abs => x.abs(),
        Unary::Sign if x == 0.0 => 0.0,
        Unary::Sign => x.signum(),
        Unary::Saturate => x.clamp(0.0, 1.0),
        Unary::Radians => x.to_radians(),
        Unary::Degrees => x.to_degrees(),
        Unary::Ceil => x.ceil(),
        Unary::Floor => x.floor(),
        Unary::Round => x.round_ties_even(),
        Unary::Fract => x - x.floor(),
        Unary::Trunc => x.trunc(),
        Unary::Exp => x.exp(),
        Unary::Exp2 => x.exp2(),
        Unary::Log => x.ln(),
        Unary::Log2 => x.log2(),
        Unary::Sqrt => x.sqrt(),
        Unary::InverseSqrt => x.sqrt().recip(),
        Unary::QuantizeToF16 => half::f16::from_f32(x).to_f32(),
        op => trigonometric(op, x),
    }
}

fn trigonometric(op: Unary, x: f32) -> f32 {
    match op {
        Unary::Cos => x.cos(),
        Unary::Cosh => x.cosh(),
        Unary::Sin => x.sin(),
        Unary::Sinh => x.sinh(),
        Unary::Tan => x.tan(),
        Unary::Tanh => x.tanh(),
        Unary::Acos => x.acos(),
        Unary::Asin => x.asin(),
        Unary::Atan => x.atan(),
        Unary::Asinh => x.asinh(),
        Unary::Acosh => x.acosh(),
        Unary::Atanh => x.atanh(),
        // The compiler emits no other function for floats.
        _ => f32::NAN,
    }
}

/// A function of two floats.
pub(super) fn binary(op: Binary, a: f32, b: f32) -> f32 {
    match op {
        Binary::Add => a + b,
        Binary::Subtract => a - b,
        Binary::Multiply => a * b,
        Binary::Divide => a / b,
        // WGSL's definition, with the rounding of devices.
        Binary::Modulo => a - b * (a / b).trunc(),
        Binary::Min => a.min(b),
        Binary::Max => a.max(b),
        Binary::Pow if a < 0.0 => f32::NAN,
        Binary::Pow => a.powf(b),
        Binary::Atan2 => a.atan2(b),
        Binary::Step => f32::from(u8::from(a <= b)),
        // The compiler emits no other function for floats.
        _ => f32::NAN,
    }
}

/// A float times two to the power of `exponent`.
pub(super) fn ldexp(x: f32, exponent: i32) -> f32 {
    (f64::from(x) * f64::from(exponent.clamp(-1000, 1000)).exp2()) as f32
}

/// The fraction of a float, between a half and one, and its exponent.
pub(super) fn frexp(x: f32) -> (f32, i32) {
    if x == 0.0 || !x.is_finite() {
        return (x, 0);
    }
    // f64 is exact here, since its exponents have a larger range than those of f32.
    let wide = f64::from(x).to_bits();
    let exponent = (wide >> 52 & 0x7ff) as i32 - 1022;
    let fraction = f64::from_bits(wide & !(0x7ff << 52) | 1022 << 52);
    (fraction as f32, exponent)
}

/// A function of three floats.
pub(super) fn ternary(op: Ternary, a: f32, b: f32, c: f32) -> f32 {
    match op {
        Ternary::Clamp => a.max(b).min(c),
        Ternary::Fma => a.mul_add(b, c),
        Ternary::Mix => a * (1.0 - c) + b * c,
        Ternary::SmoothStep => {
            let t = ((c - a) / (b - a)).clamp(0.0, 1.0);
            t * t * (3.0 - 2.0 * t)
        }
        // The compiler emits no other function for floats.
        Ternary::ExtractBits | Ternary::InsertBits => f32::NAN,
    }
}
