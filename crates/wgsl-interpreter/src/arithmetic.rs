//! Functions of one, two and three numbers, as WGSL defines them. Integers wrap, a division by zero
//! gives the dividend, and shifts take the amount modulo the width.

use super::code::{Binary, Num, Pair, Reg, Ternary, Unary};
use super::value::{Half, Number, POISON, map, map2, map3};
use super::{bits, float};

/// A function of one number, applied to each lane.
pub(super) fn unary(registers: &mut [u32], num: Num, op: Unary, at: (Reg, Reg), count: u8) {
    match (num, op) {
        (Num::F32, Unary::IsNan) => map(registers, at, count, f32::is_nan),
        (Num::F32, Unary::IsInf) => map(registers, at, count, f32::is_infinite),
        (Num::F16, Unary::IsNan) => map(registers, at, count, |x: Half| x.0.is_nan()),
        (Num::F16, Unary::IsInf) => map(registers, at, count, |x: Half| x.0.is_infinite()),
        (Num::F32, _) => map(registers, at, count, |x| float::unary(op, x)),
        (Num::F16, _) => map(registers, at, count, |x: Half| Half(float::unary(op, x.0))),
        (Num::I32, _) => map(registers, at, count, |x| signed_unary(op, x)),
        (Num::U32, _) => map(registers, at, count, |x| bits::unary(op, x)),
        (Num::Bool, _) => map(registers, at, count, |x: bool| !x),
        (Num::I64, _) => map(registers, at, count, |x: i64| match op {
            Unary::Negate => x.wrapping_neg(),
            Unary::Not => !x,
            Unary::Abs => x.wrapping_abs(),
            Unary::Sign => x.signum(),
            // The highest bit that differs from the sign bit.
            Unary::FirstLeadingBit => bits::unary64(op, if x < 0 { !x } else { x } as u64) as i64,
            _ => bits::unary64(op, x as u64) as i64,
        }),
        (Num::U64, _) => map(registers, at, count, |x| bits::unary64(op, x)),
    }
}

fn signed_unary(op: Unary, x: i32) -> i32 {
    match op {
        Unary::Negate => x.wrapping_neg(),
        Unary::Abs => x.wrapping_abs(),
        Unary::Sign => x.signum(),
        // The highest bit that differs from the sign bit.
        Unary::FirstLeadingBit => bits::unary(op, if x < 0 { !x } else { x } as u32) as i32,
        _ => bits::unary(op, x as u32) as i32,
    }
}

/// A function of two numbers, applied to each lane.
pub(super) fn binary(registers: &mut [u32], num: Num, op: Binary, pair: &Pair) {
    if is_comparison(op) {
        return compare(registers, num, op, pair);
    }
    match num {
        Num::F32 if op == Binary::Ldexp => map2(registers, pair, float::ldexp),
        Num::F16 if op == Binary::Ldexp => {
            map2(registers, pair, |x: Half, n: i32| {
                Half(float::ldexp(x.0, n))
            });
        }
        Num::F32 => map2(registers, pair, |a, b| float::binary(op, a, b)),
        Num::F16 => map2(registers, pair, |a: Half, b: Half| {
            Half(float::binary(op, a.0, b.0))
        }),
        Num::I32 => map2(registers, pair, |a, b| i32_binary(op, a, b)),
        Num::U32 => map2(registers, pair, |a, b| u32_binary(op, a, b)),
        Num::I64 if is_shift(op) => map2(registers, pair, |a: i64, b: u32| match op {
            Binary::ShiftLeft => a.wrapping_shl(b),
            _ => a.wrapping_shr(b),
        }),
        Num::U64 if is_shift(op) => map2(registers, pair, |a: u64, b: u32| match op {
            Binary::ShiftLeft => a.wrapping_shl(b),
            _ => a.wrapping_shr(b),
        }),
        Num::I64 => map2(registers, pair, |a, b| i64_binary(op, a, b)),
        Num::U64 => map2(registers, pair, |a, b| u64_binary(op, a, b)),
        Num::Bool => map2(registers, pair, |a: bool, b: bool| match op {
            Binary::And => a & b,
            Binary::Or => a | b,
            _ => a ^ b,
        }),
    }
}

