//! The reference kernel of `scatter`: writes or folds one source after the other at its index.

use std::collections::BTreeMap;

use super::kernel::Params;
use super::settle::{How, Settle};
use lapidary_core::DType;
use lapidary_core::internal::ReferenceCall;

/// The operands' numbers: old elements, keys, places, sources, result.
pub(in crate::ops) type Operands = [usize; 5];

pub(crate) fn run(call: &mut ReferenceCall) {
    let p: Params = call.params();
    for e in 0..p.elements as usize {
        let from = p.x_offset as usize + e;
        match call.variant.dtypes[0].is_float() {
            true => call.put_f32(4, e, call.f32(0, from)),
            false => call.put_int(4, e, call.int(0, from)),
        }
    }
    let rows = p.elements / p.size.max(1);
    settle(call, &p, rows, [0, 1, 2, 3, 4], 0);
}

/// The new values of the elements that sources name, for `rows` rows along the axis.
pub(in crate::ops) fn settle(
    call: &mut ReferenceCall,
    p: &Params,
    rows: u32,
    operands: Operands,
    y_offset: usize,
) {
    let [x, .., s, y] = operands;
    let dtype = call.variant.dtypes[y];
    let Settle { how, is_alone } = Settle::from_code(call.variant.code);
    let mut floats: BTreeMap<usize, (f32, u32)> = BTreeMap::new();
    let mut words: BTreeMap<usize, (u32, u32)> = BTreeMap::new();
    // Folded values are rounded once.
    for (from, to) in sources(call, p, rows, operands) {
        let own = p.x_offset as usize + to;
        match dtype.is_float() {
            true => {
                let (value, named) = floats.entry(to).or_insert_with(|| (call.f32(x, own), 0));
                *named += 1;
                *value = of_floats(call, *value, call.f32(s, from), *named);
            }
            false => {
                let (value, named) = words.entry(to).or_insert_with(|| (call.int(x, own), 0));
                *named += 1;
                *value = of_words(call, dtype, *value, call.int(s, from), *named);
            }
        }
    }
    let count = |named: u32| named + u32::from(!is_alone);
    for (to, (value, named)) in floats {
        let mean = value / count(named) as f32;
        let value = if how == How::Mean { mean } else { value };
        call.put_f32(y, y_offset + to, value);
    }
    for (to, (value, named)) in words {
        let mean = || match dtype {
            DType::I32 | DType::I8 => (value as i32).div_euclid(count(named) as i32) as u32,
            _ => value / count(named),
        };
        let value = if how == How::Mean { mean() } else { value };
        call.put_int(y, y_offset + to, value);
    }
}

/// The position and the target of each source, in order.
fn sources(call: &ReferenceCall, p: &Params, rows: u32, operands: Operands) -> Vec<(usize, usize)> {
    let [_, k, o, ..] = operands;
    let mut found = Vec::new();
    for row in 0..rows {
        let (before, after) = (row / p.after, row % p.after);
        let keys = match p.shared_indices {
            0 => row * p.indices,
            _ => 0,
        };
        for m in 0..p.indices {
            let index = call.int(k, (keys + m) as usize) ^ p.sign;
            if index < p.size {
                let place = call.int(o, (keys + m) as usize);
                let from = p.s_offset + (before * p.indices + place) * p.after + after;
                let to = (before * p.size + index) * p.after + after;
                found.push((from as usize, to as usize));
            }
        }
    }
    found
}

fn of_floats(call: &ReferenceCall, a: f32, b: f32, named: u32) -> f32 {
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

fn of_words(call: &ReferenceCall, dtype: DType, a: u32, b: u32, named: u32) -> u32 {
    let Settle { how, is_alone } = Settle::from_code(call.variant.code);
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
