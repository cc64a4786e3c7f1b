//! Batch normalization, composed of reductions and of fused elementwise operations, without own
//! kernels.

mod gradient;

use gradient::{OfBatch, all_but_channels, is_recorded};

use super::normalize::check_float;
use super::operation::same_dtype;
use super::reduce::{Lower, Op, mean_and_spread};
use super::rows::Axes;
use crate::tensor::Tensor;
use crate::tensor::called::Called;
use crate::tensor::layout::Layout;
use lapidary_core::internal::MadeFor;
use lapidary_core::{DType, Error, Result};

impl Tensor {
    /// `(x − mean) / √(variance + eps) · weight + bias` of a tensor `[batch, channels, ..]` with
    /// given statistics, as PyTorch's `batch_norm` in evaluation.
    ///
    /// Mean, variance, weight and bias have one element a channel and any float type. Everything is
    /// computed in f32 and rounded once.
    ///
    /// ```
    /// # use lapidary::Tensor;
    /// # fn demo(image: &Tensor, mean: &Tensor, variance: &Tensor) -> lapidary::Result<()> {
    /// let y = image.batch_norm(mean, variance, None, None, 1e-5)?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Shape`] for fewer than two dimensions, or for a mean, variance, weight or bias that
    /// is not one number a channel. [`Error::DType`] for integers and bools. [`Error::Foreign`] for
    /// tensors of another `Gpu`.
    #[track_caller]
    pub fn batch_norm(
        &self,
        mean: &Tensor,
        variance: &Tensor,
        weight: Option<&Tensor>,
        bias: Option<&Tensor>,
        eps: f32,
    ) -> Result<Tensor> {
        const OPERATION: &str = "batch_norm";
        let _method = MadeFor::method(OPERATION);
        if is_recorded(self, &[Some(mean), Some(variance), weight, bias]) {
            let statistics = [mean, variance];
            return self.batch_norm_recorded(OPERATION, statistics, [weight, bias], eps);
        }
        let channels = Channels::new(OPERATION, self)?;
        let mean = channels.spread(OPERATION, "mean", mean)?;
        let variance = channels.spread(OPERATION, "variance", variance)?;
        let affine = channels.affine(OPERATION, weight, bias)?;
        normalized(&self.cast(DType::F32)?, [&mean, &variance], affine, eps)?.cast(self.dtype)
    }

    /// [`batch_norm`](Tensor::batch_norm) with the batch's own statistics, as in PyTorch's
    /// training. Returns the result, and the mean and variance of each channel in f32.
    ///
    /// Distances from a mean beyond about 1e19 have squares beyond f32: such a channel becomes its
    /// bias. The population variance normalizes the result. The returned variance is the sample
    /// variance, which is divided by one less; PyTorch's running variance uses it. As in PyTorch,
    /// the returned statistics have no gradient.
    ///
    /// ```
    /// # use lapidary::Tensor;
    /// # fn demo(x: &Tensor, weight: &Tensor, bias: &Tensor, running_mean: &Tensor,
    /// #     running_variance: &Tensor) -> lapidary::Result<()> {
    /// let [y, mean, variance] = x.batch_norm_train(Some(weight), Some(bias), 1e-5)?;
    /// running_mean.lerp_(&mean, 0.1)?; // PyTorch's momentum of 0.1
    /// running_variance.lerp_(&variance, 0.1)?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`batch_norm`](Tensor::batch_norm). [`Error::Shape`] also for fewer than two
    /// elements a channel.
    #[track_caller]
    pub fn batch_norm_train(
        &self,
        weight: Option<&Tensor>,
        bias: Option<&Tensor>,
        eps: f32,
    ) -> Result<[Tensor; 3]> {
        const OPERATION: &str = "batch_norm_train";
        let _method = MadeFor::method(OPERATION);
        if is_recorded(self, &[weight, bias]) {
            return self.batch_norm_train_recorded(OPERATION, [weight, bias], eps);
        }
        let (trained, _) = self.batch_norm_trained(OPERATION, [weight, bias], eps)?;
        Ok(trained)
    }

    /// Also returns the means from the first elements of the channels.
    #[track_caller]
    fn batch_norm_trained(
        &self,
        operation: &'static str,
        [weight, bias]: [Option<&Tensor>; 2],
        eps: f32,
    ) -> Result<([Tensor; 3], Tensor)> {
        let channels = Channels::new(operation, self)?;
        let affine = channels.affine(operation, weight, bias)?;
        let count = channels.check_spread(operation)?;
        let [drift, variance] = channels.statistics()?;
        let of_sample = (&variance * (count / (count - 1.0)))?;
        let y = normalized(
            &channels.relative_to_first()?,
            [&drift, &variance],
            affine,
            eps,
        )?;
        let y = y.cast(self.dtype)?;
        let flat = |statistic: Tensor| statistic.reshape(&[channels.count]);
        let mean = (self.first_along(&all_but_channels(self.rank()))? + &drift)?;
        Ok(([y, flat(mean)?, flat(of_sample)?], flat(drift)?))
    }

