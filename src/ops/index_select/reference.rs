//! The reference kernel of `index_select`.

use crate::ops::index_select::Params;
use crate::ops::rows::reference::offset_of;
use lapidary_core::internal::ReferenceCall;

pub(crate) fn run(call: &mut ReferenceCall) {
    let p: Params = call.params();
    let code = call.variant.code;
    let size = call.variant.dtypes[0].size_bytes() as usize;
    for e in 0..p.elements {
        let (slice, after) = (e / p.after, e % p.after);
        let (before, j) = (slice / p.indices, slice % p.indices);
        let j = p.index_offset.wrapping_add(j.wrapping_mul(p.index_stride));
        let index = call.int(1, j as usize);
        let to = e as usize * size;
        if index >= p.size {
            call.operands[2][to..to + size].fill(0);
            continue;
        }
        let from = p
            .offset
            .wrapping_add(offset_of(
                before,
                code & 15,
                &p.before_dims,
                &p.before_strides,
            ))
            .wrapping_add(index.wrapping_mul(p.stride))
            .wrapping_add(offset_of(
                after,
                code >> 4 & 15,
                &p.after_dims,
                &p.after_strides,
            ));
        let from = from as usize * size;
        let bytes = call.operands[0][from..from + size].to_vec();
        call.operands[2][to..to + size].copy_from_slice(&bytes);
    }
}
