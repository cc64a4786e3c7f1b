//! The gradients of a concatenation: the parts of the result's.

use crate::tensor::Tensor;
use lapidary_core::Result;

/// The concatenation, with its gradients.
#[cold]
#[track_caller]
pub(super) fn concat_recorded(tensors: &[&Tensor], at: usize) -> Result<Tensor> {
    let detached: Vec<Tensor> = tensors.iter().map(|tensor| tensor.untracked()).collect();
    let y = Tensor::concat(&detached.iter().collect::<Vec<_>>(), at as isize)?;
    let sizes: Vec<usize> = tensors.iter().map(|part| part.shape()[at]).collect();
    Ok(y.recorded_as("concat", tensors, &[], move |b| {
        let mut begin = 0;
        let part = |&size: &usize| {
            begin += size;
            let part = b.grad.narrow(at as isize, begin - size, size)?;
            Ok(Some(part))
        };
        sizes.iter().map(part).collect()
    }))
}