fn is_shift(op: Binary) -> bool {
    matches!(op, Binary::ShiftLeft | Binary::ShiftRight)
}

fn is_comparison(op: Binary) -> bool {
    matches!(
        op,
        Binary::Equal
            | Binary::NotEqual
            | Binary::Less
            | Binary::LessEqual
            | Binary::Greater
            | Binary::GreaterEqual
    )
}

fn compare(registers: &mut [u32], num: Num, op: Binary, pair: &Pair) {
    match num {
        Num::F32 => map2(registers, pair, |a: f32, b: f32| holds(op, &a, &b)),
        Num::F16 => map2(registers, pair, |a: Half, b: Half| holds(op, &a.0, &b.0)),
        Num::I32 => map2(registers, pair, |a: i32, b: i32| holds(op, &a, &b)),
        Num::U32 => map2(registers, pair, |a: u32, b: u32| holds(op, &a, &b)),
        Num::I64 => map2(registers, pair, |a: i64, b: i64| holds(op, &a, &b)),
        Num::U64 => map2(registers, pair, |a: u64, b: u64| holds(op, &a, &b)),
        Num::Bool => map2(registers, pair, |a: bool, b: bool| holds(op, &a, &b)),
    }
}

fn holds<T: PartialOrd>(op: Binary, a: &T, b: &T) -> bool {
    match op {
        Binary::Equal => a == b,
        Binary::NotEqual => a != b,
        Binary::Less => a < b,
        Binary::LessEqual => a <= b,
        Binary::Greater => a > b,
        _ => a >= b,
    }
}

/// Functions of two integers of one type.
macro_rules! whole {
    ($name:ident, $type:ty, $shift:expr) => {
        fn $name(op: Binary, a: $type, b: $type) -> $type {
            match op {
                Binary::Add => a.wrapping_add(b),
                Binary::Subtract => a.wrapping_sub(b),
                Binary::Multiply => a.wrapping_mul(b),
                Binary::Divide if b == 0 => a,
                Binary::Divide => a.wrapping_div(b),
                Binary::Modulo if b == 0 => 0,
                Binary::Modulo => a.wrapping_rem(b),
                Binary::And => a & b,
                Binary::Or => a | b,
                Binary::Xor => a ^ b,
                Binary::ShiftLeft => a.wrapping_shl($shift(b)),
                Binary::ShiftRight => a.wrapping_shr($shift(b)),
                Binary::Min => a.min(b),
                Binary::Max => a.max(b),
                // The compiler emits no other function for these types.
                _ => POISON as $type,
            }
        }
    };
}

whole!(i32_binary, i32, |b| b as u32);
whole!(u32_binary, u32, |b| b);
whole!(i64_binary, i64, |b| b as u32);
whole!(u64_binary, u64, |b| b as u32);

/// A function of three numbers, applied to each lane.
pub(super) fn ternary(registers: &mut [u32], num: Num, op: Ternary, at: [Reg; 4], count: u8) {
    match (num, op) {
        (Num::F32, _) => map3(registers, at, count, |a, b, c| float::ternary(op, a, b, c)),
        (Num::F16, _) => map3(registers, at, count, |a: Half, b, c| {
            Half(float::ternary(op, a.0, b.0, c.0))
        }),
        (_, Ternary::ExtractBits) => {
            let is_signed = matches!(num, Num::I32 | Num::I64);
            bits::extract(registers, words_of(num), is_signed, at, count);
        }
        (_, Ternary::InsertBits) => bits::insert(registers, words_of(num), at, count),
        (Num::I32, _) => map3(registers, at, count, |x: i32, low, high| {
            x.max(low).min(high)
        }),
        (Num::I64, _) => map3(registers, at, count, |x: i64, low, high| {
            x.max(low).min(high)
        }),
        (Num::U64, _) => map3(registers, at, count, |x: u64, low, high| {
            x.max(low).min(high)
        }),
        (Num::U32 | Num::Bool, _) => map3(registers, at, count, |x: u32, low, high| {
            x.max(low).min(high)
        }),
    }
}

