//! Reference kernel of `shaders/binary.wgsl`.

use crate::ops::binary::BinaryOp;
use crate::ops::elementwise::Code;
use crate::ops::elementwise::reference::{Lane, each, words};
pub(super) use crate::ops::ternary::reference::lerp;
use lapidary_core::internal::ReferenceCall;

/// An operation on two elements, by the type that it computes in.
#[derive(Clone, Copy, Debug)]
pub(super) enum Reference {
    Narrow(fn(f32, f32) -> f32),
    /// Computed in f64, and rounded.
    Wide(fn(f64, f64) -> f64),
    /// With the two scalars.
    Scaled(fn(f32, f32, [f32; 2]) -> f32),
    Near(fn(f32, f32, [f32; 2]) -> bool),
    Numbers(
        fn(f32, f32) -> f32,
        fn(i32, i32) -> i32,
        fn(u32, u32) -> u32,
    ),
    Whole(fn(i32, i32) -> i32, fn(u32, u32) -> u32),
    Truth(
        fn(f32, f32) -> bool,
        fn(i32, i32) -> bool,
        fn(u32, u32) -> bool,
    ),
    /// Of whether the elements are not 0.
    Truths(fn(bool, bool) -> bool),
}

pub(crate) fn run(call: &mut ReferenceCall) {
    let row = BinaryOp::from_code(Code(call.variant.code)).row();
    let words = words(call);
    let scalars = [words[2], words[3]].map(f32::from_bits);
    each(call, |_, lanes| {
        row.reference.of(lanes[0], lanes[1], scalars)
    });
}

impl Reference {
    fn of(self, a: Lane, b: Lane, scalars: [f32; 2]) -> Lane {
        use Lane::{F32, I32, U32};
        use Reference::*;
        match (self, a, b) {
            (Narrow(f) | Numbers(f, ..), F32(a), F32(b)) => F32(f(a, b)),
            (Wide(f), F32(a), F32(b)) => F32(f(a.into(), b.into()) as f32),
            (Scaled(f), F32(a), F32(b)) => F32(f(a, b, scalars)),
            (Near(f), F32(a), F32(b)) => Lane::truth(f(a, b, scalars)),
            (Numbers(_, f, _) | Whole(f, _), I32(a), I32(b)) => I32(f(a, b)),
            (Numbers(_, _, f) | Whole(_, f), U32(a), U32(b)) => U32(f(a, b)),
            (Truth(f, ..), F32(a), F32(b)) => Lane::truth(f(a, b)),
            (Truth(_, f, _), I32(a), I32(b)) => Lane::truth(f(a, b)),
            (Truth(_, _, f), U32(a), U32(b)) => Lane::truth(f(a, b)),
            (Truths(f), a, b) => Lane::truth(f(a.is_true(), b.is_true())),
            (_, a, b) => unreachable!("the operation does not take {a:?} and {b:?}"),
        }
    }
}

pub(super) fn maximum(a: f32, b: f32) -> f32 {
    if a.is_nan() || b.is_nan() {
        f32::NAN
    } else {
        a.max(b)
    }
}

pub(super) fn minimum(a: f32, b: f32) -> f32 {
    if a.is_nan() || b.is_nan() {
        f32::NAN
    } else {
        a.min(b)
    }
}

pub(super) fn heaviside(a: f32, b: f32) -> f32 {
    match a {
        0.0 => b,
        _ if a.is_nan() => a,
        _ => f32::from(u8::from(a > 0.0)),
    }
}

/// `a` times a logarithm of `b`.
pub(super) fn times_log(a: f32, b: f32, log: f32) -> f32 {
    if a == 0.0 && !b.is_nan() {
        0.0
    } else {
        a * log
    }
}

/// The logarithm of the sum of two powers of a base with this natural logarithm.
pub(super) fn sum_of_powers(a: f64, b: f64, power: fn(f64) -> f64, log: f64) -> f64 {
    match (a, b) {
        _ if a == b && a.is_infinite() => a,
        _ if a.is_nan() || b.is_nan() => f64::NAN,
        _ => a.max(b) + power(-(a - b).abs()).ln_1p() / log,
    }
}

pub(super) fn floor_divide(a: f32, b: f32) -> f32 {
    if b == 0.0 || a.is_infinite() {
        return a / b;
    }
    let rest = a % b;
    let quotient = ((f64::from(a) - f64::from(rest)) / f64::from(b)).round();
    let is_below = rest != 0.0 && (rest < 0.0) != (b < 0.0);
    (quotient - f64::from(u8::from(is_below))) as f32
}

pub(super) fn signed_pow(a: i32, b: i32) -> i32 {
    match (u32::try_from(b), a) {
        (Ok(b), _) => a.wrapping_pow(b),
        (Err(_), 1) => 1,
        (Err(_), -1) if b % 2 == 0 => 1,
        (Err(_), -1) => -1,
        (Err(_), _) => 0,
    }
}

pub(super) fn signed_remainder(a: i32, b: i32) -> i32 {
    if b == 0 {
        return 0;
    }
    match a.wrapping_rem(b) {
        rest if rest != 0 && (rest < 0) != (b < 0) => rest + b,
        rest => rest,
    }
}

pub(super) fn signed_floor_divide(a: i32, b: i32) -> i32 {
    if b == 0 {
        return a;
    }
    let is_below = a.wrapping_rem(b) != 0 && (a < 0) != (b < 0);
    a.wrapping_div(b) - i32::from(is_below)
}

pub(super) fn signed_lcm(a: i32, b: i32) -> i32 {
    match gcd(a.unsigned_abs(), b.unsigned_abs()) as i32 {
        0 => 0,
        common => a.wrapping_div(common).wrapping_mul(b).wrapping_abs(),
    }
}

pub(super) fn gcd(a: u32, b: u32) -> u32 {
    match b {
        0 => a,
        _ => gcd(b, a % b),
    }
}

/// The remainder with the sign of the divisor.
pub(super) fn remainder(a: f32, b: f32) -> f32 {
    match a % b {
        0.0 => 0_f32.copysign(b),
        rest if (rest < 0.0) != (b < 0.0) => rest + b,
        rest => rest,
    }
}
