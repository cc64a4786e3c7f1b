//! Addressing of rows on the host, as in `shaders/rows.wgsl`.

use crate::ops::rows::RowParams;

/// `Σ index[d] · strides[d]` for the index with the number `i` in `dims`, innermost first.
pub(in crate::ops) fn offset_of(mut i: u32, rank: u64, dims: &[u32; 4], strides: &[u32; 4]) -> u32 {
    let mut at = 0_u32;
    for d in 0..rank as usize {
        let index = match d + 1 < rank as usize {
            true => i % dims[d],
            false => i,
        };
        at = at.wrapping_add(index.wrapping_mul(strides[d]));
        i /= dims[d].max(1);
    }
    at
}

/// The element at position `k` of a row. `code` holds the ranks.
pub(in crate::ops) fn element(p: &RowParams, code: u64, row: u32, k: u32) -> usize {
    let outer = offset_of(row, code & 15, &p.outer_dims, &p.outer_strides);
    let inner = offset_of(k, code >> 4 & 15, &p.inner_dims, &p.inner_strides);
    p.offset.wrapping_add(outer).wrapping_add(inner) as usize
}

/// The positions of a part of a row.
pub(in crate::ops) fn part(p: &RowParams, part: u32) -> std::ops::Range<u32> {
    let from = part * p.chunk;
    from..from + p.chunk.min(p.length - from)
}
