//! The reference kernel of `search_sorted`.

use crate::ops::elementwise::reference::{Lane, get};
use crate::ops::search_sorted::{Params, is_right};
use lapidary_core::internal::ReferenceCall;

pub(crate) fn run(call: &mut ReferenceCall) {
    let p: Params = call.params();
    let right = is_right(call.variant.code);
    for e in 0..p.elements {
        let row = p.s_offset + e / p.values * p.length;
        let value = get(call, 1, (p.v_offset + e) as usize);
        let (mut low, mut high) = (0, p.length);
        while low < high {
            let middle = low + (high - low) / 2;
            match is_before(get(call, 0, (row + middle) as usize), value, right) {
                true => low = middle + 1,
                false => high = middle,
            }
        }
        call.put_int(2, e as usize, low);
    }
}

fn is_before(element: Lane, value: Lane, right: bool) -> bool {
    let order = match (element, value) {
        (Lane::F32(a), Lane::F32(b)) => a.partial_cmp(&b),
        (Lane::I32(a), Lane::I32(b)) => Some(a.cmp(&b)),
        (Lane::U32(a), Lane::U32(b)) => Some(a.cmp(&b)),
        _ => None,
    };
    order.is_some_and(|order| order.is_lt() || right && order.is_eq())
}
