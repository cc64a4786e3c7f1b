//! Writes or folds elements at indices. `methods` and `reduce` have the methods, `settle` says how
//! an element is folded, and `kernel` does it.
//!
//! The indices are sorted, and each element of the result searches for those that name it. So the
//! results are the same in every run and on every adapter, and nothing is written out of bounds.

mod gradient;
mod kernel;
mod long;
mod methods;
mod reduce;
mod settle;

#[cfg(any(test, feature = "sim"))]
pub(super) mod reference;

use super::scatter_into::InPlace;
use crate::tensor::Tensor;
use kernel::place_at_once;
pub(super) use kernel::{LONGEST_RUN_ON_CPU, Params, fold_of};
use lapidary_core::{Result, adapter::AdapterKind};
pub use reduce::ScatterReduce;
pub(super) use settle::{How, Settle};

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

/// A copy of `x`, to which nothing of `src` goes.
#[track_caller]
fn place_nothing(x: &Tensor, src: &Tensor) -> Result<Tensor> {
    match x.is_tracked() || src.is_tracked() {
        true => gradient::place_nothing(x, src),
        false => x.copy(),
    }
}

/// `x` with the slices of `src` at the indices. These have the shape of `src`, or are one line for
/// all.
#[track_caller]
fn place(x: &Tensor, at: usize, indices: &Tensor, src: &Tensor, settle: Settle) -> Result<Tensor> {
    if src.layout.len() == 0 || x.layout.len() == 0 {
        return place_nothing(x, src);
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
