//! The reference kernel of `bits`: one element after the other.

use crate::ops::bits::Params;
use lapidary_core::internal::ReferenceCall;

pub(crate) fn run(call: &mut ReferenceCall) {
    let p: Params = call.params();
    for word in 0..p.words {
        let elements = (32 * word..32 * (word + 1)).filter(|&k| k < p.elements);
        let is_set = |k: &u32| call.int(0, (p.x_offset + k) as usize) != 0;
        let bits = elements.filter(is_set).map(|k| 1 << (k % 32)).sum();
        call.put_int(1, word as usize, bits);
    }
}
