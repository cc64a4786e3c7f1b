//! The reference kernel of `scan`: it folds every element in f64, or in wrapping integers.

use crate::ops::reduce::Fold;
use crate::ops::rows::RowParams;
use crate::ops::rows::reference::{element, part};
use crate::ops::scan::kind;
use lapidary_core::DType;
use lapidary_core::internal::ReferenceCall;

pub(crate) fn run(call: &mut ReferenceCall) {
    let p: RowParams = call.params();
    for row in 0..p.rows {
        for index in 0..p.parts {
            scan_part(call, &p, row, index);
        }
    }
}

fn scan_part(call: &mut ReferenceCall, p: &RowParams, row: u32, index: u32) {
    let (fold, is_in_parts) = kind(call.variant.code);
    let y = call.operands.len() - 1;
    let before = match is_in_parts && index > 0 {
        true => Some((row * p.parts + index - 1) as usize),
        false => None,
    };
    let first = row / p.second * p.length * p.second + row % p.second;
    let at = |k: u32| (first + k * p.second) as usize;
    if call.variant.dtypes[0].is_float() {
        let mut total = before.map(|before| f64::from(call.f32(1, before)));
        for k in part(p, index) {
            let value = f64::from(call.f32(0, element(p, call.variant.code, row, k)));
            let folded = total.map_or(value, |total| of_floats(fold, total, value));
            total = Some(folded);
            call.put_f32(y, at(k), folded as f32);
        }
        return;
    }
    let is_signed = matches!(call.variant.dtypes[0], DType::I32 | DType::I8);
    let mut total = before.map(|before| call.int(1, before));
    for k in part(p, index) {
        let value = call.int(0, element(p, call.variant.code, row, k));
        let folded = total.map_or(value, |total| of_words(fold, is_signed, total, value));
        total = Some(folded);
        call.put_int(y, at(k), folded);
    }
}

fn of_floats(fold: Fold, a: f64, b: f64) -> f64 {
    match fold {
        Fold::Sum => a + b,
        Fold::Product => a * b,
        _ if a.is_nan() || b.is_nan() => f64::NAN,
        Fold::Max => a.max(b),
        Fold::Min => a.min(b),
    }
}

fn of_words(fold: Fold, is_signed: bool, a: u32, b: u32) -> u32 {
    match fold {
        Fold::Sum => a.wrapping_add(b),
        Fold::Product => a.wrapping_mul(b),
        Fold::Max if is_signed => (a as i32).max(b as i32) as u32,
        Fold::Min if is_signed => (a as i32).min(b as i32) as u32,
        Fold::Max => a.max(b),
        Fold::Min => a.min(b),
    }
}
