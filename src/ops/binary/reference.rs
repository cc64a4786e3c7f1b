//! Reference kernel of `shaders/binary.wgsl`.

use crate::ops::binary::BinaryOp;
use crate::ops::elementwise::Code;
use crate::ops::elementwise::reference::{Lane, each, words};
use crate::ops::ternary::reference::lerp;
use lapidary_core::internal::ReferenceCall;

pub(crate) fn run(call: &mut ReferenceCall) {
    let op = BinaryOp::from_code(Code(call.variant.code));
    let words = words(call);
    let scalars = [words[2], words[3]].map(f32::from_bits);
    each(call, |_, lanes| match (lanes[0], lanes[1]) {
        (Lane::F32(a), Lane::F32(b)) if op == BinaryOp::Lerp => Lane::F32(lerp(a, b, scalars[0])),
        (Lane::F32(a), Lane::F32(b)) if op == BinaryOp::IsClose => {
            let (gap, allowed) = ((a - b).abs(), scalars[1] + (scalars[0] * b).abs());
            Lane::truth(a == b || gap.is_finite() && gap <= allowed)
        }
        (Lane::F32(a), Lane::F32(b)) => match compare(op, a, b) {
            Some(truth) => Lane::truth(truth),
            None => Lane::F32(float(op, a, b)),
        },
        (Lane::I32(a), Lane::I32(b)) if op == BinaryOp::Bit => Lane::truth(a >> (b & 31) & 1 != 0),
        (Lane::U32(a), Lane::U32(b)) if op == BinaryOp::Bit => Lane::truth(a >> (b & 31) & 1 != 0),
        (Lane::I32(a), Lane::I32(b)) => match compare(op, a, b) {
            Some(truth) => Lane::truth(truth),
            None => Lane::I32(signed(op, a, b)),
        },
        (Lane::U32(a), Lane::U32(b)) => match compare(op, a, b) {
            Some(truth) => Lane::truth(truth),
            None => Lane::U32(unsigned(op, a, b)),
        },
        lanes => unreachable!("operands of two types: {lanes:?}"),
    });
}

fn compare<T: PartialOrd + Default>(op: BinaryOp, a: T, b: T) -> Option<bool> {
    let zero = T::default();
    Some(match op {
        BinaryOp::Eq => a == b,
        BinaryOp::Ne => a != b,
        BinaryOp::Lt => a < b,
        BinaryOp::Le => a <= b,
        BinaryOp::Gt => a > b,
        BinaryOp::Ge => a >= b,
        BinaryOp::And => a != zero && b != zero,
        BinaryOp::Or => a != zero || b != zero,
        BinaryOp::Xor => (a != zero) != (b != zero),
        _ => return None,
    })
}

fn float(op: BinaryOp, a: f32, b: f32) -> f32 {
    match op {
        BinaryOp::Add => a + b,
        BinaryOp::Sub => a - b,
        BinaryOp::Mul => a * b,
        BinaryOp::Div => a / b,
        BinaryOp::Rem => a % b,
        BinaryOp::Pow => a.powf(b),
        BinaryOp::Maximum | BinaryOp::Minimum if a.is_nan() || b.is_nan() => f32::NAN,
        BinaryOp::Maximum => a.max(b),
        BinaryOp::Minimum => a.min(b),
        BinaryOp::Fmax => a.max(b),
        BinaryOp::Fmin => a.min(b),
        BinaryOp::Remainder => remainder(a, b),
        BinaryOp::FloorDivide if b == 0.0 || a.is_infinite() => a / b,
        BinaryOp::FloorDivide => {
            let rest = a % b;
            let quotient = ((f64::from(a) - f64::from(rest)) / f64::from(b)).round();
            let is_below = rest != 0.0 && (rest < 0.0) != (b < 0.0);
            (quotient - f64::from(u8::from(is_below))) as f32
        }
        BinaryOp::Atan2 => a.atan2(b),
        BinaryOp::Hypot => a.hypot(b),
        BinaryOp::Copysign => a.copysign(b),
        BinaryOp::Xlogy | BinaryOp::Xlog1py if a == 0.0 && !b.is_nan() => 0.0,
        BinaryOp::Glu => a / (1.0 + (-b).exp()),
        BinaryOp::Xlogy => a * b.ln(),
        BinaryOp::Xlog1py => a * b.ln_1p(),
        BinaryOp::Heaviside if a.is_nan() => a,
        BinaryOp::Heaviside if a == 0.0 => b,
        BinaryOp::Heaviside => f32::from(u8::from(a > 0.0)),
        BinaryOp::Logaddexp | BinaryOp::Logaddexp2 if a == b && a.is_infinite() => a,
        BinaryOp::Logaddexp | BinaryOp::Logaddexp2 if a.is_nan() || b.is_nan() => f32::NAN,
        BinaryOp::Logaddexp => {
            let (a, b) = (f64::from(a), f64::from(b));
            (a.max(b) + (-(a - b).abs()).exp().ln_1p()) as f32
        }
        BinaryOp::Logaddexp2 => {
            let (a, b) = (f64::from(a), f64::from(b));
            (a.max(b) + (-(a - b).abs()).exp2().ln_1p() / std::f64::consts::LN_2) as f32
        }
        op => unreachable!("{op:?} takes no floats"),
    }
}

