//! Reference kernel of `shaders/mask.wgsl`.

use crate::ops::elementwise::Code;
use crate::ops::elementwise::reference::{Lane, each, words};
use crate::ops::mask::MaskOp;
use crate::ops::random::reference::philox;
use lapidary_core::internal::ReferenceCall;

pub(crate) fn run(call: &mut ReferenceCall) {
    let code = Code(call.variant.code);
    let (op, words, dtype) = (MaskOp::from_code(code), words(call), call.variant.dtypes[0]);
    let beyond = code.beyond_map();
    let [first, second] = [words[beyond], words[beyond + 1]];
    each(call, |k, lanes| {
        let diagonal = || (k % words[2]) as i32 - (k / words[2] % words[3]) as i32;
        let zero = Lane::from_bits(dtype, 0);
        match (op, lanes[0]) {
            (MaskOp::Tril, x) if diagonal() <= first as i32 => x,
            (MaskOp::Triu, x) if diagonal() >= first as i32 => x,
            (MaskOp::Dropout, Lane::F32(x)) => {
                let drawn = philox([k / 4, 0, 0, 0], [words[2], words[3]])[(k % 4) as usize] >> 8;
                match drawn < first {
                    true => zero,
                    false => Lane::F32(x * f32::from_bits(second)),
                }
            }
            _ => zero,
        }
    });
}
