//! The gradient of a broadcast operand: the sum over all that one of its elements became.

use crate::tensor::Tensor;
use lapidary_core::Result;

impl Tensor {
    /// Sums to a shape that broadcasts to that of `self`.
    #[track_caller]
    pub(super) fn sum_to(&self, shape: &[usize]) -> Result<Tensor> {
        if self.shape() == shape {
            return Ok(self.clone());
        }
        let more = self.rank() - shape.len();
        let is_summed = |axis: &usize| *axis < more || shape[axis - more] != self.shape()[*axis];
        let axes: Vec<isize> = (0..self.rank())
            .filter(is_summed)
            .map(|axis| axis as isize)
            .collect();
        self.sum_keepdim(&axes)?.reshape(shape)
    }
}
