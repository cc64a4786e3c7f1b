//! Reference kernel of `shaders/copy.wgsl`.

use crate::ops::copy::{Scatter, Transpose, TransposeForm};
use crate::ops::elementwise::reference::{Lane, each, get, put, words};
use lapidary_core::DType;
use lapidary_core::internal::ReferenceCall;

pub(crate) fn copy(call: &mut ReferenceCall) {
    let dtype = call.variant.dtypes[1];
    each(call, |_, x| convert(x[0], dtype));
}

/// Converts as Rust's `as`.
fn convert(x: Lane, to: DType) -> Lane {
    match (x, to) {
        (x, DType::Bool) => Lane::truth(x.is_true()),
        (Lane::F32(x), DType::F32 | DType::F16 | DType::Bf16) => Lane::F32(x),
        (Lane::F32(x), DType::I32) => Lane::I32(x as i32),
        (Lane::F32(x), DType::U32) => Lane::U32(x as u32),
        (Lane::F32(x), DType::I8) => Lane::I32(i32::from(x as i8)),
        (Lane::F32(x), DType::U8) => Lane::U32(u32::from(x as u8)),
        (Lane::I32(x), DType::F32 | DType::F16 | DType::Bf16) => Lane::F32(x as f32),
        (Lane::I32(x), DType::I32) => Lane::I32(x),
        (Lane::I32(x), DType::U32) => Lane::U32(x as u32),
        (Lane::I32(x), DType::I8) => Lane::I32(i32::from(x as i8)),
        (Lane::I32(x), DType::U8) => Lane::U32(u32::from(x as u8)),
        (Lane::U32(x), DType::F32 | DType::F16 | DType::Bf16) => Lane::F32(x as f32),
        (Lane::U32(x), DType::I32) => Lane::I32(x as i32),
        (Lane::U32(x), DType::U32) => Lane::U32(x),
        (Lane::U32(x), DType::I8) => Lane::I32(i32::from(x as i8)),
        (Lane::U32(x), DType::U8) => Lane::U32(u32::from(x as u8)),
    }
}

pub(crate) fn transpose(call: &mut ReferenceCall) {
    let words = words(call);
    let rank = TransposeForm::unpack(call.variant.code).rank;
    let (columns, rows, dtype) = (words[6], words[3], call.variant.dtypes[1]);
    let dims = &words[Transpose::MAP..];
    let batches: u32 = dims[..rank].iter().product();
    for k in 0..batches * rows * columns {
        let (column, row, mut batch) = (k % columns, k / columns % rows, k / columns / rows);
        let mut at = words[4]
            .wrapping_add(row)
            .wrapping_add(column.wrapping_mul(words[5]));
        for d in (0..rank).rev() {
            at = at.wrapping_add((batch % dims[d]).wrapping_mul(dims[rank + d]));
            batch /= dims[d];
        }
        let lane = convert(get(call, 0, at as usize), dtype);
        put(call, 1, k as usize, lane);
    }
}

pub(crate) fn scatter(call: &mut ReferenceCall) {
    let words = words(call);
    let (rank, _) = Scatter::ranks_of(call.variant.code);
    let map = &words[Scatter::MAP..];
    let (dims, to, from) = (&map[..rank], &map[rank..2 * rank], &map[2 * rank..3 * rank]);
    for k in 0..dims.iter().product() {
        let (mut rest, mut source, mut target) = (k, words[4], words[1]);
        for d in (0..rank).rev() {
            let index = rest % dims[d];
            source = source.wrapping_add(index.wrapping_mul(from[d]));
            target = target.wrapping_add(index.wrapping_mul(to[d]));
            rest /= dims[d];
        }
        let lane = get(call, 0, source as usize);
        put(call, 1, target as usize, lane);
    }
}
