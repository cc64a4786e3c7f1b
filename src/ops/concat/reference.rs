//! The reference kernel of `concat`.

use crate::ops::concat::Params;
use lapidary_core::internal::ReferenceCall;

pub(crate) fn run(call: &mut ReferenceCall) {
    let p: Params = call.params();
    let size = call.variant.dtypes[4].size_bytes() as usize;
    let last = 4 * (p.first_vec4 + p.vec4s);
    for line in 0..p.lines {
        let start = line * p.line;
        for e in start + 4 * p.first_vec4..p.elements.min(start + last) {
            let (line, at) = (e / p.line, e % p.line);
            let Some(i) = (0..4).find(|&i| (p.begins[i]..p.ends[i]).contains(&at)) else {
                continue;
            };
            let from = p.offsets[i] + line * (p.ends[i] - p.begins[i]) + at - p.begins[i];
            let (from, to) = (from as usize * size, e as usize * size);
            let bytes = call.operands[i][from..from + size].to_vec();
            call.operands[4][to..to + size].copy_from_slice(&bytes);
        }
    }
}
