//! The reference kernel of `gather`.

use crate::ops::elementwise::reference::words;
use crate::ops::elementwise::{Code, MAP};
use lapidary_core::internal::ReferenceCall;

pub(crate) fn run(call: &mut ReferenceCall) {
    let (words, rank) = (words(call), Code(call.variant.code).rank());
    let (dims, bytes) = (MAP + 2, call.variant.dtypes[1].size_bytes() as usize);
    for k in 0..words[0] {
        let mut at = [words[MAP], words[MAP + 1]];
        let mut rest = k;
        for d in (0..rank).rev() {
            let coordinate = rest % words[dims + d];
            rest /= words[dims + d];
            for (operand, at) in at.iter_mut().enumerate() {
                let stride = words[dims + rank * (1 + operand) + d];
                *at = at.wrapping_add(coordinate.wrapping_mul(stride));
            }
        }
        let index = call.int(0, at[0] as usize);
        let to = k as usize * bytes;
        if index >= words[2] {
            call.operands[2][to..to + bytes].fill(0);
            continue;
        }
        let from = at[1].wrapping_add(index.wrapping_mul(words[3])) as usize * bytes;
        let element = call.operands[1][from..from + bytes].to_vec();
        call.operands[2][to..to + bytes].copy_from_slice(&element);
    }
}
