//! The gradient of shifted elements: it is shifted back.

use crate::tensor::Tensor;
use crate::tensor::history::grads;
use crate::tensor::layout::axis;
use lapidary_core::Result;

impl Tensor {
    /// [`roll`](Tensor::roll), with its gradient.
    #[cold]
    #[track_caller]
    pub(super) fn roll_recorded(&self, shifts: &[isize], axes: &[isize]) -> Result<Tensor> {
        let y = self.untracked().roll(shifts, axes)?;
        let mut back = Vec::with_capacity(shifts.len());
        for (shift, &along) in shifts.iter().zip(axes) {
            // Less than a turn, since the least shift has no negative.
            let size = self.layout.shape[axis("roll", along, self.rank())?];
            back.push(-shift.rem_euclid(size.max(1) as isize));
        }
        let axes = axes.to_vec();
        Ok(y.recorded_as(
            "roll",
            &[self],
            &[],
            move |b| grads![b; b.grad.roll(&back, &axes)?],
        ))
    }
}
