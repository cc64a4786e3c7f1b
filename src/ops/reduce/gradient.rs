//! The gradients of reductions in one pass.

use super::{Fold, Lift, Lower, Op};
use crate::ops::bits::KeptMask;
use crate::ops::rows::Axes;
use crate::tensor::Tensor;
use crate::tensor::history::{Backward, Save, grads, without_gradient};
use lapidary_core::{DType, Result};

impl Tensor {
    /// The reduction, with its gradient.
    #[cold]
    #[track_caller]
    pub(super) fn reduce_recorded(
        &self,
        operation: &'static str,
        op: Op,
        folded: Axes,
        keep: bool,
    ) -> Result<Tensor> {
        let y = self.untracked().reduce(operation, op, folded, keep)?;
        if !y.dtype.is_float() {
            return Ok(y);
        }
        let shape = self.layout.shape.clone();
        let kept = folded.fold_shape(&shape, true);
        let count = folded.length(&shape) as f64;
        let saves: &[Save<'_>] = match op.fold {
            Fold::Sum if op.lift == Lift::Plain => &[],
            Fold::Product => &[Save::Operand(0)],
            Fold::Max | Fold::Min if op.lift == Lift::Plain && self.is_better_reduced() => {
                return self.reduce_extreme_recorded(operation, folded, y);
            }
            _ => &[Save::Operand(0), Save::Result],
        };
        let rule = move |b: &Backward| {
            let widen = |folded: &Tensor| folded.reshape(&kept)?.broadcast_to(&shape);
            let g = widen(&b.grad)?;
            grads![b; match (op.fold, op) {
                (Fold::Sum, Op::MEAN) => {
                    // A share of 16 bits would be rounded, or 0.
                    let g = (b.grad.cast(DType::F32)? * count.recip())?;
                    widen(&g.cast(b.grad.dtype)?)?
                }
                (Fold::Sum, Op::SUM) => g,
                (Fold::Product, _) => (g * others(&b.saved[0], folded)?)?,
                (Fold::Max | Fold::Min, _) => {
                    let (x, y) = (&b.saved[0], widen(&b.saved[1])?);
                    match op.lift {
                        Lift::Size => (share(&g, &x.abs()?.eq(&y)?, folded)? * x.sign()?)?,
                        _ => share(&g, &x.eq(&y)?, folded)?,
                    }
                }
                (Fold::Sum, _) => through_norm(op, g, &b.saved[0], &widen(&b.saved[1])?)?,
            }]
        };
        Ok(y.recorded_as(operation, &[self], saves, rule))
    }

    /// The extremes `y` of rows, with their gradient. A bit is kept of each element.
    #[track_caller]
    fn reduce_extreme_recorded(
        &self,
        operation: &'static str,
        folded: Axes,
        y: Tensor,
    ) -> Result<Tensor> {
        self.keep_less()?;
        let shape = self.layout.shape.clone();
        let kept = folded.fold_shape(&shape, true);
        let wide = y.reshape(&kept)?.broadcast_to(&shape)?;
        let mask = KeptMask::new(&self.untracked().eq(&wide)?)?;
        let of_mask = mask.shape();
        let rule = move |b: &Backward| {
            let g = b.grad.reshape(&kept)?.broadcast_to(&shape)?;
            grads![b; share(&g, &of_mask.mask(&b.saved[0])?, folded)?]
        };
        Ok(y.recorded_as(operation, &[self], &[mask.save()], rule))
    }
}

/// The extremes of a row share its gradient evenly. A row with a NaN has none, so its gradients are
/// NaN: `0 / 0`.
#[track_caller]
fn share(g: &Tensor, is_extreme: &Tensor, folded: Axes) -> Result<Tensor> {
    let axes: Vec<isize> = (0..g.rank())
        .filter(|&axis| folded.contains(axis))
        .map(|axis| axis as isize)
        .collect();
    // The largest f16 is less than the extremes that a row may have.
    let count = is_extreme.cast(DType::F32)?.sum_keepdim(&axes)?;
    let of_extremes = g.masked_fill(&is_extreme.logical_not()?, 0.0)?;
    (of_extremes.cast(DType::F32)? / count)?.cast(g.dtype)
}

/// For each element the product of all others of its row, also where some are 0.
#[track_caller]
fn others(x: &Tensor, folded: Axes) -> Result<Tensor> {
    let (inner, outer): (Vec<usize>, Vec<usize>) =
        (0..x.rank()).partition(|&axis| folded.contains(axis));
    let order: Vec<isize> = outer
        .iter()
        .chain(&inner)
        .map(|&axis| axis as isize)
        .collect();
    let rows: usize = outer.iter().map(|&axis| x.shape()[axis]).product();
    let ordered = x.permute(&order)?;
    let flat = ordered.reshape(&[rows, folded.length(x.shape())])?;
    let before = flat.before()?;
    let after = flat.flip(&[1])?.before()?.flip(&[1])?;
    let products = (before * after)?.reshape(ordered.shape())?;
    let mut back = vec![0; x.rank()];
    for (place, &axis) in order.iter().enumerate() {
        back[axis as usize] = place as isize;
    }
    products.permute(&back)
}

impl Tensor {
    /// The product of all elements of the row before each one.
    #[track_caller]
    fn before(&self) -> Result<Tensor> {
        let [rows, count] = [self.shape()[0], self.shape()[1]];
        if count == 0 {
            return Ok(self.clone());
        }
        let ones = self
            .untracked()
            .narrow(1, 0, 1)?
            .ones_like()?
            .reshape(&[rows, 1])?;
        let shifted = Tensor::concat(&[&ones, &self.narrow(1, 0, count - 1)?], 1)?;
        shifted.cumprod(1)
    }
}

/// The gradient of a norm `y` of rows of `x`.
#[track_caller]
fn through_norm(op: Op, g: Tensor, x: &Tensor, y: &Tensor) -> Result<Tensor> {
    match op {
        Op::SUM_SIZES => g * x.sign()?,
        Op::SUM_SQUARES => (g * x)? * 2.0,
        // A row of zeros has the gradient 0.
        Op::EUCLIDEAN => (g * (x / y)?)?.masked_fill(&y.eq(0.0)?, 0.0),
        // The number is the order of the norm. Powers of small elements may be 0, and so is `y`.
        Op {
            lift: Lift::Power,
            lower: Lower::PowerRoot,
            number,
            ..
        } => {
            let ratio = (x.abs()? / y)?.pow(number - 1.0)?;
            let is_zero = x.eq(0.0)?.logical_or(&y.eq(0.0)?)?;
            (g * (x.sign()? * ratio)?)?.masked_fill(&is_zero, 0.0)
        }
        _ => Err(without_gradient("reduction")),
    }
}
