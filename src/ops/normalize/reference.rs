//! The frame of the reference kernels of softmax and layer normalization.

use crate::ops::rows::RowParams;
use crate::ops::rows::reference::element;
use lapidary_core::internal::ReferenceCall;

/// Visits the rows of a view. `finish` computes a row's results from its elements.
pub(in crate::ops) fn rows(
    call: &mut ReferenceCall,
    finish: impl Fn(&ReferenceCall, &[f64]) -> Vec<f64>,
) {
    let p: RowParams = call.params();
    let y = call.operands.len() - 1;
    for row in 0..p.rows {
        let values: Vec<f64> = (0..p.length)
            .map(|k| f64::from(call.f32(0, element(&p, call.variant.code, row, k))))
            .collect();
        for (k, value) in finish(call, &values).into_iter().enumerate() {
            call.put_f32(y, row as usize * p.length as usize + k, value as f32);
        }
    }
}

/// Visits the elements of a contiguous tensor. `finish` gets the element, its row, and its position
/// in the row.
pub(in crate::ops) fn elements(
    call: &mut ReferenceCall,
    finish: impl Fn(&ReferenceCall, f64, usize, usize) -> f64,
) {
    let p: RowParams = call.params();
    let y = call.operands.len() - 1;
    let (step, length) = (p.chunk as usize, p.length as usize);
    for e in 0..p.rows as usize * length {
        let row = e / (step * length) * step + e % step;
        let value = f64::from(call.f32(0, p.offset as usize + e));
        let result = finish(call, value, row, e / step % length);
        call.put_f32(y, e, result as f32);
    }
}