fn gcd(a: u32, b: u32) -> u32 {
    match b {
        0 => a,
        _ => gcd(b, a % b),
    }
}

/// The remainder with the sign of the divisor.
fn remainder(a: f32, b: f32) -> f32 {
    match a % b {
        0.0 => 0_f32.copysign(b),
        rest if (rest < 0.0) != (b < 0.0) => rest + b,
        rest => rest,
    }
}

fn signed(op: BinaryOp, a: i32, b: i32) -> i32 {
    match op {
        BinaryOp::Add => a.wrapping_add(b),
        BinaryOp::Sub => a.wrapping_sub(b),
        BinaryOp::Mul => a.wrapping_mul(b),
        BinaryOp::Div if b == 0 => a,
        BinaryOp::Div => a.wrapping_div(b),
        BinaryOp::Rem if b == 0 => 0,
        BinaryOp::Rem => a.wrapping_rem(b),
        BinaryOp::Pow => match (u32::try_from(b), a) {
            (Ok(b), _) => a.wrapping_pow(b),
            (Err(_), 1) => 1,
            (Err(_), -1) if b % 2 == 0 => 1,
            (Err(_), -1) => -1,
            (Err(_), _) => 0,
        },
        BinaryOp::Maximum => a.max(b),
        BinaryOp::Minimum => a.min(b),
        BinaryOp::Remainder | BinaryOp::FloorDivide if b == 0 => match op {
            BinaryOp::Remainder => 0,
            _ => a,
        },
        BinaryOp::Remainder => match a.wrapping_rem(b) {
            rest if rest != 0 && (rest < 0) != (b < 0) => rest + b,
            rest => rest,
        },
        BinaryOp::FloorDivide => {
            let is_below = a.wrapping_rem(b) != 0 && (a < 0) != (b < 0);
            a.wrapping_div(b) - i32::from(is_below)
        }
        BinaryOp::BitwiseAnd => a & b,
        BinaryOp::BitwiseOr => a | b,
        BinaryOp::BitwiseXor => a ^ b,
        BinaryOp::LeftShift => a.checked_shl(b as u32).unwrap_or(0),
        BinaryOp::RightShift => a.checked_shr(b as u32).unwrap_or(a >> 31),
        BinaryOp::Heaviside if a == 0 => b,
        BinaryOp::Heaviside => i32::from(a > 0),
        BinaryOp::Gcd => gcd(a.unsigned_abs(), b.unsigned_abs()) as i32,
        BinaryOp::Lcm => match gcd(a.unsigned_abs(), b.unsigned_abs()) as i32 {
            0 => 0,
            common => a.wrapping_div(common).wrapping_mul(b).wrapping_abs(),
        },
        op => unreachable!("{op:?} takes no i32"),
    }
}

fn unsigned(op: BinaryOp, a: u32, b: u32) -> u32 {
    match op {
        BinaryOp::Add => a.wrapping_add(b),
        BinaryOp::Sub => a.wrapping_sub(b),
        BinaryOp::Mul => a.wrapping_mul(b),
        BinaryOp::Div => a.checked_div(b).unwrap_or(a),
        BinaryOp::Rem => a.checked_rem(b).unwrap_or(0),
        BinaryOp::Pow => a.wrapping_pow(b),
        BinaryOp::Maximum => a.max(b),
        BinaryOp::Minimum => a.min(b),
        BinaryOp::Remainder => a.checked_rem(b).unwrap_or(0),
        BinaryOp::FloorDivide => a.checked_div(b).unwrap_or(a),
        BinaryOp::BitwiseAnd => a & b,
        BinaryOp::BitwiseOr => a | b,
        BinaryOp::BitwiseXor => a ^ b,
        BinaryOp::LeftShift => a.checked_shl(b).unwrap_or(0),
        BinaryOp::RightShift => a.checked_shr(b).unwrap_or(0),
        BinaryOp::Heaviside if a == 0 => b,
        BinaryOp::Heaviside => u32::from(a > 0),
        BinaryOp::Gcd => gcd(a, b),
        BinaryOp::Lcm => (a / gcd(a, b).max(1)).wrapping_mul(b),
        op => unreachable!("{op:?} is a comparison"),
    }
}
