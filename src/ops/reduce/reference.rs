//! The reference kernel of `reduce`: it folds every row in f64, or in wrapping integers.

use crate::ops::reduce::{Fold, Form, Lift, Lower, Op};
use crate::ops::rows::RowParams;
use crate::ops::rows::reference::{element, part};
use lapidary_core::internal::ReferenceCall;

pub(crate) fn run(call: &mut ReferenceCall) {
    let p: RowParams = call.params();
    let form = Form::from_code(call.variant.code);
    let padded = p.rows.next_multiple_of(4);
    for row in 0..p.rows {
        for index in 0..p.parts {
            let to = match form {
                Form::Across | Form::AcrossVec4s => index * padded + row,
                Form::Along | Form::Tree => row * p.parts + index,
            };
            fold(call, &p, row, part(&p, index), to as usize);
        }
    }
}

fn fold(call: &mut ReferenceCall, p: &RowParams, row: u32, range: std::ops::Range<u32>, to: usize) {
    let code = call.variant.code;
    let op = Op::from_code(code);
    let y = call.operands.len() - 1;
    let elements = range.map(|k| element(p, code, row, k));
    let is_float = call.variant.dtypes[0].is_float();
    if op.lift == Lift::Truth {
        let truths = elements.map(|at| match is_float {
            true => u32::from(call.f32(0, at) != 0.0),
            false => u32::from(call.int(0, at) != 0),
        });
        let result = match op.fold {
            Fold::Max => truths.max().unwrap_or(0),
            Fold::Min => truths.min().unwrap_or(1),
            _ => truths.sum(),
        };
        call.put_int(y, to, result);
    } else if is_float {
        let m = match op.needs_middle() {
            true => f64::from(call.f32(1, row as usize)),
            false => 0.0,
        };
        let number = f64::from(p.scalar);
        let first = match op.lift {
            Lift::FromFirst | Lift::Distance => f64::from(call.f32(0, element(p, code, row, 0))),
            _ => 0.0,
        };
        let value = |at| f64::from(call.f32(0, at)) - first;
        let lifted = elements.map(|at| lift(op.lift, value(at), m, number));
        let folded = join(op.fold, lifted);
        call.put_f32(y, to, lower(op.lower, folded, number) as f32);
    } else {
        let is_signed = call.variant.dtypes[0].wgsl() == "i32";
        // Maps signed numbers to unsigned ones in the same order.
        let order = |v: &u32| if is_signed { v ^ 1 << 31 } else { *v };
        let values = elements.map(|at| call.int(0, at));
        let result = match op.fold {
            Fold::Max => values.max_by_key(order).unwrap_or(0),
            Fold::Min => values.min_by_key(order).unwrap_or(0),
            Fold::Sum => values.fold(0, u32::wrapping_add),
            Fold::Product => values.fold(1, u32::wrapping_mul),
        };
        call.put_int(y, to, result);
    }
}

fn lift(lift: Lift, v: f64, m: f64, number: f64) -> f64 {
    match lift {
        Lift::Plain | Lift::Truth | Lift::FromFirst => v,
        Lift::Exp => (v - m).exp(),
        Lift::Distance => (v - m).powi(2),
        Lift::Size => v.abs(),
        Lift::Square => v * v,
        Lift::Power => v.abs().powf(number),
    }
}

fn join(fold: Fold, values: impl Iterator<Item = f64>) -> f64 {
    match fold {
        // Rust's sum of no elements is -0.
        Fold::Sum => 0.0 + values.sum::<f64>(),
        Fold::Product => values.product(),
        Fold::Max => values.fold(
            f64::NEG_INFINITY,
            |a, b| if b > a || b.is_nan() { b } else { a },
        ),
        Fold::Min => values.fold(
            f64::INFINITY,
            |a, b| if b < a || b.is_nan() { b } else { a },
        ),
    }
}

fn lower(lower: Lower, v: f64, number: f64) -> f64 {
    match lower {
        Lower::Plain => v,
        Lower::Divide => v / number,
        Lower::DivideRoot => (v / number).sqrt(),
        Lower::Root => v.sqrt(),
        Lower::PowerRoot => v.powf(1.0 / number),
    }
}