/// The registers of an integer.
fn words_of(num: Num) -> usize {
    match num {
        Num::I64 | Num::U64 => 2,
        _ => 1,
    }
}

/// Converts each lane from one type of numbers to another.
pub(super) fn cast(registers: &mut [u32], from: Num, into: Num, at: (Reg, Reg), count: u8) {
    // Every number except the largest of 64 bits fits exactly into one of these two types.
    match from {
        Num::F32 => of_float::<f32>(registers, into, at, count, |x| x),
        Num::F16 if matches!(into, Num::F32 | Num::F16 | Num::Bool) => {
            of_float::<Half>(registers, into, at, count, |x| x.0);
        }
        // An infinity becomes the largest number of the type before it becomes an integer.
        Num::F16 => of_float::<Half>(registers, into, at, count, |x| x.0.clamp(-65504.0, 65504.0)),
        Num::Bool => of_whole::<bool>(registers, into, at, count, i128::from),
        Num::I32 => of_whole::<i32>(registers, into, at, count, i128::from),
        Num::U32 => of_whole::<u32>(registers, into, at, count, i128::from),
        Num::I64 => of_whole::<i64>(registers, into, at, count, i128::from),
        Num::U64 => of_whole::<u64>(registers, into, at, count, i128::from),
    }
}

/// Converts floats to integers: truncates them and clamps them to the numbers that both types have.
fn of_float<T: Number>(
    registers: &mut [u32],
    into: Num,
    at: (Reg, Reg),
    count: u8,
    value: impl Fn(T) -> f32,
) {
    match into {
        Num::F32 => map(registers, at, count, value),
        Num::F16 => map(registers, at, count, |x| Half(value(x))),
        Num::Bool => map(registers, at, count, |x| value(x) != 0.0),
        Num::I32 => map(registers, at, count, |x| at_most(value(x), MOST_I32) as i32),
        Num::U32 => map(registers, at, count, |x| at_most(value(x), MOST_U32) as u32),
        Num::I64 => map(registers, at, count, |x| at_most(value(x), MOST_I64) as i64),
        Num::U64 => map(registers, at, count, |x| at_most(value(x), MOST_U64) as u64),
    }
}

/// Keeps NaN, which becomes 0 as an integer.
fn at_most(x: f32, most: f32) -> f32 {
    if x > most { most } else { x }
}

/// The largest numbers below 2³¹, 2³², 2⁶³ and 2⁶⁴ that f32 has.
const MOST_I32: f32 = 2_147_483_520.0;
const MOST_U32: f32 = 4_294_967_040.0;
const MOST_I64: f32 = 9_223_371_487_098_961_920.0;
const MOST_U64: f32 = 18_446_742_974_197_923_840.0;

fn of_whole<T: Number>(
    registers: &mut [u32],
    into: Num,
    at: (Reg, Reg),
    count: u8,
    value: impl Fn(T) -> i128,
) {
    match into {
        Num::F32 => map(registers, at, count, |x| value(x) as f32),
        Num::F16 => map(registers, at, count, |x| Half(value(x) as f32)),
        Num::Bool => map(registers, at, count, |x| value(x) != 0),
        Num::I32 => map(registers, at, count, |x| value(x) as i32),
        Num::U32 => map(registers, at, count, |x| value(x) as u32),
        Num::I64 => map(registers, at, count, |x| value(x) as i64),
        Num::U64 => map(registers, at, count, |x| value(x) as u64),
    }
}
