//! Reference kernel of `shaders/unary.wgsl`.

use crate::ops::elementwise::Code;
use crate::ops::elementwise::reference::{Lane, each, words};
use crate::ops::unary::UnaryOp;
use lapidary_core::internal::ReferenceCall;

pub(crate) fn run(call: &mut ReferenceCall) {
    let op = UnaryOp::from_code(Code(call.variant.code));
    let (dtype, words) = (call.variant.dtypes[0], words(call));
    let bounds = [words[2], words[3]].map(|bits| Lane::from_bits(dtype, bits));
    each(call, |_, x| match (op, x[0], bounds) {
        (UnaryOp::LogicalNot, x, _) => Lane::truth(!x.is_true()),
        (UnaryOp::IsNan, Lane::F32(x), _) => Lane::truth(x.is_nan()),
        (UnaryOp::IsFinite, Lane::F32(x), _) => Lane::truth(x.is_finite()),
        (UnaryOp::IsInf, Lane::F32(x), _) => Lane::truth(x.is_infinite()),
        (UnaryOp::LeakyRelu, Lane::F32(x), [Lane::F32(slope), _]) => {
            Lane::F32(if x < 0.0 { x * slope } else { x })
        }
        (UnaryOp::Celu, Lane::F32(x), [Lane::F32(alpha), _]) => Lane::F32(match x < 0.0 {
            true => alpha * (x / alpha).exp_m1(),
            false => x,
        }),
        (UnaryOp::Signbit, Lane::F32(x), _) => Lane::truth(x.is_sign_negative()),
        (UnaryOp::Signbit, Lane::I32(x), _) => Lane::truth(x < 0),
        (UnaryOp::Signbit, Lane::U32(_), _) => Lane::truth(false),
        (UnaryOp::Elu, Lane::F32(x), [Lane::F32(alpha), Lane::F32(scale)]) => {
            Lane::F32(scale * if x < 0.0 { alpha * x.exp_m1() } else { x })
        }
        (UnaryOp::Clamp, Lane::F32(x), [Lane::F32(low), Lane::F32(high)]) => {
            Lane::F32(match x.is_nan() || low.is_nan() || high.is_nan() {
                true => f32::NAN,
                false => x.max(low).min(high),
            })
        }
        (UnaryOp::Clamp, Lane::I32(x), [Lane::I32(low), Lane::I32(high)]) => {
            Lane::I32(x.max(low).min(high))
        }
        (UnaryOp::Clamp, Lane::U32(x), [Lane::U32(low), Lane::U32(high)]) => {
            Lane::U32(x.max(low).min(high))
        }
        (op, Lane::F32(x), _) => Lane::F32(float(op, x)),
        (op, Lane::I32(x), _) => Lane::I32(match op {
            UnaryOp::Neg => x.wrapping_neg(),
            UnaryOp::Abs => x.wrapping_abs(),
            UnaryOp::Sign => x.signum(),
            UnaryOp::Square => x.wrapping_mul(x),
            UnaryOp::Relu => x.max(0),
            UnaryOp::BitwiseNot => !x,
            op => unreachable!("{op:?} takes no integers"),
        }),
        (op, Lane::U32(x), _) => Lane::U32(match op {
            UnaryOp::Neg => x.wrapping_neg(),
            UnaryOp::Abs | UnaryOp::Relu => x,
            UnaryOp::Sign => x.min(1),
            UnaryOp::BitwiseNot => !x,
            UnaryOp::Square => x.wrapping_mul(x),
            op => unreachable!("{op:?} takes no integers"),
        }),
    });
}

pub(in crate::ops) fn float(op: UnaryOp, x: f32) -> f32 {
    match op {
        UnaryOp::Neg => -x,
        UnaryOp::Abs => x.abs(),
        UnaryOp::Sign if x == 0.0 => x,
        UnaryOp::Sign => x.signum(),
        UnaryOp::Square => x * x,
        UnaryOp::Relu if x < 0.0 => 0.0,
        UnaryOp::Relu => x,
        UnaryOp::Exp => x.exp(),
        UnaryOp::Log => x.ln(),
        UnaryOp::Sqrt => x.sqrt(),
        UnaryOp::Rsqrt => 1.0 / x.sqrt(),
        UnaryOp::Recip => 1.0 / x,
        UnaryOp::Sin => x.sin(),
        UnaryOp::Cos => x.cos(),
        UnaryOp::Tanh => x.tanh(),
        UnaryOp::Erf => erf(f64::from(x)) as f32,
        UnaryOp::Sigmoid => sigmoid(x),
        UnaryOp::Silu => x * sigmoid(x),
        UnaryOp::Gelu => {
            let x = f64::from(x);
            (0.5 * x * (1.0 + erf(x / std::f64::consts::SQRT_2))) as f32
        }
        UnaryOp::GeluTanh => {
            let inner = (2.0 / std::f32::consts::PI).sqrt() * (x + 0.044715 * x * x * x);
            0.5 * x * (1.0 + inner.tanh())
        }
        UnaryOp::Floor => x.floor(),
        UnaryOp::Ceil => x.ceil(),
        UnaryOp::Round => x.round_ties_even(),
        UnaryOp::Trunc => x.trunc(),
        op => curve(op, x),
    }
}

