//! The reference kernel of `layer_norm_backward`.

use crate::ops::layer_norm_backward::{HAS_WEIGHT, Params, RMS};
use lapidary_core::internal::ReferenceCall;

pub(crate) fn run(call: &mut ReferenceCall) {
    let p: Params = call.params();
    let (code, length) = (call.variant.code, f64::from(p.length));
    for row in 0..p.rows {
        let all = |call: &ReferenceCall, operand, start: u32| -> Vec<f64> {
            let elements = (0..p.length).map(|k| (start + k) as usize);
            elements
                .map(|at| f64::from(call.f32(operand, at)))
                .collect()
        };
        let x = all(call, 0, p.x + row * p.length);
        let mut h = all(call, 1, p.g + row * p.length);
        if code & HAS_WEIGHT != 0 {
            let weight = all(call, 2, p.w);
            h.iter_mut().zip(weight).for_each(|(h, w)| *h *= w);
        }
        let mean_of = |numbers: &mut dyn Iterator<Item = f64>| numbers.sum::<f64>() / length;
        let is_centred = code & RMS == 0;
        let mean = if is_centred {
            mean_of(&mut x.iter().copied())
        } else {
            0.0
        };
        let variance = mean_of(&mut x.iter().map(|x| (x - mean).powi(2)));
        let scale = (variance + f64::from(p.eps)).sqrt().recip();
        let normal: Vec<f64> = x.iter().map(|x| (x - mean) * scale).collect();
        let along = mean_of(&mut h.iter().zip(&normal).map(|(h, n)| h * n));
        let shift = if is_centred {
            mean_of(&mut h.iter().copied())
        } else {
            0.0
        };
        for (k, (h, n)) in h.iter().zip(&normal).enumerate() {
            let at = (row * p.length) as usize + k;
            call.put_f32(3, at, ((h - shift - n * along) * scale) as f32);
        }
        let first = if is_centred { x[0] } else { 0.0 };
        call.put_f32(4, row as usize, (mean - first) as f32);
        call.put_f32(5, row as usize, scale as f32);
    }
}
