//! The reference kernels of `sort`: the host's stable sort for blocks, and plain merging.

use crate::ops::rows::RowParams;
use crate::ops::rows::reference::element;
use crate::ops::sort::{Merge, is_descending};
use lapidary_core::DType;
use lapidary_core::internal::ReferenceCall;

pub(crate) fn blocks(call: &mut ReferenceCall) {
    let p: RowParams = call.params();
    for row in 0..p.rows {
        for from in (0..p.length).step_by(8) {
            let positions = from..p.length.min(from + 8);
            let mut block: Vec<(u32, u32)> =
                positions.map(|k| (key(call, &p, row, k), k)).collect();
            block.sort_by_key(|&(key, _)| key);
            for (rank, (key, k)) in block.into_iter().enumerate() {
                let at = (row * p.length + from) as usize + rank;
                call.put_int(1, at, key);
                call.put_int(2, at, k);
            }
        }
    }
}

/// A word that orders as the elements do.
fn key(call: &ReferenceCall, p: &RowParams, row: u32, k: u32) -> u32 {
    let at = element(p, call.variant.code, row, k);
    let key = match call.variant.dtypes[0] {
        dtype if dtype.is_float() => match call.f32(0, at) {
            value if value.is_nan() => u32::MAX,
            value if value < 0.0 => !value.to_bits(),
            value => value.abs().to_bits() | 1 << 31,
        },
        DType::I32 | DType::I8 => call.int(0, at) ^ 1 << 31,
        _ => call.int(0, at),
    };
    if is_descending(call.variant.code) {
        !key
    } else {
        key
    }
}

pub(crate) fn merge(call: &mut ReferenceCall) {
    let p: Merge = call.params();
    for row in 0..p.rows {
        for pair in 0..p.pairs {
            let begin = pair * 2 * p.run;
            let end = p.length.min(begin + 2 * p.run);
            let at = |k: u32| (row * p.length + k) as usize;
            let mut both: Vec<(u32, u32)> = (begin..end)
                .map(|k| (call.int(0, at(k)), call.int(1, at(k))))
                .collect();
            both.sort_by_key(|&(key, _)| key);
            both.truncate(p.keep as usize);
            for (rank, (key, order)) in both.into_iter().enumerate() {
                let to = (row * p.kept + pair * p.keep) as usize + rank;
                call.put_int(2, to, key);
                call.put_int(3, to, order);
            }
        }
    }
}
