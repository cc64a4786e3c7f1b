//! Losses of absolute differences.

use super::gradient::{Pairwise, of_sizes, of_smooth_sizes};
use super::{Reduction, check_float, reduced};
use crate::tensor::Tensor;
use crate::tensor::called::Called;
use crate::tensor::history::Backward;
use lapidary_core::internal::MadeFor;
use lapidary_core::{Error, Result};

impl Tensor {
    /// The absolute differences from `target`, for floats. Its shape broadcasts.
    ///
    /// ```
    /// # use lapidary::{Tensor, operations::Reduction};
    /// # fn demo(x: &Tensor, target: &Tensor) -> lapidary::Result<()> {
    /// let loss = x.l1_loss(target, Reduction::Mean)?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`mse_loss`](Tensor::mse_loss).
    #[track_caller]
    pub fn l1_loss(&self, target: &Tensor, reduction: Reduction) -> Result<Tensor> {
        const OPERATION: &str = "l1_loss";
        let _method = MadeFor::method(OPERATION);
        check_float(OPERATION, self)?;
        if self.is_tracked() || target.is_tracked() {
            let loss = Pairwise {
                operation: OPERATION,
                reduction,
                slopes: of_sizes,
            };
            let _line = MadeFor::caller();
            return loss.recorded(&[self, target], |x| x[0].l1_loss(&x[1], reduction));
        }
        let apart = self.sub(target).called(OPERATION)?;
        reduced(apart.abs()?, reduction)
    }

    /// The absolute differences from `target`, less `beta / 2`, where they are at least `beta`, and
    /// the squares of smaller ones, divided by `2 · beta`: no corner at 0. For floats; the target's
    /// shape broadcasts. PyTorch's default for `beta` is 1; 0 gives [`l1_loss`](Tensor::l1_loss).
    ///
    /// ```
    /// # use lapidary::{Tensor, operations::Reduction};
    /// # fn demo(x: &Tensor, target: &Tensor) -> lapidary::Result<()> {
    /// let loss = x.smooth_l1_loss(target, 1.0, Reduction::Mean)?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`mse_loss`](Tensor::mse_loss); [`Error::Option`] unless `beta` is at least 0.
    #[track_caller]
    pub fn smooth_l1_loss(
        &self,
        target: &Tensor,
        beta: f32,
        reduction: Reduction,
    ) -> Result<Tensor> {
        const OPERATION: &str = "smooth_l1_loss";
        let _method = MadeFor::method(OPERATION);
        check_float(OPERATION, self)?;
        if beta.is_nan() || beta < 0.0 {
            return Err(Error::Option {
                option: "beta",
                reason: format!("{beta} is not at least 0"),
            });
        }
        if beta == 0.0 {
            return self.l1_loss(target, reduction).called(OPERATION);
        }
        if self.is_tracked() || target.is_tracked() {
            let loss = Pairwise {
                operation: OPERATION,
                reduction,
                slopes: move |b: &Backward, g: &Tensor, operands: &[Tensor]| {
                    of_smooth_sizes(b, g, operands, beta)
                },
            };
            let compute = |x: &[Tensor]| x[0].smooth_l1_loss(&x[1], beta, reduction);
            let _line = MadeFor::caller();
            return loss.recorded(&[self, target], compute);
        }
        let size = self.sub(target).called(OPERATION)?.abs()?;
        let is_inside = size.lt(beta)?;
        let inside = (size.square()? * (0.5 / beta))?;
        reduced(is_inside.where_(&inside, &(size - 0.5 * beta)?)?, reduction)
    }
}
