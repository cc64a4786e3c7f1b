//! The reference kernel of attention: softmax of all scores of a row, in f64.

use super::form::{has_mask, is_causal};
use super::problem::Params;
use lapidary_core::DType;
use lapidary_core::internal::ReferenceCall;

pub(crate) fn run(call: &mut ReferenceCall) {
    let p: Params = call.params();
    let [queries, keys, size, columns] = p.size;
    for head in 0..p.batch[2] {
        for row in 0..queries {
            let start = |operand: usize| start(&p, operand, head);
            let line = |operand: usize, row: u32| {
                start(operand).wrapping_add(row.wrapping_mul(p.strides[operand][3]))
            };
            let seen = match is_causal(call.variant.code) {
                true => keys.min(p.rest[2] + row + 1),
                false => keys,
            };
            let (q, m) = (line(0, row), line(3, row));
            let scores: Vec<f64> = (0..seen)
                .map(|key| {
                    let k = line(1, key);
                    let product = |d: u32| {
                        let at = |start: u32| start.wrapping_add(d) as usize;
                        f64::from(call.f32(0, at(q))) * f64::from(call.f32(1, at(k)))
                    };
                    let score = (0..size).map(product).sum::<f64>();
                    let score = score * f64::from(f32::from_bits(p.batch[3]));
                    masked(call, score, m.wrapping_add(key.wrapping_mul(p.rest[0])))
                })
                .collect();
            let weights = weights(&scores);
            for column in 0..columns {
                let value =
                    |key: u32| f64::from(call.f32(2, line(2, key).wrapping_add(column) as usize));
                let sum: f64 = (weights.iter().zip(0..))
                    .map(|(weight, key)| weight * value(key))
                    .sum();
                let at = ((head * queries + row) * p.rest[1] + column) as usize;
                call.put_f32(4, at, sum as f32);
            }
        }
    }
}

/// The first element of a head of an operand.
fn start(p: &Params, operand: usize, head: u32) -> u32 {
    let strides = p.strides[operand];
    let above = head / p.batch[0];
    p.starts[operand]
        .wrapping_add((head % p.batch[0]).wrapping_mul(strides[0]))
        .wrapping_add((above % p.batch[1]).wrapping_mul(strides[1]))
        .wrapping_add((above / p.batch[1]).wrapping_mul(strides[2]))
}

fn masked(call: &ReferenceCall, score: f64, at: u32) -> f64 {
    if !has_mask(call.variant.code) {
        return score;
    }
    match call.variant.dtypes[3] {
        DType::Bool if call.int(3, at as usize) == 0 => f64::NEG_INFINITY,
        DType::Bool => score,
        _ => score + f64::from(call.f32(3, at as usize)),
    }
}

/// The softmax of a row; zeros if the row sees no key.
fn weights(scores: &[f64]) -> Vec<f64> {
    let is_nan = scores.iter().any(|score| score.is_nan());
    let highest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    if highest == f64::NEG_INFINITY && !is_nan {
        return vec![0.0; scores.len()];
    }
    let terms: Vec<f64> = scores.iter().map(|score| (score - highest).exp()).collect();
    let sum: f64 = terms.iter().sum();
    terms.iter().map(|term| term / sum).collect()
}
