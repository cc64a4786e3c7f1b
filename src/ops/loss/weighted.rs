//! Binary cross-entropies with a weight for each element.

use super::{Reduction, check_float, reduced};
use crate::ops::operation::same_dtype;
use crate::tensor::Tensor;
use crate::tensor::called::Called;
use crate::tensor::layout::broadcast_shapes;
use lapidary_core::internal::MadeFor;
use lapidary_core::{Error, Result};

impl Tensor {
    /// [`binary_cross_entropy`](Tensor::binary_cross_entropy), with each loss multiplied by its
    /// `weight`, as in PyTorch. The weight broadcasts. A mean is divided by the number of losses.
    ///
    /// ```
    /// # use lapidary::{Tensor, operations::Reduction};
    /// # fn demo(x: &Tensor, target: &Tensor, weight: &Tensor) -> lapidary::Result<()> {
    /// let loss = x.binary_cross_entropy_weighted(target, weight, Reduction::Mean)?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`binary_cross_entropy`](Tensor::binary_cross_entropy). [`Error::Shape`] also for a
    /// weight of another shape, [`Error::DType`] for one of another type.
    #[track_caller]
    pub fn binary_cross_entropy_weighted(
        &self,
        target: &Tensor,
        weight: &Tensor,
        reduction: Reduction,
    ) -> Result<Tensor> {
        const OPERATION: &str = "binary_cross_entropy_weighted";
        let _method = MadeFor::method(OPERATION);
        self.check_weight(OPERATION, target, weight)?;
        let losses = self.binary_cross_entropy(target, Reduction::None);
        let losses = losses.called(OPERATION)?;
        reduced(losses.mul(weight)?, reduction)
    }

    /// [`binary_cross_entropy_with_logits`](Tensor::binary_cross_entropy_with_logits), with each
    /// loss multiplied by its `weight`, as in
    /// [`binary_cross_entropy_weighted`](Tensor::binary_cross_entropy_weighted).
    ///
    /// # Errors
    ///
    /// Those of [`binary_cross_entropy_weighted`](Tensor::binary_cross_entropy_weighted).
    #[track_caller]
    pub fn binary_cross_entropy_with_logits_weighted(
        &self,
        target: &Tensor,
        weight: &Tensor,
        positive_weight: Option<&Tensor>,
        reduction: Reduction,
    ) -> Result<Tensor> {
        const OPERATION: &str = "binary_cross_entropy_with_logits_weighted";
        let _method = MadeFor::method(OPERATION);
        self.check_weight(OPERATION, target, weight)?;
        let losses =
            self.binary_cross_entropy_with_logits(target, positive_weight, Reduction::None);
        let losses = losses.called(OPERATION)?;
        reduced(losses.mul(weight)?, reduction)
    }

    #[track_caller]
    fn check_weight(
        &self,
        operation: &'static str,
        target: &Tensor,
        weight: &Tensor,
    ) -> Result<()> {
        check_float(operation, self)?;
        for other in [target, weight] {
            self.same_engine(operation, other)?;
            same_dtype(operation, self.dtype, other.dtype)?;
        }
        let losses = broadcast_shapes(operation, self.shape(), target.shape())?;
        match broadcast_shapes(operation, &losses, weight.shape())? == losses {
            true => Ok(()),
            false => Err(Error::Shape {
                operation,
                reason: format!(
                    "a weight of shape {:?} for losses of shape {losses:?}",
                    weight.shape()
                ),
            })
            .located(),
        }
    }
}
