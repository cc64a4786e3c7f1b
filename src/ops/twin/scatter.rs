//! The twin of `scatter`: one source after the other, to where its index says.

use crate::dtype::DType;
use crate::engine::kernel::TwinCall;
use crate::ops::scatter::{How, Params, Settle};

pub(crate) fn run(call: &mut TwinCall) {
    let p: Params = call.params();
    let is_float = call.variant.dtypes[0].is_float();
    // What is folded is rounded once.
    let mut floats = vec![];
    let mut words = vec![];
    for e in 0..p.elements {
        let from = (p.x_offset + e) as usize;
        match is_float {
            true => floats.push(call.f32(0, from)),
            false => words.push(call.int(0, from)),
        }
    }
    let mut named = vec![0_u32; p.elements as usize];
    for (from, to) in sources(call, &p) {
        named[to] += 1;
        match is_float {
            true => floats[to] = of_floats(call, floats[to], call.f32(3, from), named[to]),
            false => words[to] = of_words(call, words[to], call.int(3, from), named[to]),
        }
    }
    let Settle { how, is_alone } = Settle::from_code(call.variant.code);
    let is_mean = |named: u32| how == How::Mean && named > 0;
    let count = |named: u32| named + u32::from(!is_alone);
    for (e, value) in floats.into_iter().enumerate() {
        let mean = value / count(named[e]) as f32;
        call.put_f32(4, e, if is_mean(named[e]) { mean } else { value });
    }
    for (e, value) in words.into_iter().enumerate() {
        let mean = || match call.variant.dtypes[0] {
            DType::I32 | DType::I8 => (value as i32).div_euclid(count(named[e]) as i32) as u32,
            _ => value / count(named[e]),
        };
        let value = if is_mean(named[e]) { mean() } else { value };
        call.put_int(4, e, value);
    }
}

/// Where each source is and goes to, in order.
fn sources(call: &TwinCall, p: &Params) -> Vec<(usize, usize)> {
    let lines = p.elements / (p.size * p.after);
    let mut found = Vec::new();
    for row in 0..lines * p.after {
        let (before, after) = (row / p.after, row % p.after);
        let keys = match p.shared_indices {
            0 => row * p.indices,
            _ => 0,
        };
        for m in 0..p.indices {
            let index = call.int(1, (keys + m) as usize) ^ p.sign;
            if index < p.size {
                let place = call.int(2, (keys + m) as usize);
                let from = p.s_offset + (before * p.indices + place) * p.after + after;
                let to = (before * p.size + index) * p.after + after;
                found.push((from as usize, to as usize));
            }
        }
    }
    found
}

fn of_floats(call: &TwinCall, a: f32, b: f32, named: u32) -> f32 {
    let Settle { how, is_alone } = Settle::from_code(call.variant.code);
    match how {
        How::Write => b,
        _ if is_alone && named == 1 => b,
        How::Sum | How::Mean => a + b,
        How::Product => a * b,
        _ if a.is_nan() || b.is_nan() => f32::NAN,
        How::Max => a.max(b),
        How::Min => a.min(b),
    }
}

fn of_words(call: &TwinCall, a: u32, b: u32, named: u32) -> u32 {
    let Settle { how, is_alone } = Settle::from_code(call.variant.code);
    let dtype = call.variant.dtypes[0];
    let is_signed = matches!(dtype, DType::I32 | DType::I8);
    match how {
        How::Write => b,
        _ if is_alone && named == 1 => b,
        How::Sum if dtype == DType::Bool => a.max(b),
        How::Product if dtype == DType::Bool => a.min(b),
        How::Sum | How::Mean => a.wrapping_add(b),
        How::Product => a.wrapping_mul(b),
        How::Max if is_signed => (a as i32).max(b as i32) as u32,
        How::Min if is_signed => (a as i32).min(b as i32) as u32,
        How::Max => a.max(b),
        How::Min => a.min(b),
    }
}
