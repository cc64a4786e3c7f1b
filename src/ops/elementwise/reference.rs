//! The shared frame of elementwise reference kernels: one element after the other.

use super::code::{Code, Fetch, MAP};
use lapidary_core::DType;
use lapidary_core::internal::ReferenceCall;

/// An element in the type that kernels compute in.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Lane {
    F32(f32),
    I32(i32),
    U32(u32),
}

impl Lane {
    pub(crate) fn from_bits(dtype: DType, bits: u32) -> Lane {
        match dtype.wgsl() {
            "f32" => Lane::F32(f32::from_bits(bits)),
            "i32" => Lane::I32(bits as i32),
            _ => Lane::U32(bits),
        }
    }

    pub(crate) fn truth(value: bool) -> Lane {
        Lane::U32(u32::from(value))
    }

    /// The float that it is.
    pub(crate) fn float(self) -> f32 {
        match self {
            Lane::F32(value) => value,
            lane => unreachable!("{lane:?} is no float"),
        }
    }

    pub(crate) fn is_true(self) -> bool {
        match self {
            Lane::F32(value) => value != 0.0,
            Lane::I32(value) => value != 0,
            Lane::U32(value) => value != 0,
        }
    }
}

pub(crate) fn get(call: &ReferenceCall, operand: usize, index: usize) -> Lane {
    let dtype = call.variant.dtypes[operand];
    match dtype.is_float() {
        true => Lane::F32(call.f32(operand, index)),
        false => Lane::from_bits(dtype, call.int(operand, index)),
    }
}

pub(crate) fn put(call: &mut ReferenceCall, operand: usize, index: usize, lane: Lane) {
    match lane {
        Lane::F32(value) => call.put_f32(operand, index, value),
        Lane::I32(value) => call.put_int(operand, index, value as u32),
        Lane::U32(value) => call.put_int(operand, index, value),
    }
}

/// The parameters as words.
pub(crate) fn words(call: &ReferenceCall) -> Vec<u32> {
    let words = call.params.chunks_exact(4);
    words
        .map(|bytes| u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
        .collect()
}

/// Writes `op(number of the element, inputs)` to every element of the output.
pub(crate) fn each(call: &mut ReferenceCall, op: impl Fn(u32, &[Lane]) -> Lane) {
    let (code, words) = (Code(call.variant.code), words(call));
    let (bound, rank) = (call.operands.len() - 1, code.rank());
    let dims = MAP + bound;
    for k in 0..words[0] {
        let mut operand = 0;
        let mut lanes = Vec::with_capacity(3);
        for input in 0..code.inputs() {
            if code.fetch(input) == Fetch::Param {
                // It has the type of the last input, because the first may be a mask.
                lanes.push(Lane::from_bits(call.variant.dtypes[bound - 1], words[2]));
                continue;
            }
            let strides = dims + rank * (1 + operand);
            let (mut at, mut rest) = (words[MAP + operand], k);
            for d in (0..rank).rev() {
                let dim = words[dims + d];
                at = at.wrapping_add((rest % dim).wrapping_mul(words[strides + d]));
                rest /= dim;
            }
            lanes.push(get(call, operand, at as usize));
            operand += 1;
        }
        let out = if code.is_into() { words[1] + k } else { k };
        put(call, bound, out as usize, op(k, &lanes));
    }
}
