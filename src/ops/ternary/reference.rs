//! Reference kernel of `shaders/ternary.wgsl`.

use crate::ops::elementwise::Code;
use crate::ops::elementwise::reference::{Lane, each, words};
use crate::ops::ternary::TernaryOp;
use lapidary_core::internal::ReferenceCall;

pub(crate) fn run(call: &mut ReferenceCall) {
    let op = TernaryOp::from_code(Code(call.variant.code));
    let value = Lane::from_bits(call.variant.dtypes[0], words(call)[2]);
    each(call, |_, lanes| {
        match (lanes[0], lanes[1], lanes[2], value) {
            (Lane::F32(a), Lane::F32(b), Lane::F32(c), Lane::F32(value)) => Lane::F32(match op {
                TernaryOp::Lerp => lerp(a, b, c),
                TernaryOp::Addcmul => a + value * b * c,
                TernaryOp::Addcdiv => a + value * b / c,
            }),
            (Lane::I32(a), Lane::I32(b), Lane::I32(c), Lane::I32(value)) => {
                Lane::I32(a.wrapping_add(value.wrapping_mul(b).wrapping_mul(c)))
            }
            (Lane::U32(a), Lane::U32(b), Lane::U32(c), Lane::U32(value)) => {
                Lane::U32(a.wrapping_add(value.wrapping_mul(b).wrapping_mul(c)))
            }
            lanes => unreachable!("operands of several types: {lanes:?}"),
        }
    });
}

/// Interpolates from the nearer end.
pub(in crate::ops) fn lerp(a: f32, b: f32, weight: f32) -> f32 {
    match weight.abs() >= 0.5 {
        true => b - (b - a) * (1.0 - weight),
        false => a + weight * (b - a),
    }
}
