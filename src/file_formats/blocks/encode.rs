//! Blocks of elements, on the host, rounded as ggml's package for Python does.

use half::f16;

use super::BlockFormat;

/// Appends the block of these elements. `None` for a format that lapidary only reads.
pub(super) fn encode(format: BlockFormat, elements: &[f32], into: &mut Vec<u8>) -> Option<()> {
    match format {
        BlockFormat::Q4_0 => signed(elements, 4, into),
        BlockFormat::Q5_0 => signed(elements, 5, into),
        BlockFormat::Q4_1 => from_least(elements, 4, into),
        BlockFormat::Q5_1 => from_least(elements, 5, into),
        BlockFormat::Q8_0 => eight(elements, into),
        BlockFormat::Q4K | BlockFormat::Q5K | BlockFormat::Q6K => return None,
    }
    Some(())
}

fn push_float(value: f32, into: &mut Vec<u8>) {
    into.extend(f16::from_f32(value).to_le_bytes());
}

fn inverse(scale: f32) -> f32 {
    match scale == 0.0 {
        true => 0.0,
        false => 1.0 / scale,
    }
}

/// The element that is farthest from 0 becomes the lowest number.
fn signed(elements: &[f32], bits: u32, into: &mut Vec<u8>) {
    let farther = |a: f32, b: f32| if b.abs() > a.abs() { b } else { a };
    let zero = f32::from(1_u8 << (bits - 1));
    let scale = elements.iter().copied().fold(0.0, farther) / -zero;
    push_float(scale, into);
    let (inverse, most) = (inverse(scale), (1 << bits) - 1);
    let number = |&element: &f32| {
        let number = element * inverse + (zero + 0.5);
        (number as u8).min(most)
    };
    push_bits(elements.iter().map(number).collect(), bits, into);
}

/// The least element becomes 0.
fn from_least(elements: &[f32], bits: u32, into: &mut Vec<u8>) {
    let least = elements.iter().copied().fold(f32::INFINITY, f32::min);
    let greatest = elements.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let most = (1_u8 << bits) - 1;
    let scale = (greatest - least) / f32::from(most);
    push_float(scale, into);
    push_float(least, into);
    let inverse = inverse(scale);
    let number = |&element: &f32| {
        let number = (element - least) * inverse + 0.5;
        (number as u8).min(most)
    };
    push_bits(elements.iter().map(number).collect(), bits, into);
}

fn eight(elements: &[f32], into: &mut Vec<u8>) {
    let scale = elements
        .iter()
        .fold(0.0, |most: f32, element| most.max(element.abs()))
        / 127.0;
    push_float(scale, into);
    let inverse = inverse(scale);
    into.extend(
        elements
            .iter()
            .map(|&element| (element * inverse).round() as i8 as u8),
    );
}

/// The fifth bits as a word, if there are five. Then nibbles: the first half of the numbers in the
/// lower ones.
fn push_bits(numbers: Vec<u8>, bits: u32, into: &mut Vec<u8>) {
    if bits == 5 {
        let fifth = |word: u32, (at, &number): (usize, &u8)| word | u32::from(number >> 4) << at;
        into.extend(numbers.iter().enumerate().fold(0, fifth).to_le_bytes());
    }
    let (low, high) = numbers.split_at(numbers.len() / 2);
    into.extend(low.iter().zip(high).map(|(low, high)| low & 15 | high << 4));
}
