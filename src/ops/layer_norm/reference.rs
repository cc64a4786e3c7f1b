//! The reference kernels of `layer_norm` and of its last step alone.

use crate::ops::layer_norm::{HAS_BIAS, HAS_WEIGHT, RMS};
use crate::ops::normalize::reference::{elements, rows};
use crate::ops::rows::RowParams;
use lapidary_core::internal::ReferenceCall;

pub(crate) fn run(call: &mut ReferenceCall) {
    rows(call, |call, row| {
        let s = match call.variant.code & RMS {
            0 => row.iter().sum::<f64>() / row.len() as f64,
            _ => 0.0,
        };
        let t = row.iter().map(|x| (x - s).powi(2)).sum();
        let results = row.iter().enumerate();
        results.map(|(k, &x)| finish(call, x - s, t, k)).collect()
    });
}

pub(crate) fn apply(call: &mut ReferenceCall) {
    elements(call, |call, x, row, k| {
        let p: RowParams = call.params();
        let s = match call.variant.code & RMS {
            0 => {
                let first = p.offset as usize + row * p.length as usize;
                f64::from(call.f32(0, first)) + f64::from(call.f32(3, row))
            }
            _ => 0.0,
        };
        finish(call, x - s, f64::from(call.f32(4, row)), k)
    });
}

/// `away` is the distance from the mean.
fn finish(call: &ReferenceCall, away: f64, t: f64, k: usize) -> f64 {
    let p: RowParams = call.params();
    let mut y = away / (t / f64::from(p.length) + f64::from(p.scalar)).sqrt();
    if call.variant.code & HAS_WEIGHT != 0 {
        y *= f64::from(call.f32(1, p.second as usize + k));
    }
    if call.variant.code & HAS_BIAS != 0 {
        y += f64::from(call.f32(2, p.third as usize + k));
    }
    y
}
