//! The gradients of scans.

use super::{running, running_extreme};
use crate::ops::reduce::{Fold, Op};
use crate::tensor::Tensor;
use crate::tensor::history::{Save, grads, without_gradient};
use lapidary_core::{DType, Result};

/// The running sum or product of a tensor with axes, with its gradient.
#[cold]
#[track_caller]
pub(super) fn running_recorded(
    x: &Tensor,
    operation: &'static str,
    at: usize,
    op: Op,
) -> Result<Tensor> {
    let axis = at as isize;
    let y = running(&x.untracked(), operation, axis, op)?;
    let saves: &[Save<'_>] = match op.fold {
        Fold::Product => &[Save::Operand(0)],
        Fold::Sum => &[],
        Fold::Max | Fold::Min => return Err(without_gradient(operation)),
    };
    Ok(y.recorded_as(operation, &[x], saves, move |b| {
        grads![b; match b.saved.first() {
            // Each element is in the sums from its own place on.
            None => b.grad.flip(&[axis])?.cumsum(axis)?.flip(&[axis])?,
            Some(x) => through_products(&b.grad, x, at)?,
        }]
    }))
}

/// The running extreme of a tensor with axes and its places, with the gradient of the former.
#[cold]
#[track_caller]
pub(super) fn running_extreme_recorded(
    x: &Tensor,
    operation: &'static str,
    at: usize,
    op: Op,
) -> Result<(Tensor, Tensor)> {
    let axis = at as isize;
    let (values, places) = running_extreme(&x.untracked(), operation, axis, op)?;
    let saves = [Save::Other(&places)];
    let values = values.recorded_as(
        operation,
        &[x],
        &saves,
        move |b| grads![b; b.grad.zeros_like()?.scatter_add(axis, &b.saved[0], &b.grad)?],
    );
    Ok((values, places))
}

/// The gradient of running products, also where elements are 0.
///
/// Element `k` is a factor of the products from its own on. So its gradient is the product of all
/// before it times the sum over `j` from `k` on of `g[j] · x[k + 1] · … · x[j]`. These sums double
/// their length in each step.
#[track_caller]
fn through_products(g: &Tensor, x: &Tensor, at: usize) -> Result<Tensor> {
    if x.is_empty() {
        return Ok(g.clone());
    }
    let (axis, count, dtype) = (at as isize, x.shape()[at], x.dtype);
    let (g, x) = (g.cast(DType::F32)?, x.cast(DType::F32)?);
    let one = x.narrow(axis, 0, 1)?.ones_like()?;
    let before = Tensor::concat(&[&one, &x.narrow(axis, 0, count - 1)?], axis)?.cumprod(axis)?;
    // Sums of at most `length` terms, and the factors of the next sums: products of `length`.
    let (mut sums, mut factors) = (g, x.narrow(axis, 1, count - 1)?);
    let mut length = 1;
    while length < count {
        let left = count - length;
        let further = (&factors * sums.narrow(axis, length, left)?)?;
        let longer = (sums.narrow(axis, 0, left)? + further)?;
        sums = Tensor::concat(&[&longer, &sums.narrow(axis, left, length)?], axis)?;
        let next = left.saturating_sub(length);
        factors = (factors.narrow(axis, 0, next)? * factors.narrow(axis, left - next, next)?)?;
        length *= 2;
    }
    (sums * before)?.cast(dtype)
}
