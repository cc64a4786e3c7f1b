//! The reference kernel of `loss`.

use crate::ops::rows::RowParams;
use crate::ops::rows::reference::element;
use lapidary_core::internal::ReferenceCall;

pub(crate) fn run(call: &mut ReferenceCall) {
    let p: RowParams = call.params();
    let y = call.operands.len() - 1;
    for row in 0..p.rows {
        let class = call.int(1, (p.second + row) as usize);
        let loss = match class {
            class if p.parts == 1 && class == p.third => 0.0,
            class if class >= p.length => f32::NAN,
            class => {
                let total = if y == 3 {
                    call.f32(2, row as usize)
                } else {
                    0.0
                };
                total - call.f32(0, element(&p, call.variant.code, row, class))
            }
        };
        call.put_f32(y, row as usize, loss);
    }
}
