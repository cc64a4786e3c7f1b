//! The reference kernel of `rotary`: one pair after the other.

use crate::ops::rotary::{Params, are_neighbours};
use lapidary_core::internal::ReferenceCall;

pub(crate) fn run(call: &mut ReferenceCall) {
    let p: Params = call.params();
    for line in 0..p.elements / p.width {
        let first = (line * p.width) as usize;
        for at in 0..p.width as usize {
            let own = call.f32(0, p.x_offset as usize + first + at);
            call.put_f32(3, first + at, own);
        }
        for pair in 0..p.pairs {
            let (a, b) = match are_neighbours(call.variant.code) {
                true => (2 * pair, 2 * pair + 1),
                false => (pair, pair + p.pairs),
            };
            let angle = line % p.positions * p.pairs + pair;
            let cos = f64::from(call.f32(1, (p.c_offset + angle) as usize));
            let sin = f64::from(call.f32(2, (p.s_offset + angle) as usize));
            let [x, y] =
                [a, b].map(|at| f64::from(call.f32(0, (p.x_offset + at) as usize + first)));
            call.put_f32(3, first + a as usize, (x * cos - y * sin) as f32);
            call.put_f32(3, first + b as usize, (y * cos + x * sin) as f32);
        }
    }
}
