//! The reference kernels of blocks: each block is decoded on the host.

use super::{Form, Product, Widening, span};
use crate::file_formats::BlockFormat;
use lapidary_core::internal::ReferenceCall;

pub(crate) fn dequantize(call: &mut ReferenceCall) {
    let p: Widening = call.params();
    let format = BlockFormat::ALL[call.variant.code as usize];
    let values = decoded(
        format,
        &call.operands[0][p.start as usize..],
        span(format) * p.count as usize,
    );
    for (at, value) in values.into_iter().enumerate() {
        call.put_f32(1, at, value);
    }
}

pub(crate) fn product(call: &mut ReferenceCall) {
    let p: Product = call.params();
    let form = Form::unpack(call.variant.code);
    for column in 0..p.n {
        let start = (p.w_start + column * p.row_bytes) as usize;
        let w = decoded(form.format, &call.operands[1][start..], p.k as usize);
        for row in 0..p.m {
            let x = (p.x_start + row * p.k) as usize;
            let terms = w.iter().enumerate();
            let sum: f64 = terms
                .map(|(at, &w)| f64::from(call.f32(0, x + at)) * f64::from(w))
                .sum();
            let at = (row * p.n + column) as usize;
            match form.has_residual {
                true => {
                    let with = call.f32(2, p.residual_start as usize + at);
                    call.put_f32(3, at, sum as f32 + with);
                }
                false => call.put_f32(2, at, sum as f32),
            }
        }
    }
}

/// The first elements of these bytes.
fn decoded(format: BlockFormat, bytes: &[u8], count: usize) -> Vec<f32> {
    let mut values = vec![0.0; count];
    let blocks = bytes.chunks_exact(format.block_bytes());
    for (block, into) in blocks.zip(values.chunks_exact_mut(format.block_len())) {
        format.decode(block, into);
    }
    values
}
