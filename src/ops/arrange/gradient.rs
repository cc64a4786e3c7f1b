//! The gradient of shifted elements: it is shifted back.

use crate::tensor::Tensor;
use crate::tensor::history::grads;
use lapidary_core::Result;

impl Tensor {
    /// [`roll`](Tensor::roll), with its gradient.
    #[cold]
    #[track_caller]
    pub(super) fn roll_recorded(&self, shifts: &[isize], axes: &[isize]) -> Result<Tensor> {
        let y = self.untracked().roll(shifts, axes)?;
        // No number of elements is as large as the least shift, which has no negative.
        let back: Vec<isize> = shifts.iter().map(|shift| shift.saturating_neg()).collect();
        let axes = axes.to_vec();
        Ok(y.recorded_as(
            "roll",
            &[self],
            &[],
            move |b| grads![b; b.grad.roll(&back, &axes)?],
        ))
    }
}
