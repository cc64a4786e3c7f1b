//! The reference kernels of `optim`: one element after the other, in f64.

use crate::ops::optim::{
    COUNT_STEP, CountParams, FIRST_COUNT, Params, UpdateFormula, heads_of, members_of,
};
use lapidary_core::internal::ReferenceCall;

pub(crate) fn count(call: &mut ReferenceCall) {
    let p: CountParams = call.params();
    let condition = call.variant.code;
    let is_done = condition == 0 || call.f32(1, 0) == 0.0;
    for index in 0..p.count {
        let bit = p.masks[index as usize / 32] >> (index % 32) & 1;
        let at = FIRST_COUNT + COUNT_STEP * (p.first + index) as usize;
        let count = call.int(0, at) + if is_done { bit } else { 0 };
        call.put_int(0, at, count);
        let corrections = p
            .logs
            .map(|log| -(f64::from(count) * f64::from(log)).exp_m1());
        let factors = [1.0 / corrections[0], 1.0 / corrections[1].sqrt()];
        for (word, factor) in (at + 1..).zip(factors) {
            call.put_int(0, word, (factor as f32).to_bits());
        }
    }
    let factor = if condition == 2 {
        1.0 / call.f32(2, 0)
    } else {
        1.0
    };
    call.put_int(0, 0, u32::from(is_done));
    call.put_int(0, 1, factor.to_bits());
}

pub(crate) fn run(call: &mut ReferenceCall) {
    let (p, code): (Params, u64) = (call.params(), call.variant.code);
    if call.int(0, 0) == 0 {
        return;
    }
    let factor = f64::from(f32::from_bits(call.int(0, 1)));
    for member in 0..members_of(code) {
        let value = heads_of(code) + 2 * member;
        let own = FIRST_COUNT + COUNT_STEP * p.numbers[member] as usize;
        for at in 0..p.lens[member] as usize {
            let x = f64::from(call.f32(value, at));
            let g = f64::from(call.f32(value + 1, at)) * factor;
            let state = p.starts[member] as usize + at;
            let updated = match UpdateFormula::from_code(code) {
                UpdateFormula::AdamW => adamw(call, &p, (x, g), state, own),
                formula => sgd(call, &p, (x, g), state, own, formula),
            };
            call.put_f32(value, at, updated as f32);
        }
    }
}

fn sgd(
    call: &mut ReferenceCall,
    p: &Params,
    (x, g): (f64, f64),
    at: usize,
    own: usize,
    formula: UpdateFormula,
) -> f64 {
    let [rate, momentum, share, decay] = [0, 1, 2, 3].map(|index| f64::from(p.factors[index]));
    let mut step = g + decay * x;
    if formula != UpdateFormula::Sgd {
        let velocity = match call.int(0, own) {
            1 => step,
            _ => momentum * f64::from(call.f32(1, at)) + share * step,
        };
        call.put_f32(1, at, velocity as f32);
        step = match formula {
            UpdateFormula::SgdNesterov => step + momentum * velocity,
            _ => velocity,
        };
    }
    x - rate * step
}

fn adamw(call: &mut ReferenceCall, p: &Params, (x, g): (f64, f64), at: usize, own: usize) -> f64 {
    let [rate, kept, first_share, beta2, second_share, eps, ..] = p.factors.map(f64::from);
    let [correction, root_correction] =
        [1, 2].map(|word| f64::from(f32::from_bits(call.int(0, own + word))));
    let (second_operand, second_at) = match heads_of(call.variant.code) {
        3 => (2, at),
        _ => (1, p.plane as usize + at),
    };
    let before = f64::from(call.f32(1, at));
    let first = before + first_share * (g - before);
    call.put_f32(1, at, first as f32);
    let second = beta2 * f64::from(call.f32(second_operand, second_at)) + second_share * g * g;
    call.put_f32(second_operand, second_at, second as f32);
    let size = second.sqrt() * root_correction + eps;
    x * kept - rate * correction * first / size
}
