//! The reference kernels of `softmax` and of its last step alone.

use crate::ops::normalize::reference::{elements, rows};
use crate::ops::softmax::is_log;
use lapidary_core::internal::ReferenceCall;

pub(crate) fn run(call: &mut ReferenceCall) {
    rows(call, |call, row| {
        let s = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let t = row.iter().map(|x| (x - s).exp()).sum();
        row.iter().map(|&x| finish(call, x, s, t)).collect()
    });
}

pub(crate) fn apply(call: &mut ReferenceCall) {
    elements(call, |call, x, row, _| {
        let (s, t) = (f64::from(call.f32(1, row)), f64::from(call.f32(2, row)));
        finish(call, x, s, t)
    });
}

fn finish(call: &ReferenceCall, x: f64, s: f64, t: f64) -> f64 {
    match is_log(call.variant.code) {
        true => (x - s) - t.ln(),
        false => (x - s).exp() / t,
    }
}
