//! Draws indices by weights.

use super::normalize::check_float;
use super::random::rand_uniform;
use crate::tensor::Tensor;
use crate::tensor::called::Called;
use lapidary_core::internal::MadeFor;
use lapidary_core::{DType, Error, Result};

const OPERATION: &str = "multinomial";

/// The index if nothing is left to draw. No axis has it.
const NONE: u32 = u32::MAX;

impl Tensor {
    /// `count` indices of the last axis, drawn with probabilities proportional to the weights, as
    /// PyTorch's `multinomial`. `self` has shape `[weights]` or `[rows, weights]`. The result is
    /// `u32`, in shape `[count]` or `[rows, count]`. The weights need not sum to 1, but must be
    /// finite and not negative. Without `replacement`, no index of a row is drawn twice.
    ///
    /// The same seed draws the same indices on every device, unless a weight is within rounding of
    /// the drawn number. An index of weight 0 is never drawn. The device cannot report that nothing
    /// is left to draw: then the index is `u32::MAX`, which no axis has. With replacement, indices
    /// less probable than 2⁻²⁴ may never be drawn.
    ///
    /// ```
    /// # use lapidary::Tensor;
    /// # fn demo(logits: &Tensor) -> lapidary::Result<()> {
    /// let token = logits.softmax(-1)?.multinomial(1, false, 7)?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::DType`] unless the weights are floats. [`Error::Shape`] unless there are one or two
    /// dimensions, or if fewer weights than indices are given without replacement.
    /// [`Error::NeverFits`] if the operands are too large.
    #[track_caller]
    pub fn multinomial(&self, count: usize, replacement: bool, seed: u64) -> Result<Tensor> {
        let _method = MadeFor::method("multinomial");
        check_float(OPERATION, self)?;
        let refuse = |reason| {
            Err(Error::Shape {
                operation: OPERATION,
                reason,
            })
        };
        let shape = self.shape();
        let (1..=2, Some(&weights)) = (shape.len(), shape.last()) else {
            return refuse(format!("{shape:?} is not [weights] or [rows, weights]")).located();
        };
        if count > weights && !replacement {
            return refuse(format!("{count} of {weights} weights without replacement")).located();
        }
        if weights == 0 && count > 0 {
            return refuse(format!("{count} of no weights")).located();
        }
        let x = self.untracked().cast(DType::F32)?;
        match replacement {
            true => with_replacement(&x, count, seed),
            false => without_replacement(&x, count, seed),
        }
    }
}

/// Searches uniform numbers among the running sums of weights.
#[track_caller]
fn with_replacement(weights: &Tensor, count: usize, seed: u64) -> Result<Tensor> {
    let last = weights.shape()[weights.rank() - 1];
    let mut shape = weights.shape().to_vec();
    shape[weights.rank() - 1] = count;
    if shape.contains(&0) {
        return Tensor::output(&weights.engine, &shape, DType::U32);
    }
    let sums = weights.cumsum(-1)?;
    let drawn = rand_uniform(&weights.engine, &shape, 0.0, 1.0, seed, DType::F32)?;
    let drawn = drawn.mul(&sums.narrow(-1, last - 1, 1)?)?;
    let found = sums.search_sorted(&drawn, true)?;
    let found = found.minimum(last as u32 - 1)?;
    // Sums are rounded in blocks, so one may rise at a weight of 0. Then the last index before it
    // with a weight counts. It is found by its number among those with a weight.
    let numbers = weights.gt(0)?.cumsum(-1)?;
    let number = numbers.gather(-1, &found)?;
    let found = numbers.search_sorted(&number, false)?;
    number.gt(0)?.where_(&found, NONE)
}

/// Divides each weight by its own exponentially distributed number. The largest quotients are
/// distributed as successive draws (Efraimidis and Spirakis, 2006).
#[track_caller]
fn without_replacement(weights: &Tensor, count: usize, seed: u64) -> Result<Tensor> {
    // One draw has 24 bits, too few if millions of weights compete for the largest quotient.
    let fine = weights.rand_uniform_like(0.0, 1.0, seed ^ 0x9e37_79b9_7f4a_7c15)?;
    let evenly = weights.rand_uniform_like(0.0, 1.0, seed)?;
    let evenly = evenly.add(&(fine * 2_f32.powi(-24))?)?;
    let evenly = evenly.clamp(2_f32.powi(-50), 1.0 - 2_f32.powi(-24))?;
    let exponential = evenly.neg()?.log1p()?.neg()?;
    let (keys, indices) = weights.div(&exponential)?.top_k(count, -1, true)?;
    keys.gt(0)?.where_(&indices, NONE)
}
