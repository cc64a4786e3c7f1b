//! The gradients of poolings and of their gradients.

use super::call::Folding;
use super::kernel::Fold;
use crate::tensor::Tensor;
use crate::tensor::history::{Backward, Save, grads};
use lapidary_core::Result;

impl Folding {
    /// The pooling, with its gradient. A maximum keeps its operand, in which the backward finds the
    /// places again; a mean keeps nothing.
    #[cold]
    #[track_caller]
    pub(super) fn recorded(&self, x: &Tensor) -> Result<Tensor> {
        let y = self.of(&x.untracked())?;
        let saves: &[Save<'_>] = match self.fold {
            Fold::Mean => &[],
            Fold::Max => &[Save::Operand(0)],
            Fold::Place => return Ok(y),
        };
        let folding = *self;
        let rule = move |b: &Backward| grads![b; folding.through(&b.grad, b.saved.first())?];
        Ok(y.recorded_as(self.operation, &[x], saves, rule))
    }

    /// The gradient of a pooling, with its own gradient: the pooling by the same shares.
    #[cold]
    #[track_caller]
    pub(super) fn through_recorded(&self, g: &Tensor, x: Option<&Tensor>) -> Result<Tensor> {
        let y = self.through(&g.untracked(), x)?;
        let x = x.filter(|_| self.fold != Fold::Mean);
        let save = x.map(Save::Other);
        let folding = *self;
        let rule = move |b: &Backward| {
            grads![b; match b.saved.first() {
                None => folding.of(&b.grad)?,
                Some(x) => folding.at_maxima(x, &b.grad)?,
            }]
        };
        Ok(y.recorded_as(self.operation, &[g], save.as_slice(), rule))
    }

    /// The elements of `of` at the places of the maxima of `x`.
    #[track_caller]
    fn at_maxima(&self, x: &Tensor, of: &Tensor) -> Result<Tensor> {
        let places = Folding {
            fold: Fold::Place,
            ..*self
        };
        let places = places.of(x)?;
        let flat = |x: &Tensor| {
            let [samples, channels, height, width] = [0, 1, 2, 3].map(|axis| x.shape()[axis]);
            x.reshape(&[samples, channels, height * width])
        };
        flat(of)?
            .gather(2, &flat(&places)?)?
            .reshape(places.shape())
    }
}
