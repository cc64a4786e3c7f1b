//! Checks of a rank's own tensor, before it speaks to others.

use lapidary::devices::Reduce;
use lapidary::devices::internal::{self, Accumulator};
use lapidary::{DType, Error, Tensor};
use lapidary_core::internal::Filling;

use crate::error::Result;

/// The tensor, row-major and without gaps.
#[track_caller]
pub(crate) fn check(operation: &'static str, tensor: &Tensor) -> Result<Tensor> {
    if tensor.has_grad() {
        return Err(crate::Error::Lapidary(Error::Gradient {
            operation,
            reason: "no backward crosses ranks: give `detach()`".into(),
        }));
    }
    internal::check_reads(tensor)?;
    Ok(tensor.contiguous()?)
}

pub(crate) fn check_sum(operation: &'static str, dtype: DType, reduce: Reduce) -> Result<()> {
    if Accumulator::sums(dtype) && (reduce == Reduce::Sum || dtype.is_float()) {
        return Ok(());
    }
    let expected = match reduce {
        Reduce::Sum => "f32, f16, bf16, i32 or u32",
        Reduce::Mean => "f32, f16 or bf16",
    };
    Err(crate::Error::Lapidary(Error::DType {
        operation,
        expected: expected.into(),
        got: dtype,
        hint: "`cast` it",
        at: String::new(),
    }))
}

/// The axis counted from the first, which the caller may have counted from the last.
pub(crate) fn axis_at(operation: &'static str, tensor: &Tensor, axis: isize) -> Result<usize> {
    let rank = tensor.rank();
    let index = match axis < 0 {
        true => axis.saturating_add(rank as isize),
        false => axis,
    };
    let index = usize::try_from(index).ok().filter(|index| *index < rank);
    index.ok_or(crate::Error::Lapidary(Error::Axis {
        operation,
        axis,
        rank,
        at: String::new(),
    }))
}

/// Memory for a result on the device of a tensor. Its tag names the caller.
#[track_caller]
pub(crate) fn room(like: &Tensor, size_bytes: u64) -> Result<Filling> {
    Ok(internal::room(like, size_bytes)?)
}

/// Type and shape, for people.
pub(crate) fn kind(tensor: &Tensor) -> String {
    format!("{} {:?}", tensor.dtype(), tensor.shape())
}
