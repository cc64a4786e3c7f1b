//! The gradients of variances and of logarithms of sums of exponentials.

use super::Lower;
use crate::ops::rows::Axes;
use crate::tensor::Tensor;
use crate::tensor::history::{Backward, Save, grads};
use lapidary_core::{DType, Result};

impl Tensor {
    /// The variance or its root, with its gradient.
    #[cold]
    #[track_caller]
    pub(super) fn spread_recorded(
        &self,
        operation: &'static str,
        folded: Axes,
        correction: f64,
        lower: Lower,
        keep: bool,
    ) -> Result<Tensor> {
        let y = (self.untracked()).spread(operation, folded, correction.into(), lower, keep)?;
        let (shape, dtype) = (&self.layout.shape, self.dtype);
        let kept = folded.fold_shape(shape, true);
        let axes = list(folded, shape.len());
        let divisor = (folded.length(shape) as f64 - correction).max(0.0);
        let is_root = lower == Lower::DivideRoot;
        let saves = [Save::Operand(0), Save::Result];
        let saves = if is_root { &saves[..] } else { &saves[..1] };
        let rule = move |b: &Backward| {
            let away = b.saved[0].centred(&axes)?;
            let mut g = b.grad.reshape(&kept)?.cast(DType::F32)?;
            if is_root {
                let root = b.saved[1].reshape(&kept)?.cast(DType::F32)?;
                // Where all elements are equal, the gradient is 0.
                g = ((g * 0.5)? / &root)?.masked_fill(&root.eq(0.0)?, 0.0)?;
            }
            grads![b; (away * (g * (2.0 / divisor))?)?.cast(dtype)?]
        };
        Ok(y.recorded_as(operation, &[self], saves, rule))
    }

    /// The logarithm of a sum of exponentials, with its gradient.
    #[cold]
    #[track_caller]
    pub(super) fn log_sum_exp_recorded(
        &self,
        operation: &'static str,
        folded: Axes,
        keep: bool,
    ) -> Result<Tensor> {
        let y = self.untracked().log_sum_exp(folded, keep)?;
        let (shape, dtype) = (&self.layout.shape, self.dtype);
        let kept = folded.fold_shape(shape, true);
        let axes = list(folded, shape.len());
        let saves = [Save::Operand(0), Save::Result];
        // The exponential needs more digits than a result of 16 bits has.
        let saves = if dtype == DType::F32 {
            &saves[..]
        } else {
            &saves[..1]
        };
        let rule = move |b: &Backward| {
            let x = b.saved[0].cast(DType::F32)?;
            let y = match b.saved.get(1) {
                Some(y) => y.reshape(&kept)?,
                None => x.logsumexp_keepdim(&axes)?,
            };
            let g = b.grad.reshape(&kept)?.cast(DType::F32)?;
            grads![b; (g * (x - y)?.exp()?)?.cast(dtype)?]
        };
        Ok(y.recorded_as(operation, &[self], saves, rule))
    }
}

/// The axes as reductions name them.
fn list(folded: Axes, rank: usize) -> Vec<isize> {
    (0..rank)
        .filter(|&axis| folded.contains(axis))
        .map(|axis| axis as isize)
        .collect()
}
