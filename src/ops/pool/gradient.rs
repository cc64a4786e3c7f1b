//! The gradients of poolings and of their gradients.

use super::call::Folding;
use super::kernel::PoolFold;
use crate::tensor::Tensor;
use crate::tensor::history::{Backward, Save, grads};
use lapidary_core::Result;

impl Folding {
    /// The pooling, with its gradient. A mean keeps nothing. A maximum keeps its position in each
    /// window, a byte in all but the largest ones. It keeps its operand instead if others do too,
    /// and finds the positions again.
    #[cold]
    #[track_caller]
    pub(super) fn recorded(&self, x: &Tensor) -> Result<Tensor> {
        let y = self.run(&x.untracked())?;
        match self.fold {
            PoolFold::Mean => Ok(self.recorded_by(y, x, &[])),
            PoolFold::Max if x.is_better_reduced() && self.has_positions(x) => {
                x.keep_less()?;
                let by_position = self.with(PoolFold::Position);
                let positions = by_position.run(&x.untracked())?;
                Ok(by_position.recorded_by(y, x, &[Save::Other(&positions)]))
            }
            PoolFold::Max => Ok(self.recorded_by(y, x, &[Save::Operand(0)])),
            PoolFold::Place | PoolFold::Position => Ok(y),
        }
    }

    #[track_caller]
    fn recorded_by(&self, y: Tensor, x: &Tensor, saves: &[Save<'_>]) -> Tensor {
        let folding = *self;
        let rule = move |b: &Backward| grads![b; folding.through(&b.grad, b.saved.first())?];
        y.recorded_as(self.operation, &[x], saves, rule)
    }

    /// The gradient of a pooling, with its own gradient: the pooling by the same shares.
    #[cold]
    #[track_caller]
    pub(super) fn through_recorded(&self, g: &Tensor, x: Option<&Tensor>) -> Result<Tensor> {
        let y = self.through(&g.untracked(), x)?;
        let positions = x.filter(|_| self.fold != PoolFold::Mean);
        let save = positions.map(Save::Other);
        let folding = *self;
        let rule = move |b: &Backward| {
            grads![b; match b.saved.first() {
                None => folding.run(&b.grad)?,
                Some(positions) => folding.chosen(&b.grad, positions)?,
            }]
        };
        Ok(y.recorded_as(self.operation, &[g], save.as_slice(), rule))
    }

    /// The elements at positions, with their gradient: it goes to these.
    #[cold]
    #[track_caller]
    pub(super) fn chosen_recorded(&self, x: &Tensor, positions: &Tensor) -> Result<Tensor> {
        let y = self.chosen(&x.untracked(), positions)?;
        let saves = [Save::Other(positions)];
        Ok(self.with(PoolFold::Position).recorded_by(y, x, &saves))
    }

    pub(super) fn with(&self, fold: PoolFold) -> Folding {
        Folding { fold, ..*self }
    }
}
