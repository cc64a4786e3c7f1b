//! Sums of pieces on the host, in f32 or in whole words.

use half::slice::{HalfBitsSliceExt, HalfFloatSliceExt};
use half::{bf16, f16};
use lapidary_core::DType;
use lapidary_core::internal::{PART_BYTES, share_out};

/// A sum of pieces of the same length and type. Its memory is reused for the next one.
#[derive(Debug, Default)]
pub struct Accumulator {
    floats: Vec<f32>,
    words: Vec<u32>,
    halves: Vec<u16>,
}

/// Elements that a thread takes at a time.
const PART: usize = PART_BYTES / size_of::<f32>();

impl Accumulator {
    /// Whether elements of this type can be summed.
    pub fn sums(dtype: DType) -> bool {
        dtype.is_float() || matches!(dtype, DType::I32 | DType::U32)
    }

    /// Adds a piece. The first piece takes the place of an earlier sum.
    pub fn add(&mut self, dtype: DType, piece: &[u8], is_first: bool) {
        match dtype {
            DType::F16 => add_halves(&mut self.floats, piece, is_first, |halves, floats| {
                halves
                    .reinterpret_cast::<f16>()
                    .convert_to_f32_slice(floats);
            }),
            DType::Bf16 => add_halves(&mut self.floats, piece, is_first, |halves, floats| {
                halves
                    .reinterpret_cast::<bf16>()
                    .convert_to_f32_slice(floats);
            }),
            DType::F32 => {
                let add = |sum: &mut f32, word| *sum += f32::from_ne_bytes(word);
                let set = |sum: &mut f32, word| *sum = f32::from_ne_bytes(word);
                add_words(&mut self.floats, piece, is_first, add, set);
            }
            _ => {
                let add = |sum: &mut u32, word| *sum = sum.wrapping_add(u32::from_ne_bytes(word));
                let set = |sum: &mut u32, word| *sum = u32::from_ne_bytes(word);
                add_words(&mut self.words, piece, is_first, add, set);
            }
        }
    }

    /// The bytes of the sum, divided if it is of floats, and rounded once.
    pub fn end(&mut self, dtype: DType, divisor: f32) -> &[u8] {
        if divisor != 1.0 {
            let parts = self.floats.chunks_mut(PART);
            share_out(parts.len() * PART_BYTES, parts, |part| {
                part.iter_mut().for_each(|sum| *sum /= divisor);
            });
        }
        match dtype {
            DType::F16 | DType::Bf16 => {
                self.halves.resize(self.floats.len(), 0);
                let (halves, floats) = (&mut self.halves[..], &self.floats[..]);
                match dtype {
                    DType::F16 => halves
                        .reinterpret_cast_mut::<f16>()
                        .convert_from_f32_slice(floats),
                    _ => halves
                        .reinterpret_cast_mut::<bf16>()
                        .convert_from_f32_slice(floats),
                }
                bytemuck::cast_slice(&self.halves)
            }
            DType::F32 => bytemuck::cast_slice(&self.floats),
            _ => bytemuck::cast_slice(&self.words),
        }
    }
}

/// Adds elements of 4 bytes, on several threads if there are many.
fn add_words<T: Copy + Default + Send>(
    sums: &mut Vec<T>,
    piece: &[u8],
    is_first: bool,
    add: impl Fn(&mut T, [u8; 4]) + Sync,
    set: impl Fn(&mut T, [u8; 4]) + Sync,
) {
    if is_first {
        sums.resize(piece.len() / 4, T::default());
    }
    let parts = sums.chunks_mut(PART).zip(piece.chunks(PART_BYTES));
    share_out(piece.len(), parts, |(sums, piece)| {
        let words = piece
            .chunks_exact(4)
            .map(|word| [word[0], word[1], word[2], word[3]]);
        let pairs = sums.iter_mut().zip(words);
        match is_first {
            true => pairs.for_each(|(sum, word)| set(sum, word)),
            false => pairs.for_each(|(sum, word)| add(sum, word)),
        }
    });
}

/// Adds elements of 2 bytes.
fn add_halves(
    sums: &mut Vec<f32>,
    piece: &[u8],
    is_first: bool,
    convert: impl Fn(&[u16], &mut [f32]) + Sync,
) {
    /// Elements that are converted at a time, on the stack.
    const BLOCK: usize = 512;
    if is_first {
        sums.resize(piece.len() / 2, 0.0);
    }
    let parts = sums.chunks_mut(PART / 2).zip(piece.chunks(PART_BYTES / 4));
    share_out(piece.len(), parts, |(sums, piece)| {
        let (mut halves, mut floats) = ([0_u16; BLOCK], [0.0_f32; BLOCK]);
        for (sums, piece) in sums.chunks_mut(BLOCK).zip(piece.chunks(2 * BLOCK)) {
            let (halves, floats) = (&mut halves[..sums.len()], &mut floats[..sums.len()]);
            bytemuck::cast_slice_mut(halves).copy_from_slice(piece);
            convert(halves, floats);
            match is_first {
                true => sums.copy_from_slice(floats),
                false => sums
                    .iter_mut()
                    .zip(floats)
                    .for_each(|(sum, one)| *sum += *one),
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_in_f32_and_rounded_once() {
        let mut sum = Accumulator::default();
        // In f16 both additions of 1 would be lost.
        for (number, value) in [2048.0, 1.0, 1.0].into_iter().enumerate() {
            let piece = vec![f16::from_f32(value); 700_000];
            sum.add(DType::F16, bytemuck::cast_slice(&piece), number == 0);
        }
        let bytes = sum.end(DType::F16, 1.0);
        let halves: &[f16] = bytemuck::cast_slice(bytes);
        assert!(halves.len() == 700_000 && halves.iter().all(|one| one.to_f32() == 2050.0));
    }

    #[test]
    fn pieces_need_no_alignment_and_the_next_sum_begins_anew() {
        let mut sum = Accumulator::default();
        for round in 0..2 {
            let numbers = [1.5_f32, -2.0, round as f32];
            let mut bytes = vec![0];
            bytes.extend_from_slice(bytemuck::cast_slice(&numbers));
            sum.add(DType::F32, &bytes[1..], true);
            sum.add(DType::F32, &bytes[1..], false);
            let got: Vec<f32> = bytemuck::pod_collect_to_vec(sum.end(DType::F32, 2.0));
            assert_eq!(got, numbers);
        }
        sum.add(DType::U32, &u32::MAX.to_ne_bytes(), true);
        sum.add(DType::U32, &3_u32.to_ne_bytes(), false);
        assert_eq!(sum.end(DType::U32, 1.0), 2_u32.to_ne_bytes());
    }
}
