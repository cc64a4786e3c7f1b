//! The twin of `scatter`: one source after the other, to where its index says.

use crate::engine::kernel::TwinCall;
use crate::ops::scatter::{Params, is_sum};

pub(crate) fn run(call: &mut TwinCall) {
    let p: Params = call.params();
    let lines = p.elements / (p.size * p.after);
    // What is summed is rounded once.
    let mut floats = vec![];
    for e in 0..p.elements {
        let from = (p.x_offset + e) as usize;
        match call.variant.dtypes[0].is_float() {
            true => floats.push(call.f32(0, from)),
            false => {
                let value = call.int(0, from);
                call.put_int(4, e as usize, value);
            }
        }
    }
    for row in 0..lines * p.after {
        let (before, after) = (row / p.after, row % p.after);
        let keys = if p.shared_indices != 0 {
            0
        } else {
            row * p.indices
        };
        for m in 0..p.indices {
            let index = call.int(1, (keys + m) as usize) ^ p.sign;
            if index >= p.size {
                continue;
            }
            let place = call.int(2, (keys + m) as usize);
            let from = (p.s_offset + (before * p.indices + place) * p.after + after) as usize;
            let to = ((before * p.size + index) * p.after + after) as usize;
            let is_sum = is_sum(call.variant.code);
            if call.variant.dtypes[0].is_float() {
                let value = call.f32(3, from);
                floats[to] = if is_sum { floats[to] + value } else { value };
            } else {
                let value = call.int(3, from);
                let sum = call.int(4, to).wrapping_add(value);
                call.put_int(4, to, if is_sum { sum } else { value });
            }
        }
    }
    for (e, value) in floats.into_iter().enumerate() {
        call.put_f32(4, e, value);
    }
}
