//! Tensors cut into pieces of which each rank has one at a time.

use lapidary::{Buffer, Tensor};
use lapidary_core::internal::PIECE_BYTES;

use crate::error::Result;

/// Pieces are multiples of this, except for the last of a tensor.
const CUT_BYTES: u64 = 4096;

/// The size of a rank's piece: those of all `count` ranks together are about as large as one alone.
pub(crate) fn cut_bytes(count: usize) -> u64 {
    let share_bytes = PIECE_BYTES / count as u64;
    (share_bytes / CUT_BYTES).max(1) * CUT_BYTES
}

/// The bytes of a contiguous tensor in slices of this size.
pub(crate) fn cut(tensor: &Tensor, cut_bytes: u64) -> Result<Vec<Buffer>> {
    let mut slices = Vec::new();
    let Some(buffer) = tensor.buffer() else {
        return Ok(slices);
    };
    let size_bytes = buffer.size_bytes();
    for number in 0..size_bytes.div_ceil(cut_bytes) {
        let start_bytes = number * cut_bytes;
        let end_bytes = size_bytes.min(start_bytes + cut_bytes);
        slices.push(buffer.slice(start_bytes..end_bytes)?);
    }
    Ok(slices)
}

/// The pieces of the largest tensor.
pub(crate) fn rounds(sizes_bytes: impl Iterator<Item = u64>, cut_bytes: u64) -> u64 {
    sizes_bytes.max().unwrap_or(0).div_ceil(cut_bytes)
}

/// The bytes of a tensor's piece of this number.
pub(crate) fn piece_bytes(size_bytes: u64, number: u64, cut_bytes: u64) -> u64 {
    size_bytes
        .saturating_sub(number.saturating_mul(cut_bytes))
        .min(cut_bytes)
}
