//! Running logarithms of sums of exponentials, composed of those of two numbers.
//!
//! A running maximum cannot be subtracted once for all elements, as in
//! [`logsumexp`](Tensor::logsumexp): after a large element the earlier ones would be lost. So
//! neighbours are added in pairs, half as many pairs are scanned, and the elements between follow.

use crate::ops::normalize::check_float;
use crate::tensor::Tensor;
use crate::tensor::history::{Backward, Save, grads};
use crate::tensor::layout::axis;
use lapidary_core::internal::MadeFor;
use lapidary_core::{DType, Result};

const OPERATION: &str = "logcumsumexp";

impl Tensor {
    /// The logarithm of the running sum of the exponentials along `axis`, for floats, without
    /// intermediate overflow. It is computed in f32, and takes about `2 · n` operations of each
    /// `n` elements, in `5 · log₂ n` launches.
    ///
    /// ```
    /// # fn demo(logits: &lapidary::Tensor) -> lapidary::Result<()> {
    /// let totals = logits.logcumsumexp(-1)?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Axis`](crate::Error::Axis) if there is no such axis,
    /// [`Error::DType`](crate::Error::DType) for integers and bools.
    #[track_caller]
    pub fn logcumsumexp(&self, axis: isize) -> Result<Tensor> {
        let _method = MadeFor::method("logcumsumexp");
        check_float(OPERATION, self)?;
        if let Some(x) = self.as_axis() {
            return Ok(x.logcumsumexp(axis)?.into_number());
        }
        let at = self::axis(OPERATION, axis, self.rank())? as isize;
        if self.is_tracked() {
            return recorded(self, at);
        }
        let made = running(&self.cast(DType::F32)?, at)?.cast(self.dtype)?;
        made.apart_from(self)
    }
}

/// The running logarithms of a tensor of f32.
#[track_caller]
fn running(x: &Tensor, axis: isize) -> Result<Tensor> {
    let count = x.shape()[axis as usize];
    if count < 2 || x.is_empty() {
        return Ok(x.clone());
    }
    let first = x.narrow(axis, 0, 1)?;
    let [even, odd] = [0, 1].map(|start| x.slice(axis, start, None, 2));
    let (even, odd) = (even?, odd?);
    let of_pairs = even.narrow(axis, 0, count / 2)?.logaddexp(&odd)?;
    let of_odd = running(&of_pairs, axis)?;
    let after_first = (count - 1) / 2;
    let before = of_odd.narrow(axis, 0, after_first)?;
    let of_even = before.logaddexp(&even.narrow(axis, 1, after_first)?)?;
    let result = x.zeros_like()?;
    result.narrow(axis, 0, 1)?.copy_(&first)?;
    result.slice(axis, 1, None, 2)?.copy_(&of_odd)?;
    result.slice(axis, 2, None, 2)?.copy_(&of_even)?;
    Ok(result)
}

/// The running logarithms, with their gradient.
#[cold]
#[track_caller]
fn recorded(x: &Tensor, axis: isize) -> Result<Tensor> {
    let y = x.untracked().logcumsumexp(axis)?;
    let dtype = x.dtype;
    // The exponential needs more digits than a result of 16 bits has.
    let saves = [Save::Operand(0), Save::Result];
    let saves = match dtype {
        DType::F32 => &saves[..],
        _ => &saves[..1],
    };
    let rule = move |b: &Backward| {
        let x = b.saved[0].cast(DType::F32)?;
        let y = match b.saved.get(1) {
            Some(y) => y.clone(),
            None => x.logcumsumexp(axis)?,
        };
        let g = b.grad.cast(DType::F32)?;
        let sizes = g.abs()?.log()?;
        // Element k is in the sums from its own place on, each with the share exp(x[k] - y[j]).
        // These shares may be tiny, so the sums are of logarithms, of either sign.
        let part = |is_other_sign: &Tensor| {
            let logs = (sizes.masked_fill(is_other_sign, f32::MIN)? - &y)?;
            let sums = logs.flip(&[axis])?.logcumsumexp(axis)?.flip(&[axis])?;
            (sums + &x)?.exp()
        };
        grads![b; (part(&g.le(0)?)? - part(&g.ge(0)?)?)?.cast(dtype)?]
    };
    Ok(y.recorded_as(OPERATION, &[x], saves, rule))
}
