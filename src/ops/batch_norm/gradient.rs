//! The gradients of batch normalization.

use super::Channels;
use crate::tensor::Tensor;
use crate::tensor::history::{Backward, Save, grads};
use lapidary_core::{DType, Result};

/// Whether a batch normalization with these further operands is recorded.
pub(super) fn is_recorded(x: &Tensor, further: &[Option<&Tensor>]) -> bool {
    x.is_tracked() || further.iter().flatten().any(|given| given.is_tracked())
}

/// The gradients of a batch normalization with the batch's own statistics, all in f32.
pub(super) struct OfBatch {
    normal: Tensor,
    scale: Tensor,
    g: Tensor,
    /// It has all axes of the input. Only that of the channels has more than one element.
    pub(super) by_weight: Tensor,
    pub(super) by_bias: Tensor,
}

impl OfBatch {
    /// Takes the gradient `g` of the result. The statistics broadcast, and are those of
    /// [`Channels::statistics`].
    #[track_caller]
    pub(super) fn new(
        g: &Tensor,
        channels: &Channels<'_>,
        [mean, variance]: [Tensor; 2],
        eps: f32,
    ) -> Result<Self> {
        let scale = (variance + eps)?.rsqrt()?;
        let g = g.cast(DType::F32)?;
        let normal = ((channels.relative_to_first()? - mean)? * &scale)?;
        let folded = all_but_channels(g.rank());
        Ok(OfBatch {
            by_weight: (&g * &normal)?.sum_keepdim(&folded)?,
            by_bias: g.sum_keepdim(&folded)?,
            normal,
            scale,
            g,
        })
    }

    /// The gradient of the input. A channel has `count` elements.
    #[track_caller]
    pub(super) fn by_input(&self, weight: Option<&Tensor>, count: f32) -> Result<Tensor> {
        let along = (&self.normal * (&self.by_weight / count)?)?;
        let rest = ((&self.g - (&self.by_bias / count)?)? - along)?;
        let by_input = (rest * &self.scale)?;
        match weight {
            Some(weight) => by_input * weight,
            None => Ok(by_input),
        }
    }
}

/// The axes that a channel's statistics fold.
pub(super) fn all_but_channels(rank: usize) -> Vec<isize> {
    (0..rank as isize).filter(|&axis| axis != 1).collect()
}

impl Tensor {
    /// Batch normalization with given statistics, with its gradients.
    #[cold]
    #[track_caller]
    pub(super) fn batch_norm_recorded(
        &self,
        operation: &'static str,
        [mean, variance]: [&Tensor; 2],
        affine: [Option<&Tensor>; 2],
        eps: f32,
    ) -> Result<Tensor> {
        let detached = affine.map(|given| given.map(Tensor::untracked));
        let [weight, bias] = detached.each_ref().map(Option::as_ref);
        let (at, around) = (mean.untracked(), variance.untracked());
        let y = (self.untracked()).batch_norm(&at, &around, weight, bias, eps)?;
        // It takes the place of an operand that is missing, and gets no gradient.
        let none = self.untracked();
        let [weight, bias] = affine.map(|given| given.unwrap_or(&none));
        let operands = [self, mean, variance, weight, bias];
        let dtypes = operands.map(|operand| operand.dtype);
        let rule = move |b: &Backward| {
            let channels = Channels::new(operation, &b.saved[0])?;
            let scale = (channels.widened(&b.saved[2])? + eps)?.rsqrt()?;
            let slope = match b.saved.get(3) {
                Some(weight) => (&scale * channels.widened(weight)?)?,
                None => scale.clone(),
            };
            let g = b.grad.cast(DType::F32)?;
            let along = || {
                let mean = channels.widened(&b.saved[1])?;
                &g * (b.saved[0].cast(DType::F32)? - mean)?
            };
            let folded = all_but_channels(g.rank());
            // The sum over each channel, times one number a channel.
            let sum = |of: &Tensor, times: &Tensor, index: usize| {
                let sum = (of.sum_keepdim(&folded)? * times)?;
                sum.reshape(&[channels.count])?.cast(dtypes[index])
            };
            grads![b;
                (&g * &slope)?.cast(dtypes[0])?,
                sum(&g, &slope.neg()?, 1)?,
                sum(&along()?, &((&slope * -0.5)? * scale.square()?)?, 2)?,
                sum(&along()?, &scale, 3)?,
                g.sum(&folded)?.cast(dtypes[4])?,
            ]
        };
        let saves = [0, 1, 2, 3].map(Save::Operand);
        let saves = if affine[0].is_some() {
            &saves[..]
        } else {
            &saves[..3]
        };
        Ok(y.recorded_as(operation, &operands, saves, rule))
    }

    /// Batch normalization with the batch's own statistics, with its gradients.
    #[cold]
    #[track_caller]
    pub(super) fn batch_norm_train_recorded(
        &self,
        operation: &'static str,
        affine: [Option<&Tensor>; 2],
        eps: f32,
    ) -> Result<[Tensor; 3]> {
        let detached = affine.map(|given| given.map(Tensor::untracked));
        let [weight, bias] = detached.each_ref().map(Option::as_ref);
        let ([y, mean, variance], drift) =
            (self.untracked()).batch_norm_trained(operation, [weight, bias], eps)?;
        let none = self.untracked();
        let [weight, bias] = affine.map(|given| given.unwrap_or(&none));
        let operands = [self, weight, bias];
        let dtypes = operands.map(|operand| operand.dtype);
        let rule = move |b: &Backward| {
            let x = &b.saved[0];
            let channels = Channels::new(operation, x)?;
            let count = channels.check_spread(operation)?;
            let statistics = match x.is_tracked() {
                // Gradients of gradients depend on them.
                true => channels.statistics()?,
                false => {
                    let of_sample = channels.widened(&b.saved[2])?;
                    let variance = (of_sample * ((count - 1.0) / count))?;
                    [channels.widened(&b.saved[1])?, variance]
                }
            };
            let weight = match b.saved.get(3) {
                Some(weight) => Some(channels.widened(weight)?),
                None => None,
            };
            let of_batch = OfBatch::new(&b.grad, &channels, statistics, eps)?;
            let flat = [channels.count];
            grads![b;
                of_batch.by_input(weight.as_ref(), count)?.cast(dtypes[0])?,
                of_batch.by_weight.reshape(&flat)?.cast(dtypes[1])?,
                of_batch.by_bias.reshape(&flat)?.cast(dtypes[2])?,
            ]
        };
        let [drift, spread] = [Save::Other(&drift), Save::Other(&variance)];
        let saves = [Save::Operand(0), drift, spread, Save::Operand(1)];
        let saves = if affine[0].is_some() {
            &saves[..]
        } else {
            &saves[..3]
        };
        let y = y.recorded_as(operation, &operands, saves, rule);
        Ok([y, mean, variance])
    }
}
