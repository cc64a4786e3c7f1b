//! The reference kernel of `scatter_into`: as that of `scatter`, for the elements that sources
//! name.

use crate::ops::scatter::Params;
use crate::ops::scatter::reference::settle;
use lapidary_core::internal::ReferenceCall;

pub(crate) fn run(call: &mut ReferenceCall) {
    let p: Params = call.params();
    let rows = p.elements / p.indices.max(1);
    settle(call, &p, rows, [3, 0, 1, 2, 3], p.x_offset as usize);
}
