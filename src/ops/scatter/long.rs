//! Folds more sources into an element than a software adapter can in one launch: some at a time.

use super::kernel::{LONGEST_RUN_ON_CPU, place_at_once};
use super::settle::{How, Settle};
use crate::ops::fill::full;
use crate::ops::scalar::Scalar;
use crate::tensor::Tensor;
use lapidary_core::{DType, Result};

/// Folds in 32 bits, and rounds once.
#[track_caller]
pub(super) fn place(
    x: &Tensor,
    at: usize,
    indices: (&Tensor, usize),
    src: &Tensor,
    settle: Settle,
) -> Result<Tensor> {
    let dtype = match x.dtype {
        _ if settle.how != How::Mean && !x.dtype.is_float() => x.dtype,
        DType::F32 | DType::F16 | DType::Bf16 => DType::F32,
        DType::I32 | DType::I8 => DType::I32,
        _ => DType::U32,
    };
    let (wide, src) = (x.cast(dtype)?, src.cast(dtype)?);
    let constant =
        |number: Scalar, shape: &[usize]| full(&x.engine, &[], number, dtype)?.broadcast_to(shape);
    let start = match settle.is_alone {
        false => wide,
        // Elements that a source names start at the neutral number.
        true => {
            let none = constant(nothing(settle.how, dtype), src.shape())?;
            place_at_once(&wide, at, indices, &none, Settle::WRITE)?
        }
    };
    if settle.how != How::Mean {
        return some_at_a_time(&start, at, indices, &src, settle.how)?.cast(x.dtype);
    }
    let own = if settle.is_alone { 0 } else { 1 };
    let own = constant(own.into(), x.shape())?;
    let sum = some_at_a_time(&start, at, indices, &src, How::Sum)?;
    let one = constant(1.into(), src.shape())?;
    let count = some_at_a_time(&own, at, indices, &one, How::Sum)?.maximum_scalar(1)?;
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
        DType::I8 => (i32::from(i8::MIN).into(), i32::from(i8::MAX).into()),
        DType::U8 => (0.into(), 255.into()),
        DType::Bool => (false.into(), true.into()),
        _ => (0.into(), u32::MAX.into()),
    };
    match how {
        _ if dtype == DType::Bool && how != How::Max && how != How::Min => {
            (how == How::Product).into()
        }
        How::Max => lowest,
        How::Min => highest,
        How::Product => 1.into(),
        How::Write | How::Sum | How::Mean => 0.into(),
    }
}

#[track_caller]
fn some_at_a_time(
    x: &Tensor,
    at: usize,
    (indices, along): (&Tensor, usize),
    src: &Tensor,
    how: How,
) -> Result<Tensor> {
    let count = indices.layout.shape[along];
    let mut folded = x.clone();
    for start in (0..count).step_by(LONGEST_RUN_ON_CPU) {
        let len = LONGEST_RUN_ON_CPU.min(count - start);
        let some = indices.narrow(along as isize, start, len)?;
        let src = src.narrow(at as isize, start, len)?;
        folded = place_at_once(&folded, at, (&some, along), &src, Settle::with(how))?;
    }
    Ok(folded)
}
