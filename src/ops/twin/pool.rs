//! The twin of pool: every window gives its share away.

use crate::engine::kernel::TwinCall;
use crate::ops::pool::{Fold, Params, fold_of};

pub(crate) fn run(call: &mut TwinCall) {
    let p: Params = call.params();
    let [planes, height, width, down] = p.planes;
    let across = p.kernel[0];
    let mut sums = vec![0.0_f64; (planes * height * width) as usize];
    for window in 0..planes * down * across {
        let (plane, y, x) = (
            window / (down * across),
            window / across % down,
            window % across,
        );
        let g = f64::from(call.f32(1, (p.rest[0] + window) as usize));
        // Places in the plane; the padding wraps.
        let inside: Vec<u32> = (0..p.kernel[1] * p.kernel[2])
            .map(|tap| {
                let row = (y * p.kernel[3] + tap / p.kernel[2]).wrapping_sub(p.margin[1]);
                let column = (x * p.margin[0] + tap % p.kernel[2]).wrapping_sub(p.margin[2]);
                (row, column)
            })
            .filter(|&(row, column)| row < height && column < width)
            .map(|(row, column)| (plane * height + row) * width + column)
            .collect();
        match fold_of(call.variant.code) {
            Fold::Avg => {
                let share = g / f64::from(p.kernel[1] * p.kernel[2]);
                inside.iter().for_each(|&at| sums[at as usize] += share);
            }
            Fold::Max => {
                let mut highest: Option<(f32, u32)> = None;
                for at in inside {
                    let x = call.f32(0, (p.margin[3] + at) as usize);
                    if x.is_nan() || highest.is_none_or(|(highest, _)| x > highest) {
                        highest = Some((x, at));
                    }
                }
                if let Some((_, at)) = highest {
                    sums[at as usize] += g;
                }
            }
        }
    }
    for (at, sum) in sums.into_iter().enumerate() {
        call.put_f32(2, at, sum as f32);
    }
}
