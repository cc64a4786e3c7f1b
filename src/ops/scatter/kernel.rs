//! The kernel of writes and folds at indices, and its launch.

use std::borrow::Cow;

use bytemuck::{Pod, Zeroable};

#[cfg(any(test, feature = "sim"))]
use super::reference;
use super::settle::{How, Settle};
use crate::ops::launch::by_vec4s;
use crate::ops::sort::sorted;
use crate::ops::text::{Text, nan_key};
use crate::tensor::Tensor;
use lapidary_core::internal::{BuiltInKernel, Operand, Variant};
use lapidary_core::{DType, Result};

const WGSL: &str = include_str!("../../../shaders/scatter.wgsl");

/// `y` = `x` with elements of `s` at the keys `k`, whose places are `o`.
pub(super) static SCATTER: BuiltInKernel = BuiltInKernel {
    name: "scatter_indexed",
    operands: &[
        Operand::read("x"),
        Operand::read("k"),
        Operand::read("o"),
        Operand::read("s"),
        Operand::write("y"),
    ],
    text,
    reference: reference!(reference::run),
};

/// `struct Params` of `shaders/scatter.wgsl`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub(in crate::ops) struct Params {
    pub(in crate::ops) elements: u32,
    pub(in crate::ops) size: u32,
    pub(in crate::ops) after: u32,
    pub(in crate::ops) indices: u32,
    pub(in crate::ops) x_offset: u32,
    pub(in crate::ops) s_offset: u32,
    pub(in crate::ops) shared_indices: u32,
    pub(in crate::ops) sign: u32,
}

/// Most sources that are folded into one element in one launch on a software adapter. An invocation
/// folds into four elements, in loops of at most [`MOST_TESTS`](crate::ops::long::MOST_TESTS)
/// together.
pub(in crate::ops) const LONGEST_RUN_ON_CPU: usize = 15 << 10;

/// `x` with the slices of `src` at the indices, in one launch. `along` is the axis of the indices
/// themselves.
#[track_caller]
pub(super) fn place_at_once(
    x: &Tensor,
    at: usize,
    (indices, along): (&Tensor, usize),
    src: &Tensor,
    settle: Settle,
) -> Result<Tensor> {
    let (engine, shape) = (&x.engine, &x.layout.shape);
    let is_shared = indices.layout.rank() != x.layout.rank() || x.layout.rank() == 1;
    let count = indices.layout.shape[along];
    let (keys, order) = sorted(indices, along, false, count)?;
    let (x, src) = (x.contiguous()?, src.contiguous()?);
    let result = Tensor::output(engine, shape, x.dtype)?;
    let params = Params {
        elements: result.len() as u32,
        size: shape[at] as u32,
        after: shape[at + 1..].iter().product::<usize>() as u32,
        indices: count as u32,
        x_offset: x.layout.offset as u32,
        s_offset: src.layout.offset as u32,
        shared_indices: u32::from(is_shared),
        sign: u32::from(indices.dtype == DType::I32) << 31,
    };
    let operands = [&x, &keys, &order, &src];
    by_vec4s(&SCATTER, settle.code(), operands, &result, &params)?;
    Ok(result)
}

/// The WGSL of a variant.
fn text(variant: &Variant) -> Cow<'static, str> {
    let settle = Settle::from_code(variant.code);
    let write: &[&str] = if settle.how == How::Write {
        &["write"]
    } else {
        &[]
    };
    let text = fold_of(settle, variant.dtypes[0]).sections(WGSL, &["whole"]);
    text.sections(WGSL, write).done()
}

/// The parameters and, unless sources are only written, the `settle` that folds them.
pub(in crate::ops) fn fold_of(settle: Settle, dtype: DType) -> Text {
    let Settle { how, is_alone } = settle;
    let (from, is_bool) = (dtype.wgsl(), dtype == DType::Bool);
    let fold = match how {
        How::Write => None,
        // For bools, the sum is whether any is true, and the product whether all are.
        How::Sum if is_bool => Some("max"),
        How::Product if is_bool => Some("min"),
        How::Sum | How::Mean => Some("sum"),
        How::Product => Some("product"),
        How::Max => Some("max"),
        How::Min => Some("min"),
    };
    let (around, accumulator) = match (how, from) {
        (How::Max | How::Min, "f32") => ("keys", "i32"),
        (How::Mean, "i32") => ("mean_signed", from),
        (How::Mean, _) => ("mean", from),
        _ => ("plain", from),
    };
    let key = nan_key(how == How::Max);
    let text = Text::new()
        .line(format_args!("alias T = {from};\nalias A = {accumulator};"))
        .line(format_args!(
            "const ALONE: bool = {is_alone};\nconst NAN_KEY: i32 = {key};"
        ))
        .sections(WGSL, &["params"]);
    match fold {
        Some(fold) => text.sections(WGSL, &["fold", fold, around]),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::super::settle::ALONE;
    use super::*;
    use crate::ops::check::valid;

    #[test]
    fn every_type_gives_a_valid_shader() {
        for x in DType::ALL {
            for how in 0..6 {
                for code in [how, how | ALONE] {
                    valid(&SCATTER, code, &[x, DType::U32, DType::U32, x, x], 0b10000);
                }
            }
        }
    }
}
