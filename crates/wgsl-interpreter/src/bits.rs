//! Functions of bits: counts, bit fields, and several numbers packed in one word.

use super::code::{Pack, Reg, Unary};
use super::value::{Half, Number};

/// Functions of the bits of a number.
macro_rules! of_bits {
    ($name:ident, $type:ty) => {
        pub(super) fn $name(op: Unary, x: $type) -> $type {
            match op {
                Unary::Not => !x,
                Unary::Negate => x.wrapping_neg(),
                Unary::Sign => <$type>::from(x > 0),
                Unary::CountTrailingZeros => x.trailing_zeros() as $type,
                Unary::CountLeadingZeros => x.leading_zeros() as $type,
                Unary::CountOneBits => x.count_ones() as $type,
                Unary::ReverseBits => x.reverse_bits(),
                Unary::FirstTrailingBit | Unary::FirstLeadingBit if x == 0 => <$type>::MAX,
                Unary::FirstTrailingBit => x.trailing_zeros() as $type,
                Unary::FirstLeadingBit => x.ilog2() as $type,
                _ => x,
            }
        }
    };
}

of_bits!(unary, u32);
of_bits!(unary64, u64);

/// `extractBits` of numbers of so many words. The offset and the count are the same for all lanes.
pub(super) fn extract(
    registers: &mut [u32],
    words: usize,
    is_signed: bool,
    [to, a, b, c]: [Reg; 4],
    count: u8,
) {
    let [offset, bits] = range(words, registers[b as usize], registers[c as usize]);
    for lane in 0..usize::from(count) {
        let x = get(registers, words, a as usize + lane * words);
        let field = match (bits, is_signed) {
            (0, _) => 0,
            (_, true) => ((x << (64 - bits - offset)) as i64 >> (64 - bits)) as u64,
            (_, false) => x << (64 - bits - offset) >> (64 - bits),
        };
        put(registers, words, to as usize + lane * words, field);
    }
}

/// `insertBits` into numbers of so many words. The count is in the register after the offset; both
/// are the same for all lanes.
pub(super) fn insert(registers: &mut [u32], words: usize, [to, a, b, c]: [Reg; 4], count: u8) {
    let [offset, bits] = range(words, registers[c as usize], registers[c as usize + 1]);
    let mask = match bits {
        0 => 0,
        _ => u64::MAX >> (64 - bits) << offset,
    };
    for lane in 0..usize::from(count) {
        let x = get(registers, words, a as usize + lane * words);
        let new = get(registers, words, b as usize + lane * words);
        let new = new.checked_shl(offset).unwrap_or(0);
        put(
            registers,
            words,
            to as usize + lane * words,
            x & !mask | new & mask,
        );
    }
}

/// The offset and the count of bits that lie in a number of so many words.
fn range(words: usize, offset: u32, bits: u32) -> [u32; 2] {
    let width = 32 * words as u32;
    let offset = offset.min(width);
    [offset, bits.min(width - offset)]
}

fn get(registers: &[u32], words: usize, at: usize) -> u64 {
    match words {
        1 => registers[at].into(),
        _ => u64::get(registers, at),
    }
}

fn put(registers: &mut [u32], words: usize, at: usize, x: u64) {
    match words {
        1 => registers[at] = x as u32,
        _ => x.put(registers, at),
    }
}

/// Packs registers into a word, or unpacks a word into registers.
pub(super) fn pack(registers: &mut [u32], op: Pack, to: Reg, a: Reg, b: Reg) {
    let at = a as usize;
    let word = registers[at];
    let float = |lane| f32::get(registers, at + lane);
    let snorm = |x: f32, most: f32| (0.5 + most * x.clamp(-1.0, 1.0)).floor() as i32 as u32;
    let unorm = |x: f32, most: f32| (0.5 + most * x.clamp(0.0, 1.0)).floor() as u32;
    let bytes = |byte: &dyn Fn(usize) -> u32| {
        (0..4).fold(0, |word, lane| word | (byte(lane) & 0xff) << (8 * lane))
    };
    let halves = |half: &dyn Fn(usize) -> u32| half(0) & 0xffff | half(1) << 16;
    let f16 = |x: f32| u32::from(half::f16::from_f32(x).to_bits());
    let packed = match op {
        Pack::Snorm4x8 => bytes(&|lane| snorm(float(lane), 127.0)),
        Pack::Unorm4x8 => bytes(&|lane| unorm(float(lane), 255.0)),
        Pack::Snorm2x16 => halves(&|lane| snorm(float(lane), 32767.0)),
        Pack::Unorm2x16 => halves(&|lane| unorm(float(lane), 65535.0)),
        Pack::Float2x16 => halves(&|lane| f16(float(lane))),
        Pack::Halves => halves(&|lane| registers[at + lane]),
        Pack::I8x4 | Pack::U8x4 => bytes(&|lane| registers[at + lane]),
        Pack::I8x4Clamp => bytes(&|lane| (registers[at + lane] as i32).clamp(-128, 127) as u32),
        Pack::U8x4Clamp => bytes(&|lane| registers[at + lane].min(255)),
        Pack::DotI8x4 => {
            let (x, y) = (word.to_le_bytes(), registers[b as usize].to_le_bytes());
            let products = x
                .iter()
                .zip(&y)
                .map(|(x, y)| i32::from(*x as i8) * i32::from(*y as i8));
            products.sum::<i32>() as u32
        }
        Pack::DotU8x4 => {
            let (x, y) = (word.to_le_bytes(), registers[b as usize].to_le_bytes());
            x.iter()
                .zip(&y)
                .map(|(x, y)| u32::from(*x) * u32::from(*y))
                .sum()
        }
        _ => return unpack(registers, op, to, word),
    };
    registers[to as usize] = packed;
}

fn unpack(registers: &mut [u32], op: Pack, to: Reg, word: u32) {
    let to = to as usize;
    let (bytes, halves) = (word.to_le_bytes(), [word & 0xffff, word >> 16]);
    for (lane, &half) in halves.iter().enumerate() {
        let signed = f32::from(half as u16 as i16);
        match op {
            Pack::FromSnorm2x16 => (signed / 32767.0).max(-1.0).put(registers, to + lane),
            Pack::FromUnorm2x16 => (half as f32 / 65535.0).put(registers, to + lane),
            Pack::FromFloat2x16 => Half::get(&[half], 0).0.put(registers, to + lane),
            Pack::FromHalves => registers[to + lane] = half,
            _ => break,
        }
    }
    for (lane, &byte) in bytes.iter().enumerate() {
        let signed = byte as i8;
        match op {
            Pack::FromSnorm4x8 => (f32::from(signed) / 127.0)
                .max(-1.0)
                .put(registers, to + lane),
            Pack::FromUnorm4x8 => (f32::from(byte) / 255.0).put(registers, to + lane),
            Pack::FromI8x4 => i32::from(signed).put(registers, to + lane),
            Pack::FromU8x4 => u32::from(byte).put(registers, to + lane),
            _ => break,
        }
    }
}