    /// The gradients of [`batch_norm_train`](Tensor::batch_norm_train) with respect to its input,
    /// its weight and its bias. `self` is the gradient with respect to its result. The last two
    /// have one element a channel, even if there was no weight or no bias.
    ///
    /// ```
    /// # use lapidary::Tensor;
    /// # fn demo(x: &Tensor, weight: &Tensor, by_y: &Tensor) -> lapidary::Result<()> {
    /// let [by_x, by_weight, by_bias] = by_y.batch_norm_backward(x, Some(weight), 1e-5)?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`batch_norm_train`](Tensor::batch_norm_train). [`Error::Shape`] and
    /// [`Error::DType`] also unless `self` has the shape and type of the input.
    #[track_caller]
    pub fn batch_norm_backward(
        &self,
        input: &Tensor,
        weight: Option<&Tensor>,
        eps: f32,
    ) -> Result<[Tensor; 3]> {
        const OPERATION: &str = "batch_norm_backward";
        let _method = MadeFor::method(OPERATION);
        self.same_engine(OPERATION, input)?;
        same_dtype(OPERATION, self.dtype, input.dtype)?;
        if self.shape() != input.shape() {
            return Err(Error::Shape {
                operation: OPERATION,
                reason: format!(
                    "the gradient has shape {:?}, and the input {:?}",
                    self.shape(),
                    input.shape()
                ),
            })
            .located();
        }
        let channels = Channels::new(OPERATION, input)?;
        let [weight, _] = channels.affine(OPERATION, weight, None)?;
        let count = channels.check_spread(OPERATION)?;
        let of_batch = OfBatch::new(self, &channels, channels.statistics()?, eps)?;
        let by_input = of_batch.by_input(weight.as_ref(), count)?;
        let flat = [channels.count];
        Ok([
            by_input.cast(self.dtype)?,
            of_batch.by_weight.reshape(&flat)?.cast(self.dtype)?,
            of_batch.by_bias.reshape(&flat)?.cast(self.dtype)?,
        ])
    }
}

/// The channels of a tensor `[batch, channels, ..]`.
struct Channels<'a> {
    x: &'a Tensor,
    count: usize,
    /// The shape of one number a channel that broadcasts over the following dimensions.
    one_each: Vec<usize>,
}

impl<'a> Channels<'a> {
    #[track_caller]
    fn new(operation: &'static str, x: &'a Tensor) -> Result<Self> {
        check_float(operation, x)?;
        if x.rank() < 2 {
            return Err(Error::Shape {
                operation,
                reason: format!("shape {:?} is not [batch, channels, ..]", x.shape()),
            })
            .located();
        }
        let mut one_each = vec![1; x.rank()];
        one_each[1] = x.shape()[1];
        Ok(Channels {
            x,
            count: x.shape()[1],
            one_each,
        })
    }

    /// Casts one number a channel to f32, in a shape that broadcasts.
    #[track_caller]
    fn spread(&self, operation: &'static str, name: &str, given: &Tensor) -> Result<Tensor> {
        self.x.same_engine(operation, given)?;
        check_float(operation, given)?;
        if given.shape() != [self.count] {
            return Err(Error::Shape {
                operation,
                reason: format!(
                    "the {name} has shape {:?}, not [{}]: it is one number a channel",
                    given.shape(),
                    self.count
                ),
            })
            .located();
        }
        self.widened(given)
    }

    /// The same for what was checked before.
    #[track_caller]
    fn widened(&self, given: &Tensor) -> Result<Tensor> {
        given.cast(DType::F32)?.reshape(&self.one_each)
    }

    #[track_caller]
    fn affine(
        &self,
        operation: &'static str,
        weight: Option<&Tensor>,
        bias: Option<&Tensor>,
    ) -> Result<[Option<Tensor>; 2]> {
        let weight = match weight {
            Some(weight) => Some(self.spread(operation, "weight", weight)?),
            None => None,
        };
        let bias = match bias {
            Some(bias) => Some(self.spread(operation, "bias", bias)?),
            None => None,
        };
        Ok([weight, bias])
    }

    /// The number of elements of a channel; an error if it has no variance.
    #[track_caller]
    fn check_spread(&self, operation: &'static str) -> Result<f32> {
        let count = self.x.len() / self.count.max(1);
        match count >= 2 || self.count == 0 {
            true => Ok(count as f32),
            false => Err(Error::Shape {
                operation,
                reason: format!(
                    "shape {:?} has {count} elements a channel: a variance takes two or more",
                    self.x.shape()
                ),
            })
            .located(),
        }
    }

    /// The elements from the first one of their channel, in f32. So a mean far from 0 costs no
    /// precision.
    #[track_caller]
    fn relative_to_first(&self) -> Result<Tensor> {
        self.x.relative_to_first(&all_but_channels(self.x.rank()))
    }

    /// The means of these, and the population variances, in f32.
    #[track_caller]
    fn statistics(&self) -> Result<[Tensor; 2]> {
        let mut x = self.x.clone();
        let all = all_but_channels(x.rank());
        if x.is_tracked() {
            let variance = x.cast(DType::F32)?.var_keepdim(&all, 0)?;
            return Ok([self.relative_to_first()?.mean_keepdim(&all)?, variance]);
        }
        // Reductions begin at the other end of a reversed axis.
        if x.layout.strides.iter().any(|&stride| stride < 0) {
            x = x.contiguous()?;
        }
        let folded = Axes::named("batch_norm_train", &all, x.rank())?;
        let spread = Op::variance(0.0, Lower::Divide);
        let made = mean_and_spread(&x, spread, folded, DType::F32)?;
        Ok(made.map(|statistic| statistic.view(Layout::contiguous(&self.one_each))))
    }
}

/// Normalizes `x` of f32.
#[track_caller]
fn normalized(
    x: &Tensor,
    [mean, variance]: [&Tensor; 2],
    [weight, bias]: [Option<Tensor>; 2],
    eps: f32,
) -> Result<Tensor> {
    let mut scale = (variance + eps)?.rsqrt()?;
    if let Some(weight) = weight {
        scale = (scale * weight)?;
    }
    let y = ((x - mean)? * scale)?;
    match bias {
        Some(bias) => y + bias,
        None => Ok(y),
    }
}
