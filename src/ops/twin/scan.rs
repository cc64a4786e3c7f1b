//! The twin of `scan`: every element folded in f64, or in wrapping integers.

use super::rows::{element, part};
use crate::engine::kernel::TwinCall;
use crate::ops::rows::RowParams;
use crate::ops::scan::kind;

pub(crate) fn run(call: &mut TwinCall) {
    let p: RowParams = call.params();
    for row in 0..p.rows {
        for index in 0..p.parts {
            walk(call, &p, row, index);
        }
    }
}

fn walk(call: &mut TwinCall, p: &RowParams, row: u32, index: u32) {
    let (is_product, is_in_parts) = kind(call.variant.code);
    let y = call.operands.len() - 1;
    let before = match is_in_parts && index > 0 {
        true => Some((row * p.parts + index - 1) as usize),
        false => None,
    };
    let first = row / p.second * p.length * p.second + row % p.second;
    let at = |k: u32| (first + k * p.second) as usize;
    if call.variant.dtypes[0].is_float() {
        let mut total = match before {
            Some(before) => f64::from(call.f32(1, before)),
            None => f64::from(u8::from(is_product)),
        };
        for k in part(p, index) {
            let value = f64::from(call.f32(0, element(p, call.variant.code, row, k)));
            total = if is_product {
                total * value
            } else {
                total + value
            };
            call.put_f32(y, at(k), total as f32);
        }
        return;
    }
    let mut total = match before {
        Some(before) => call.int(1, before),
        None => u32::from(is_product),
    };
    for k in part(p, index) {
        let value = call.int(0, element(p, call.variant.code, row, k));
        total = match is_product {
            true => total.wrapping_mul(value),
            false => total.wrapping_add(value),
        };
        call.put_int(y, at(k), total);
    }
}
