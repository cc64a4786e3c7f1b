//! Elements written, or added, in place: only those that the indices name are read and written.

use std::borrow::Cow;
use std::sync::Arc;

use bytemuck::{Pod, Zeroable};

use super::elementwise::arg;
use super::functions::push_functions;
use super::rows;
use super::scatter::{How, LONGEST_RUN_ON_CPU, Settle};
use super::sort::sorted;
use super::text::push_sections;
use crate::driver::AdapterKind;
use crate::dtype::DType;
use crate::engine::{Kernel, Launch, Operand, Variant};
use crate::error::Result;
use crate::tensor::Tensor;

const WGSL: &str = include_str!("../../shaders/scatter_into.wgsl");

/// `y` with `s` where the keys `k` say, whose places are `o`.
static SCATTER_INTO: Kernel = Kernel {
    name: "scatter_indexed_into",
    operands: &[
        Operand::read("k"),
        Operand::read("o"),
        Operand::read("s"),
        Operand::update("y"),
    ],
    text,
    #[cfg(any(test, feature = "sim"))]
    twin: super::twin::scatter_into::run,
};

/// `struct Params` of `shaders/scatter_into.wgsl`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub(super) struct Params {
    pub(super) elements: u32,
    pub(super) size: u32,
    pub(super) after: u32,
    pub(super) indices: u32,
    pub(super) y_offset: u32,
    pub(super) s_offset: u32,
    pub(super) shared_indices: u32,
    pub(super) sign: u32,
}

/// Can an invocation write an element of `x` alone, while others read the rest?
pub(super) fn suits(x: &Tensor, indices: &Tensor, src: &Tensor) -> bool {
    let is_apart = |other: &Tensor| !Arc::ptr_eq(&x.storage, &other.storage);
    x.dtype.size_bytes() == 4
        && x.layout.is_contiguous()
        && is_apart(indices)
        && is_apart(src)
        && [x, indices, src].iter().all(|operand| !operand.is_empty())
}

/// Writes the slices of `src` to `x` at the indices along an axis, or adds them: `settle` is
/// `WRITE` or `ADD`, and `suits` holds.
#[track_caller]
pub(super) fn place_into(
    x: &Tensor,
    at: usize,
    indices: &Tensor,
    src: &Tensor,
    settle: Settle,
) -> Result<()> {
    let engine = &x.engine;
    let shape = &x.layout.shape;
    let is_shared = indices.layout.rank() != x.layout.rank() || x.layout.rank() == 1;
    let along = if is_shared { 0 } else { at };
    let count = indices.layout.shape[along];
    if settle.how != How::Write
        && engine.caps().kind == AdapterKind::Cpu
        && count > LONGEST_RUN_ON_CPU
    {
        for start in (0..count).step_by(LONGEST_RUN_ON_CPU) {
            let len = LONGEST_RUN_ON_CPU.min(count - start);
            let indices = indices.narrow(along as isize, start, len)?;
            let src = src.narrow(at as isize, start, len)?;
            place_into(x, at, &indices, &src, settle)?;
        }
        return Ok(());
    }
    let (keys, order) = sorted(indices, along, false, count)?;
    let src = src.contiguous()?;
    let elements = src.layout.len();
    let params = Params {
        elements: elements as u32,
        size: shape[at] as u32,
        after: shape[at + 1..].iter().product::<usize>() as u32,
        indices: count as u32,
        y_offset: x.layout.offset as u32,
        s_offset: src.layout.offset as u32,
        shared_indices: u32::from(is_shared),
        sign: u32::from(indices.dtype == DType::I32) << 31,
    };
    let args = [&keys, &order, &src, x].map(|operand| arg(operand, false));
    let groups = rows::groups(engine.caps(), elements as u64, 64);
    engine.launch(Launch::new(
        &SCATTER_INTO,
        settle.code(),
        args,
        &params,
        groups,
    ))
}

/// The WGSL of a variant.
fn text(variant: &Variant) -> Cow<'static, str> {
    let settle = match Settle::from_code(variant.code).how {
        How::Write => "write",
        _ => "add",
    };
    let mut out = String::with_capacity(4 << 10);
    push_sections(&mut out, WGSL, &["params", settle]);
    push_functions(&mut out);
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::check::valid;

    #[test]
    fn every_type_gives_a_valid_shader() {
        for x in [DType::F32, DType::I32, DType::U32] {
            for settle in [Settle::WRITE, Settle::ADD] {
                valid(
                    &SCATTER_INTO,
                    settle.code(),
                    &[DType::U32, DType::U32, x, x],
                    0,
                );
            }
        }
    }
}
