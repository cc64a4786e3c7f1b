//! The twin of `reduce`: every result folded in f64, or in wrapping integers.

use super::rows::{element, part};
use crate::engine::kernel::TwinCall;
use crate::ops::reduce::{Form, Op};
use crate::ops::rows::RowParams;

pub(crate) fn run(call: &mut TwinCall) {
    let p: RowParams = call.params();
    let form = Form::from_code(call.variant.code);
    let padded = p.rows.next_multiple_of(4);
    for row in 0..p.rows {
        for index in 0..p.parts {
            let to = match form {
                Form::Across | Form::AcrossQuads => index * padded + row,
                Form::Along | Form::Tree => row * p.parts + index,
            };
            fold(call, &p, row, part(&p, index), to as usize);
        }
    }
}

fn fold(call: &mut TwinCall, p: &RowParams, row: u32, range: std::ops::Range<u32>, to: usize) {
    let code = call.variant.code;
    let op = Op::from_code(code);
    let y = call.operands.len() - 1;
    let elements = range.map(|k| element(p, code, row, k));
    if call.variant.dtypes[0].is_float() {
        let values = elements.map(|at| f64::from(call.f32(0, at)));
        let result = match op {
            // Rust's sum of nothing is -0.
            Op::Sum => 0.0 + values.sum::<f64>(),
            Op::Mean => values.sum::<f64>() / f64::from(p.scalar),
            Op::Max => values.fold(
                f64::NEG_INFINITY,
                |a, b| if b > a || b.is_nan() { b } else { a },
            ),
            Op::Min => values.fold(
                f64::INFINITY,
                |a, b| if b < a || b.is_nan() { b } else { a },
            ),
            Op::SumExp | Op::SumSquares => {
                let m = f64::from(call.f32(1, row as usize));
                match op {
                    Op::SumExp => values.map(|v| (v - m).exp()).sum(),
                    _ => values.map(|v| (v - m).powi(2)).sum(),
                }
            }
        };
        call.put_f32(y, to, result as f32);
        return;
    }
    let signed = call.variant.dtypes[0] == crate::dtype::DType::I32;
    // The order of signed numbers among the unsigned ones.
    let order = |v: &u32| if signed { v ^ 1 << 31 } else { *v };
    let values = elements.map(|at| call.int(0, at));
    let result = match op {
        Op::Max => values.max_by_key(order).unwrap_or(0),
        Op::Min => values.min_by_key(order).unwrap_or(0),
        _ => values.fold(0, u32::wrapping_add),
    };
    call.put_int(y, to, result);
}