/// Functions that the standard library has, or that are computed in f64.
fn curve(op: UnaryOp, x: f32) -> f32 {
    let wide = f64::from(x);
    match op {
        UnaryOp::Exp2 => x.exp2(),
        UnaryOp::Expm1 => x.exp_m1(),
        UnaryOp::Log2 => x.log2(),
        UnaryOp::Log10 => x.log10(),
        UnaryOp::Log1p => x.ln_1p(),
        UnaryOp::Frac => x - x.trunc(),
        UnaryOp::Tan => x.tan(),
        UnaryOp::Asin => x.asin(),
        UnaryOp::Acos => x.acos(),
        UnaryOp::Atan => x.atan(),
        UnaryOp::Sinh => x.sinh(),
        UnaryOp::Cosh => x.cosh(),
        UnaryOp::Asinh => wide.asinh() as f32,
        UnaryOp::Acosh => wide.acosh() as f32,
        UnaryOp::Atanh => wide.atanh() as f32,
        UnaryOp::Softplus => softplus(wide) as f32,
        UnaryOp::LogSigmoid => -softplus(-wide) as f32,
        UnaryOp::Softsign => x / (1.0 + x.abs()),
        UnaryOp::Mish => (wide * softplus(wide).tanh()) as f32,
        UnaryOp::Hardsigmoid => (x / 6.0 + 0.5).clamp(0.0, 1.0),
        UnaryOp::Hardswish => x * ((x + 3.0).clamp(0.0, 6.0) / 6.0),
        // The difference loses digits even in f64.
        UnaryOp::Tanhshrink if x.abs() < 0.02 => {
            (wide.powi(3) * (1.0 / 3.0 - wide * wide * 2.0 / 15.0)) as f32
        }
        UnaryOp::Tanhshrink => (wide - wide.tanh()) as f32,
        UnaryOp::Deg2rad => wide.to_radians() as f32,
        UnaryOp::Rad2deg => wide.to_degrees() as f32,
        UnaryOp::Erfc => erfc(wide) as f32,
        UnaryOp::Erfinv => erfinv(wide) as f32,
        UnaryOp::Ndtr => (0.5 * erfc(-wide / std::f64::consts::SQRT_2)) as f32,
        UnaryOp::Sinc => sinc(wide) as f32,
        UnaryOp::Logit => (wide.ln() - (-wide).ln_1p()) as f32,
        op => unreachable!("{op:?} is handled by its caller"),
    }
}

fn sinc(x: f64) -> f64 {
    let near = std::f64::consts::PI * (x - 2.0 * (x / 2.0).round());
    match x {
        0.0 => 1.0,
        // Large numbers are whole; infinity gives NaN.
        _ if x == x.round() => 0.0 * x,
        _ => near.sin() / (std::f64::consts::PI * x),
    }
}

/// ln(1 + exp(x)); NaN stays.
fn softplus(x: f64) -> f64 {
    let above = if x < 0.0 { 0.0 } else { x };
    above + (-x.abs()).exp().ln_1p()
}

fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + (-x).exp())
}

/// The series with positive terms, which loses no digits.
fn erf(x: f64) -> f64 {
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
fn erfc(x: f64) -> f64 {
    if x.is_nan() || x < 2.0 {
        return 1.0 - erf(x);
    }
    let fraction = (1..200)
        .rev()
        .fold(x, |rest, n| x + f64::from(n) / 2.0 / rest);
    0.5 * std::f64::consts::FRAC_2_SQRT_PI * (-x * x).exp() / fraction
}

/// Newton's method from a start far from 0, where every step comes nearer.
fn erfinv(x: f64) -> f64 {
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
