//! Reference kernel of `shaders/unary.wgsl`.

pub(super) use std::f64::consts::SQRT_2;

use crate::ops::elementwise::Code;
use crate::ops::elementwise::reference::{Lane, each, words};
use crate::ops::unary::UnaryOp;
use lapidary_core::internal::ReferenceCall;

/// An operation on one element, by the type that it computes in.
#[derive(Clone, Copy, Debug)]
pub(super) enum Reference {
    /// Computed in f32.
    Narrow(fn(f32) -> f32),
    /// Computed in f64, and rounded.
    Wide(fn(f64) -> f64),
    /// With the two scalars.
    ByScalars(fn(f32, [f32; 2]) -> f32),
    Numbers(fn(f32) -> f32, fn(i32) -> i32, fn(u32) -> u32),
    Whole(fn(i32) -> i32, fn(u32) -> u32),
    Truth(fn(Lane) -> bool),
    /// With the two scalars in the type of the element.
    Any(fn(Lane, [Lane; 2]) -> Lane),
}

pub(crate) fn run(call: &mut ReferenceCall) {
    let row = UnaryOp::from_code(Code(call.variant.code)).row();
    let (dtype, words) = (call.variant.dtypes[0], words(call));
    let scalars = [words[2], words[3]].map(|bits| Lane::from_bits(dtype, bits));
    each(call, |_, x| row.reference.of(x[0], scalars));
}

/// An operation without scalars, of a float.
pub(in crate::ops) fn float(op: UnaryOp, x: f32) -> f32 {
    let zeros = [Lane::F32(0.0); 2];
    op.row().reference.of(Lane::F32(x), zeros).float()
}

impl Reference {
    fn of(self, x: Lane, scalars: [Lane; 2]) -> Lane {
        use Reference::*;
        match (self, x) {
            (Narrow(f) | Numbers(f, ..), Lane::F32(x)) => Lane::F32(f(x)),
            (Wide(f), Lane::F32(x)) => Lane::F32(f(x.into()) as f32),
            (ByScalars(f), Lane::F32(x)) => Lane::F32(f(x, scalars.map(Lane::float))),
            (Numbers(_, f, _) | Whole(f, _), Lane::I32(x)) => Lane::I32(f(x)),
            (Numbers(_, _, f) | Whole(_, f), Lane::U32(x)) => Lane::U32(f(x)),
            (Truth(f), x) => Lane::truth(f(x)),
            (Any(f), x) => f(x, scalars),
            (_, x) => unreachable!("the operation does not take {x:?}"),
        }
    }
}

pub(super) fn clamp(x: Lane, bounds: [Lane; 2]) -> Lane {
    match (x, bounds) {
        (Lane::F32(x), [Lane::F32(low), Lane::F32(high)]) => {
            Lane::F32(match x.is_nan() || low.is_nan() || high.is_nan() {
                true => f32::NAN,
                false => x.max(low).min(high),
            })
        }
        (Lane::I32(x), [Lane::I32(low), Lane::I32(high)]) => Lane::I32(x.max(low).min(high)),
        (Lane::U32(x), [Lane::U32(low), Lane::U32(high)]) => Lane::U32(x.max(low).min(high)),
        lanes => unreachable!("bounds of another type: {lanes:?}"),
    }
}

pub(super) fn sign(x: f32) -> f32 {
    if x == 0.0 { x } else { x.signum() }
}

pub(super) fn signbit(x: Lane) -> bool {
    match x {
        Lane::F32(x) => x.is_sign_negative(),
        Lane::I32(x) => x < 0,
        Lane::U32(_) => false,
    }
}

pub(super) fn gelu_tanh(x: f32) -> f32 {
    let inner = (2.0 / std::f32::consts::PI).sqrt() * (x + 0.044715 * x * x * x);
    0.5 * x * (1.0 + inner.tanh())
}

pub(super) fn tanhshrink(x: f64) -> f64 {
    // The difference loses digits even in f64.
    match x.abs() < 0.02 {
        true => x.powi(3) * (1.0 / 3.0 - x * x * 2.0 / 15.0),
        false => x - x.tanh(),
    }
}

pub(super) fn sinc(x: f64) -> f64 {
    let near = std::f64::consts::PI * (x - 2.0 * (x / 2.0).round());
    match x {
        0.0 => 1.0,
        // Large numbers are whole; infinity gives NaN.
        _ if x == x.round() => 0.0 * x,
        _ => near.sin() / (std::f64::consts::PI * x),
    }
}

/// ln(1 + exp(x)); NaN stays.
pub(super) fn softplus(x: f64) -> f64 {
    let above = if x < 0.0 { 0.0 } else { x };
    above + (-x.abs()).exp().ln_1p()
}

pub(super) fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + (-x).exp())
}

/// The series with positive terms, which loses no digits.
pub(super) fn erf(x: f64) -> f64 {
    if x.is_nan() || x.abs() > 6.0 {
        return if x.is_nan() { x } else { x.signum() };
    }
    let mut term = x;
    let mut sum = x;
    for n in 1..200 {
        term *= 2.0 * x * x / f64::from(2 * n + 1);
        sum += term;
    }
    std::f64::consts::FRAC_2_SQRT_PI * (-x * x).exp() * sum
}

/// Far from 0, the continued fraction: the difference would lose digits.
pub(super) fn erfc(x: f64) -> f64 {
    if x.is_nan() || x < 2.0 {
        return 1.0 - erf(x);
    }
    let fraction = (1..200)
        .rev()
        .fold(x, |rest, n| x + f64::from(n) / 2.0 / rest);
    0.5 * std::f64::consts::FRAC_2_SQRT_PI * (-x * x).exp() / fraction
}

/// Newton's method from a start far from 0, where every step comes nearer.
pub(super) fn erfinv(x: f64) -> f64 {
    if x.is_nan() || x.abs() >= 1.0 {
        return if x.abs() == 1.0 {
            x * f64::INFINITY
        } else {
            f64::NAN
        };
    }
    let mut y = 0.0;
    for _ in 0..60 {
        y += (x - erf(y)) / (std::f64::consts::FRAC_2_SQRT_PI * (-y * y).exp());
    }
    y
}

#[cfg(test)]
mod tests {
    use super::erf;

    #[test]
    fn the_error_function_is_that_of_the_tables() {
        for (x, y) in [
            (0.0, 0.0),
            (0.1, 0.1124629160182849),
            (0.5, 0.5204998778130465),
            (1.0, 0.8427007929497149),
            (2.0, 0.9953222650189527),
            (-3.5, -0.9999992569016276),
            (7.0, 1.0),
        ] {
            assert!((erf(x) - y).abs() < 1e-14, "erf({x}) = {}", erf(x));
        }
    }
}
