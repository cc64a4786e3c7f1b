//! The reference kernel of `clip`: one tensor after the other.

use crate::ops::clip::{Params, Task, tensors_of};
use lapidary_core::internal::ReferenceCall;

pub(crate) fn run(call: &mut ReferenceCall) {
    let (p, code): (Params, u64) = (call.params(), call.variant.code);
    let task = Task::from_code(code);
    let tensors = 1..=tensors_of(code);
    let lens = tensors.clone().map(|tensor| p.lens[tensor - 1] as usize);
    let places: Vec<_> = tensors.zip(lens).collect();
    if !task.folds() {
        let number = call.f32(0, 0);
        let by = match task {
            Task::Clip if p.most / (number + 1e-6) > 1.0 => 1.0,
            Task::Clip => p.most / (number + 1e-6),
            _ => 1.0 / number,
        };
        for (tensor, len) in places {
            for at in 0..len {
                let product = call.f32(tensor, at) * by;
                call.put_f32(tensor, at, product);
            }
        }
        return;
    }
    let folders = (p.step / 4) as usize;
    let mut sums: Vec<f64> = (0..folders).map(|at| f64::from(call.f32(0, at))).collect();
    for (tensor, len) in places {
        for at in 0..len {
            let element = f64::from(call.f32(tensor, at));
            let sum = &mut sums[at / 4 % folders];
            *sum = match task {
                Task::Squares => *sum + element * element,
                _ if element.is_finite() => *sum,
                _ => 1.0,
            };
        }
    }
    for (at, sum) in sums.into_iter().enumerate() {
        call.put_f32(0, at, sum as f32);
    }
}
