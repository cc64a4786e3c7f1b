//! Writes or folds elements at indices: the kernel and its launch. The methods are in
//! `scatter/methods.rs` and `scatter/reduce.rs`.
//!
//! The indices are sorted, and each element of the result searches for those that name it. So the
//! results are the same in every run and on every adapter, and nothing is written out of bounds.

mod gradient;
mod long;
mod methods;
mod reduce;

#[cfg(any(test, feature = "sim"))]
pub(super) mod reference;

use std::borrow::Cow;

use bytemuck::{Pod, Zeroable};

use super::launch::by_vec4s;
use super::scatter_into::InPlace;
use super::sort::sorted;
use super::text::{Text, nan_key};
use crate::tensor::Tensor;
use lapidary_core::internal::{Kernel, Operand, Variant};
use lapidary_core::{DType, Result, adapter::AdapterKind};

pub use reduce::ScatterReduce;

const WGSL: &str = include_str!("../../shaders/scatter.wgsl");

/// `y` = `x` with elements of `s` at the keys `k`, whose places are `o`.
static SCATTER: Kernel = Kernel {
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
pub(super) struct Params {
    pub(super) elements: u32,
    pub(super) size: u32,
    pub(super) after: u32,
    pub(super) indices: u32,
    pub(super) x_offset: u32,
    pub(super) s_offset: u32,
    pub(super) shared_indices: u32,
    pub(super) sign: u32,
}

/// Most sources that are folded into one element in one launch on a software adapter. llvmpipe
/// leaves the loops of an invocation after 65,535 iterations in all, and an invocation folds into
/// four elements.
pub(super) const LONGEST_RUN_ON_CPU: usize = 15 << 10;

/// How the sources that name one element are combined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum How {
    /// The last one wins.
    Write,
    Sum,
    Product,
    Max,
    Min,
    Mean,
}

/// How an element is computed from the old element and the sources that name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Settle {
    pub(super) how: How,
    /// Excludes the old element from the fold.
    pub(super) is_alone: bool,
}

/// Bit of a variant's code, after those of the fold.
const ALONE: u64 = 1 << 8;

impl Settle {
    pub(super) const WRITE: Settle = Settle::with(How::Write);
    pub(super) const ADD: Settle = Settle::with(How::Sum);

    /// Adds with `accumulate`, else writes.
    pub(super) fn putting(accumulate: bool) -> Self {
        if accumulate { Self::ADD } else { Self::WRITE }
    }

    /// Folds with the old element.
    const fn with(how: How) -> Self {
        Settle {
            how,
            is_alone: false,
        }
    }

    pub(super) fn code(self) -> u64 {
        self.how as u64 | if self.is_alone { ALONE } else { 0 }
    }

    pub(super) fn from_code(code: u64) -> Self {
        let how = match code & 7 {
            0 => How::Write,
            1 => How::Sum,
            2 => How::Product,
            3 => How::Max,
            4 => How::Min,
            _ => How::Mean,
        };
        Settle {
            how,
            is_alone: code & ALONE != 0,
        }
    }
}

/// The first elements of `x` along every axis.
fn first(x: &Tensor, shape: &[usize]) -> Result<Tensor> {
    let mut layout = x.layout.clone();
    layout.shape = shape.into();
    Ok(x.view(layout))
}

/// As `InPlace::run`, but returns a copy.
#[track_caller]
pub(super) fn put(into: &InPlace<'_>) -> Result<Tensor> {
    place(into.x, into.at, into.indices, into.src, into.settle)
}

/// `x` with the slices of `src` at the indices. These have the shape of `src`, or are one line for
/// all.
#[track_caller]
fn place(x: &Tensor, at: usize, indices: &Tensor, src: &Tensor, settle: Settle) -> Result<Tensor> {
    if src.layout.len() == 0 || x.layout.len() == 0 {
        return x.copy();
    }
    if x.is_tracked() || src.is_tracked() {
        return gradient::place_recorded(x, at, indices, src, settle);
    }
    let is_shared = indices.layout.rank() != x.layout.rank() || x.layout.rank() == 1;
    let along = if is_shared { 0 } else { at };
    let count = indices.layout.shape[along];
    let is_cpu = x.engine.caps().kind == AdapterKind::Cpu;
    match is_cpu && settle.how != How::Write && count > LONGEST_RUN_ON_CPU {
        true => long::place(x, at, (indices, along), src, settle),
        false => place_at_once(x, at, (indices, along), src, settle),
    }
}

/// The same in one launch. `along` is the axis of the indices themselves.
#[track_caller]
fn place_at_once(
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
pub(super) fn fold_of(settle: Settle, dtype: DType) -> Text {
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
