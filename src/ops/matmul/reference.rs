//! The reference kernel of matmul for all variants: three loops. Floats are summed in f32, in
//! order.

use crate::ops::matmul::{Form, Packing, Params, Tile};
use lapidary_core::internal::ReferenceCall;

pub(crate) fn run(call: &mut ReferenceCall) {
    let p: Params = call.params();
    let [m, n, k, matrices] = p.size;
    let [c_row, a_start, b_start] = [p.rest[1], p.rest[2], p.rest[3]];
    let form = Form::unpack(call.variant.code);
    let first = 2 + usize::from(form.has_scales());
    let c = first + usize::from(form.end.bias) + usize::from(form.end.residual);
    let lanes = match form.tile {
        Tile::Packed { lanes, .. } => u32::from(lanes),
        _ => 0,
    };
    for matrix in 0..matrices {
        let (a_step, b_step) = steps(&p, matrix);
        for row in 0..m {
            for column in 0..n {
                let a = |i: u32| {
                    if lanes > 0 {
                        return packed_at(lanes, k, matrix * p.a[0], row, i);
                    }
                    let at = row
                        .wrapping_mul(p.strides[0])
                        .wrapping_add(i.wrapping_mul(p.strides[1]));
                    a_start.wrapping_add(a_step).wrapping_add(at) as usize
                };
                let b = |i: u32| {
                    if lanes > 0 {
                        return packed_at(lanes, k, matrix * p.b[0], column, i);
                    }
                    let at = i
                        .wrapping_mul(p.strides[2])
                        .wrapping_add(column.wrapping_mul(p.strides[3]));
                    b_start.wrapping_add(b_step).wrapping_add(at) as usize
                };
                let at = ((matrix * m + row) * c_row + column) as usize;
                if call.variant.dtypes[c].is_float() {
                    let scale = |i: u32| match form.group_log2 {
                        0 => 1.0,
                        log2 => {
                            let in_row = k.div_ceil(1 << log2);
                            call.f32(2, (p.more[3] + column * in_row + (i >> log2)) as usize)
                        }
                    };
                    let products =
                        (0..k).map(|i| float(call, 0, a(i)) * (float(call, 1, b(i)) * scale(i)));
                    let sum = finish(call, &p, form, at, column, products.sum());
                    call.put_f32(c, at, sum);
                } else {
                    let products =
                        (0..k).map(|i| call.int(0, a(i)).wrapping_mul(call.int(1, b(i))));
                    let sum = products.fold(0, u32::wrapping_add);
                    call.put_int(c, at, sum);
                }
            }
        }
    }
}

/// An element of an operand of floats, or of i8 with floats.
fn float(call: &ReferenceCall, operand: usize, index: usize) -> f32 {
    match call.variant.dtypes[operand].is_float() {
        true => call.f32(operand, index),
        false => call.int(operand, index) as i32 as f32,
    }
}

/// The epilogue of one element.
fn finish(call: &ReferenceCall, p: &Params, form: Form, at: usize, column: u32, sum: f32) -> f32 {
    let (end, first) = (form.end, 2 + usize::from(form.has_scales()));
    let mut value = sum;
    if end.scale {
        value *= f32::from_bits(p.more[0]);
    }
    if end.columns {
        value *= call.f32(2, (p.more[3] + column) as usize);
    }
    if end.bias {
        value += call.f32(first, (p.more[1] + column) as usize);
    }
    if let Some(activation) = end.activation {
        value = crate::ops::unary::reference::float(activation.op(), value);
    }
    if end.residual {
        value += call.f32(first + usize::from(end.bias), p.more[2] as usize + at);
    }
    value
}

/// The index of element `k` of line `edge` in a packed operand. `first` is the first step of its
/// matrix.
fn packed_at(lanes: u32, len: u32, first: u32, edge: u32, k: u32) -> usize {
    let (panel, in_panel) = (edge / (lanes * 4), edge % (lanes * 4));
    let step = first + panel * len.div_ceil(4) + k / 4;
    let vec4 = in_panel % 4 * lanes + in_panel / 4;
    (step as usize * lanes as usize * 4 + vec4 as usize) * 4 + k as usize % 4
}

/// Packs an operand. Steps past the end of k are zero, and lines past the edge repeat the last one.
pub(crate) fn pack(call: &mut ReferenceCall) {
    let p: Params = call.params();
    let [edge, _, k, matrices] = p.size;
    let lanes = Packing::unpack(call.variant.code).lanes;
    let width = u32::from(lanes) * 4;
    let (panels, steps_of_k) = (edge.div_ceil(width), k.div_ceil(4));
    for matrix in 0..matrices {
        let start = p.rest[2].wrapping_add(steps(&p, matrix).0);
        for (line, i) in
            (0..panels * width).flat_map(|line| (0..steps_of_k * 4).map(move |i| (line, i)))
        {
            let from = start
                .wrapping_add(line.min(edge - 1).wrapping_mul(p.strides[0]))
                .wrapping_add(i.wrapping_mul(p.strides[1]));
            let value = if i < k {
                float(call, 0, from as usize)
            } else {
                0.0
            };
            let first = matrix * panels * steps_of_k;
            let to = packed_at(lanes.into(), k, first, line, i);
            match call.variant.dtypes[1].is_float() {
                true => call.put_f32(1, to, value),
                false => call.put_int(1, to, value as i32 as u32),
            }
        }
    }
}

/// The offsets of a matrix of the batch from the first, in A and in B.
fn steps(p: &Params, matrix: u32) -> (u32, u32) {
    let dims = [
        p.dims[0],
        p.dims[1],
        p.dims[2],
        p.dims[3],
        p.rest[0],
        u32::MAX,
    ];
    let of_a = [p.a[0], p.a[1], p.a[2], p.a[3], p.outer[0], p.outer[1]];
    let of_b = [p.b[0], p.b[1], p.b[2], p.b[3], p.outer[2], p.outer[3]];
    let (mut rest, mut a, mut b) = (matrix, 0_u32, 0_u32);
    for (dim, (of_a, of_b)) in dims.into_iter().zip(of_a.into_iter().zip(of_b)) {
        a = a.wrapping_add((rest % dim).wrapping_mul(of_a));
        b = b.wrapping_add((rest % dim).wrapping_mul(of_b));
        rest /= dim;
    }
    (a, b)
}
