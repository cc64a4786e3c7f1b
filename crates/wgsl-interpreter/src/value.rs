//! Numbers in registers, and functions applied lane by lane.

use super::code::{Pair, Reg};

/// The value of an undefined result: a NaN as a float, and an unlikely large number as an integer.
pub(super) const POISON: u32 = 0xffba_dbad;

/// A number in registers.
pub(super) trait Number: Copy {
    const WORDS: usize;
    fn get(registers: &[u32], at: usize) -> Self;
    fn put(self, registers: &mut [u32], at: usize);
}

macro_rules! one_word {
    ($type:ty, $get:expr, $put:expr) => {
        impl Number for $type {
            const WORDS: usize = 1;
            fn get(registers: &[u32], at: usize) -> Self {
                $get(registers[at])
            }
            fn put(self, registers: &mut [u32], at: usize) {
                registers[at] = $put(self);
            }
        }
    };
}

one_word!(u32, |word| word, |word| word);
one_word!(i32, |word| word as i32, |number| number as u32);
one_word!(bool, |word| word != 0, |is| is as u32);
one_word!(f32, f32::from_bits, f32::to_bits);

/// An f16, as the f32 with which it is computed. It is rounded when it is stored.
#[derive(Clone, Copy)]
pub(super) struct Half(pub(super) f32);

one_word!(
    Half,
    |word| Half(half::f16::from_bits(word as u16).to_f32()),
    |half: Half| u32::from(half::f16::from_f32(half.0).to_bits())
);

impl Number for u64 {
    const WORDS: usize = 2;
    fn get(registers: &[u32], at: usize) -> Self {
        u64::from(registers[at]) | u64::from(registers[at + 1]) << 32
    }
    fn put(self, registers: &mut [u32], at: usize) {
        registers[at] = self as u32;
        registers[at + 1] = (self >> 32) as u32;
    }
}

impl Number for i64 {
    const WORDS: usize = 2;
    fn get(registers: &[u32], at: usize) -> Self {
        u64::get(registers, at) as i64
    }
    fn put(self, registers: &mut [u32], at: usize) {
        (self as u64).put(registers, at);
    }
}

/// Applies a function of one number to each lane.
pub(super) fn map<A: Number, R: Number>(
    registers: &mut [u32],
    (to, a): (Reg, Reg),
    count: u8,
    function: impl Fn(A) -> R,
) {
    let (mut to, mut a) = (to as usize, a as usize);
    let mut left = count;
    while left > 0 {
        function(A::get(registers, a)).put(registers, to);
        a += A::WORDS;
        to += R::WORDS;
        left -= 1;
    }
}

/// Applies a function of two numbers to each lane.
pub(super) fn map2<A: Number, B: Number, R: Number>(
    registers: &mut [u32],
    pair: &Pair,
    function: impl Fn(A, B) -> R,
) {
    let (mut to, mut a, mut b) = (pair.to as usize, pair.a as usize, pair.b as usize);
    let a_step = if pair.a_is_one { 0 } else { A::WORDS };
    let b_step = if pair.b_is_one { 0 } else { B::WORDS };
    let mut left = pair.count;
    while left > 0 {
        function(A::get(registers, a), B::get(registers, b)).put(registers, to);
        a += a_step;
        b += b_step;
        to += R::WORDS;
        left -= 1;
    }
}

/// Applies a function of three numbers to each lane.
pub(super) fn map3<T: Number>(
    registers: &mut [u32],
    [to, a, b, c]: [Reg; 4],
    count: u8,
    function: impl Fn(T, T, T) -> T,
) {
    let mut at = 0;
    while at < usize::from(count) * T::WORDS {
        let get = |from: Reg| T::get(registers, from as usize + at);
        let result = function(get(a), get(b), get(c));
        result.put(registers, to as usize + at);
        at += T::WORDS;
    }
}
