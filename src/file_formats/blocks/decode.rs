//! The elements of blocks, on the host.

use half::f16;

use super::BlockFormat;

/// Writes the elements of a block of these bytes.
pub(super) fn decode(format: BlockFormat, block: &[u8], into: &mut [f32]) {
    match format {
        BlockFormat::Q4_0 => q4_0(block, into),
        BlockFormat::Q4_1 => q4_1(block, into),
        BlockFormat::Q5_0 => q5_0(block, into),
        BlockFormat::Q5_1 => q5_1(block, into),
        BlockFormat::Q8_0 => q8_0(block, into),
        BlockFormat::Q4K => q4_k(block, into),
        BlockFormat::Q5K => q5_k(block, into),
        BlockFormat::Q6K => q6_k(block, into),
    }
}

fn float(bytes: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([bytes[at], bytes[at + 1]]).to_f32()
}

/// Four bits: the lower ones of the bytes first, then the upper ones.
fn nibbles(bytes: &[u8]) -> impl Iterator<Item = u8> + '_ {
    let low = bytes.iter().map(|byte| byte & 15);
    low.chain(bytes.iter().map(|byte| byte >> 4))
}

fn q4_0(block: &[u8], into: &mut [f32]) {
    let scale = float(block, 0);
    for (to, bits) in into.iter_mut().zip(nibbles(&block[2..18])) {
        *to = scale * (f32::from(bits) - 8.0);
    }
}

fn q4_1(block: &[u8], into: &mut [f32]) {
    let (scale, least) = (float(block, 0), float(block, 2));
    for (to, bits) in into.iter_mut().zip(nibbles(&block[4..20])) {
        *to = scale * f32::from(bits) + least;
    }
}

/// Five bits: a nibble, and a bit of a word.
fn fives(word: &[u8], bytes: &[u8]) -> impl Iterator<Item = u8> {
    let high = u32::from_le_bytes([word[0], word[1], word[2], word[3]]);
    (nibbles(bytes).zip(0..)).map(move |(low, at)| low | ((((high >> at) & 1) as u8) << 4))
}

fn q5_0(block: &[u8], into: &mut [f32]) {
    let scale = float(block, 0);
    for (to, bits) in into.iter_mut().zip(fives(&block[2..6], &block[6..22])) {
        *to = scale * (f32::from(bits) - 16.0);
    }
}

fn q5_1(block: &[u8], into: &mut [f32]) {
    let (scale, least) = (float(block, 0), float(block, 2));
    for (to, bits) in into.iter_mut().zip(fives(&block[4..8], &block[8..24])) {
        *to = scale * f32::from(bits) + least;
    }
}

fn q8_0(block: &[u8], into: &mut [f32]) {
    let scale = float(block, 0);
    for (to, &byte) in into.iter_mut().zip(&block[2..34]) {
        *to = scale * f32::from(byte as i8);
    }
}

/// Scale and minimum of each of the eight groups of 32 elements, six bits each, in 12 bytes.
fn groups_of_k(bytes: &[u8]) -> [(f32, f32); 8] {
    std::array::from_fn(|group| {
        let (scale, least) = match group {
            0..4 => (bytes[group] & 63, bytes[group + 4] & 63),
            _ => (
                (bytes[group + 4] & 15) | ((bytes[group - 4] >> 6) << 4),
                (bytes[group + 4] >> 4) | ((bytes[group] >> 6) << 4),
            ),
        };
        (f32::from(scale), f32::from(least))
    })
}

fn q4_k(block: &[u8], into: &mut [f32]) {
    let groups = groups_of_k(&block[4..16]);
    let (scale, least) = (float(block, 0), float(block, 2));
    let pairs = block[16..144].chunks_exact(32);
    for (pair, bytes) in pairs.enumerate() {
        for (at, bits) in nibbles(bytes).enumerate() {
            let (of_group, least_of_group) = groups[2 * pair + at / 32];
            into[64 * pair + at] = scale * of_group * f32::from(bits) - least * least_of_group;
        }
    }
}

fn q5_k(block: &[u8], into: &mut [f32]) {
    let groups = groups_of_k(&block[4..16]);
    let (scale, least) = (float(block, 0), float(block, 2));
    let (high, low) = (&block[16..48], &block[48..176]);
    for (pair, bytes) in low.chunks_exact(32).enumerate() {
        for (at, bits) in nibbles(bytes).enumerate() {
            let group = 2 * pair + at / 32;
            let bits = bits | (((high[at % 32] >> group) & 1) << 4);
            let (of_group, least_of_group) = groups[group];
            into[64 * pair + at] = scale * of_group * f32::from(bits) - least * least_of_group;
        }
    }
}

/// Halves of 128 elements. A half has 64 bytes of lower bits, 32 of two upper bits each, and eight
/// scales.
fn q6_k(block: &[u8], into: &mut [f32]) {
    let scale = float(block, 208);
    for half in 0..2 {
        let (low, high) = (&block[64 * half..], &block[128 + 32 * half..]);
        let scales = &block[192 + 8 * half..];
        for quarter in 0..4 {
            for at in 0..32 {
                let byte = low[32 * (quarter % 2) + at];
                let low = if quarter < 2 { byte & 15 } else { byte >> 4 };
                let bits = low | (((high[at] >> (2 * quarter)) & 3) << 4);
                let of_group = f32::from(scales[2 * quarter + at / 16] as i8);
                let value = f32::from(bits) - 32.0;
                into[128 * half + 32 * quarter + at] = scale * of_group * value;
            }
        }
    }
}
