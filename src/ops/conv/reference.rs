//! The reference kernel of conv: seven loops.

use super::geometry::Params;
use super::kernel::is_biased;
use lapidary_core::internal::ReferenceCall;

pub(crate) fn run(call: &mut ReferenceCall) {
    let p: Params = call.params();
    let [samples, _, channels, groups] = p.size;
    let pixels = p.planes[2] * p.planes[3];
    for sample in 0..samples {
        for out in 0..groups * channels {
            for pixel in 0..pixels {
                let bias = match is_biased(call.variant.code) {
                    true => f64::from(call.f32(2, (p.starts[2] + out) as usize)),
                    false => 0.0,
                };
                let sum = bias + products(call, &p, sample, out, pixel);
                let at = (sample * groups * channels + out) * p.starts[3] + pixel;
                call.put_f32(3, at as usize, sum as f32);
            }
        }
    }
}

fn products(call: &ReferenceCall, p: &Params, sample: u32, out: u32, pixel: u32) -> f64 {
    let [height, width, down, across] = p.kernel;
    let channels = p.size[1];
    let (y, x) = (pixel / p.planes[3], pixel % p.planes[3]);
    let mut sum = 0.0;
    for tap in 0..channels * height * width {
        let (c, ky, kx) = (tap / (height * width), tap / width % height, tap % width);
        let row = (y * down + ky * p.margin[2]).wrapping_sub(p.margin[0]);
        let column = (x * across + kx * p.margin[3]).wrapping_sub(p.margin[1]);
        if row >= p.planes[0] || column >= p.planes[1] {
            continue;
        }
        let channel = out / p.size[2] * channels + c;
        let at = [sample, channel, row, column]
            .iter()
            .zip(p.x)
            .fold(p.starts[0], |at, (&index, stride)| {
                at.wrapping_add(index.wrapping_mul(stride))
            });
        let weight = p.starts[1] + out * channels * height * width + tap;
        sum += f64::from(call.f32(0, at as usize)) * f64::from(call.f32(1, weight as usize));
    }
    sum
}
