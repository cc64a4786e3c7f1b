//! The twin of `scatter_into`: one source after the other into `y`, in the order of the keys.

use crate::engine::kernel::TwinCall;
use crate::ops::scatter::{How, Settle};
use crate::ops::scatter_into::Params;

pub(crate) fn run(call: &mut TwinCall) {
    let p: Params = call.params();
    let is_sum = Settle::from_code(call.variant.code).how == How::Sum;
    for e in 0..p.elements {
        let (line, after) = (e / p.after, e % p.after);
        let (before, m) = (line / p.indices, line % p.indices);
        let row = match p.shared_indices {
            0 => (before * p.after + after) * p.indices,
            _ => 0,
        };
        let index = call.int(0, (row + m) as usize) ^ p.sign;
        if index >= p.size {
            continue;
        }
        let place = call.int(1, (row + m) as usize);
        let from = (p.s_offset + (before * p.indices + place) * p.after + after) as usize;
        let to = (p.y_offset + (before * p.size + index) * p.after + after) as usize;
        if call.variant.dtypes[3].is_float() {
            let value = call.f32(2, from);
            let sum = call.f32(3, to) + value;
            call.put_f32(3, to, if is_sum { sum } else { value });
        } else {
            let value = call.int(2, from);
            let sum = call.int(3, to).wrapping_add(value);
            call.put_int(3, to, if is_sum { sum } else { value });
        }
    }
}
