//! Folds more sources into an element than a software adapter can in one launch: some at a time.

use super::kernel::place_at_once;
use super::settle::{How, Settle};
use crate::ops::fill::full;
use crate::ops::scalar::Scalar;
use crate::ops::scatter_into::InPlace;
use crate::tensor::Tensor;
use lapidary_core::{DType, Result};

/// Folds into a copy in 32 bits, and rounds once.
#[track_caller]
pub(super) fn place(
    x: &Tensor,
    at: usize,
    indices: (&Tensor, usize),
    src: &Tensor,
    settle: Settle,
) -> Result<Tensor> {
    let dtype = match x.dtype {
        DType::F32 | DType::F16 | DType::Bf16 => DType::F32,
        DType::I32 | DType::I8 => DType::I32,
        DType::U32 | DType::U8 | DType::Bool => DType::U32,
    };
    // For bools, the sum is whether any is true, and the product whether all are.
    let how = match settle.how {
        How::Sum if x.dtype == DType::Bool => How::Max,
        How::Product if x.dtype == DType::Bool => How::Min,
        how => how,
    };
    let (wide, src) = (x.cast(dtype)?, src.cast(dtype)?);
    let constant =
        |number: Scalar, shape: &[usize]| full(&x.engine, &[], number, dtype)?.broadcast_to(shape);
    let start = match settle.is_alone {
        false => wide,
        // Elements that a source names start at the neutral number.
        true => {
            let none = constant(nothing(how, dtype), src.shape())?;
            place_at_once(&wide, at, indices, &none, Settle::WRITE)?
        }
    };
    if how != How::Mean {
        return into_copy(&start, at, indices.0, &src, how)?.cast(x.dtype);
    }
    let own = if settle.is_alone { 0 } else { 1 };
    let own = constant(own.into(), x.shape())?;
    let sum = into_copy(&start, at, indices.0, &src, How::Sum)?;
    let one = constant(1.into(), src.shape())?;
    let count = into_copy(&own, at, indices.0, &one, How::Sum)?.maximum(1)?;
    let mean = match dtype.is_float() {
        true => sum.div(&count)?,
        false => sum.floor_divide(&count)?,
    };
    mean.cast(x.dtype)
}

/// The neutral number of a fold.
fn nothing(how: How, dtype: DType) -> Scalar {
    let (lowest, highest) = match dtype {
        DType::F32 => (f64::NEG_INFINITY.into(), f64::INFINITY.into()),
        DType::I32 => (i32::MIN.into(), i32::MAX.into()),
        _ => (0.into(), u32::MAX.into()),
    };
    match how {
        How::Max => lowest,
        How::Min => highest,
        How::Product => 1.into(),
        How::Write | How::Sum | How::Mean => 0.into(),
    }
}

/// A copy of `x` into which the sources are folded. In place, a part of the sources takes no time
/// for the elements that it does not name.
#[track_caller]
fn into_copy(x: &Tensor, at: usize, indices: &Tensor, src: &Tensor, how: How) -> Result<Tensor> {
    let copy = x.copy()?;
    InPlace {
        x: &copy,
        at,
        indices,
        src,
        settle: Settle::with(how),
    }
    .run()?;
    Ok(copy)
}
