//! Reference kernel of `shaders/select.wgsl`.

use crate::ops::elementwise::reference::each;
use lapidary_core::internal::ReferenceCall;

pub(crate) fn run(call: &mut ReferenceCall) {
    each(call, |_, lanes| match lanes[0].is_true() {
        true => lanes[1],
        false => lanes[2],
    });
}
