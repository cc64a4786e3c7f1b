//! Reference kernel of `shaders/fill.wgsl`.

use crate::ops::elementwise::Code;
use crate::ops::elementwise::reference::{Lane, each, words};
use crate::ops::fill::FillOp;
use lapidary_core::internal::ReferenceCall;

pub(crate) fn run(call: &mut ReferenceCall) {
    let op = FillOp::from_code(Code(call.variant.code));
    let (dtype, words) = (call.variant.dtypes[0], words(call));
    let (first, second) = (words[2], words[3]);
    each(call, |k, _| match op {
        FillOp::Full => Lane::from_bits(dtype, first),
        FillOp::Arange if dtype.is_float() => {
            Lane::F32(f32::from_bits(second).mul_add(k as f32, f32::from_bits(first)))
        }
        FillOp::Arange => Lane::from_bits(dtype, first.wrapping_add(k.wrapping_mul(second))),
        FillOp::Eye => {
            let one = k / first == k % first;
            match dtype.is_float() {
                true => Lane::F32(f32::from(u8::from(one))),
                false => Lane::from_bits(dtype, u32::from(one)),
            }
        }
    });
}
