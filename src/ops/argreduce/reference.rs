//! The reference kernels of `argreduce` and of its second launch.

use std::cmp::Ordering;

use crate::ops::argreduce::is_least;
use crate::ops::reduce::Form;
use crate::ops::rows::RowParams;
use crate::ops::rows::reference::{element, part};
use lapidary_core::DType;
use lapidary_core::internal::ReferenceCall;

pub(crate) fn run(call: &mut ReferenceCall) {
    let p: RowParams = call.params();
    let form = Form::from_code(call.variant.code);
    let padded = p.rows.next_multiple_of(4);
    for row in 0..p.rows {
        for index in 0..p.parts {
            let to = match form.is_across() {
                true => index * padded + row,
                false => row * p.parts + index,
            };
            let best = best(call, &p, row, part(&p, index));
            call.put_int(1, to as usize, best);
        }
    }
}

pub(crate) fn pick(call: &mut ReferenceCall) {
    let p: RowParams = call.params();
    for row in 0..p.rows {
        let candidates: Vec<u32> = (0..p.parts)
            .map(|j| call.int(1, (row * p.second + j * p.third) as usize))
            .collect();
        let best = best(call, &p, row, candidates);
        call.put_int(2, row as usize, best);
    }
}

/// The first of these ordered positions with the most extreme element.
fn best(
    call: &ReferenceCall,
    p: &RowParams,
    row: u32,
    positions: impl IntoIterator<Item = u32>,
) -> u32 {
    let code = call.variant.code;
    let mut positions = positions.into_iter();
    let mut best = positions.next().expect("no part is empty");
    for k in positions {
        let (a, b) = (element(p, code, row, best), element(p, code, row, k));
        if beats(call, b, a) {
            best = k;
        }
    }
    best
}

/// Whether element `b` is strictly more extreme than element `a`.
fn beats(call: &ReferenceCall, b: usize, a: usize) -> bool {
    let order = match call.variant.dtypes[0] {
        dtype if dtype.is_float() => {
            let (b, a) = (call.f32(0, b), call.f32(0, a));
            match b.partial_cmp(&a) {
                Some(order) => order,
                None => return b.is_nan() && !a.is_nan(),
            }
        }
        DType::I32 | DType::I8 => (call.int(0, b) as i32).cmp(&(call.int(0, a) as i32)),
        _ => call.int(0, b).cmp(&call.int(0, a)),
    };
    match is_least(call.variant.code) {
        true => order == Ordering::Less,
        false => order == Ordering::Greater,
    }
}
