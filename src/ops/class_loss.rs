//! Classification losses with class weights, smoothed labels, and probabilities as targets.

mod gradient;

use super::index_select::check_index_type;
use super::loss::{LOGITS, Reduction, class_axis, counted, each, reduced};
use super::normalize::check_float;
use crate::tensor::Tensor;
use crate::tensor::called::Called;
use lapidary_core::internal::MadeFor;
use lapidary_core::{DType, Error, Result};

/// Options of [`cross_entropy_with`](Tensor::cross_entropy_with) and
/// [`nll_loss_with`](Tensor::nll_loss_with).
///
/// ```
/// # use lapidary::{Tensor, operations::ClassLoss};
/// # fn demo(logits: &Tensor, labels: &Tensor, rare: &Tensor) -> lapidary::Result<()> {
/// let options = ClassLoss {
///     weights: Some(rare),
///     label_smoothing: 0.1,
///     ..ClassLoss::default()
/// };
/// let loss = logits.cross_entropy_with(labels, &options)?;
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct ClassLoss<'a> {
    /// A weight for each class: floats of shape `[classes]`. The mean is divided by the targets'
    /// weights, or by their number if they are probabilities.
    pub weights: Option<&'a Tensor>,
    /// Targets with this value do not count.
    pub ignore: Option<i64>,
    /// The share of each target, from 0 to 1, that is spread over all classes.
    pub label_smoothing: f32,
    /// How the losses of all targets are reduced.
    pub reduction: Reduction,
}

impl Tensor {
    /// [`cross_entropy`](Tensor::cross_entropy) with class weights and smoothed labels, as in
    /// PyTorch.
    ///
    /// # Errors
    ///
    /// Those of [`cross_entropy`](Tensor::cross_entropy). [`Error::Shape`] also unless there is a
    /// weight for each class, [`Error::DType`] unless weights are floats, [`Error::Option`] for a
    /// smoothing outside of 0 to 1.
    #[track_caller]
    pub fn cross_entropy_with(&self, targets: &Tensor, options: &ClassLoss) -> Result<Tensor> {
        const OPERATION: &str = "cross_entropy_with";
        let _method = MadeFor::method(OPERATION);
        check_float(OPERATION, self)?;
        self.same_engine(OPERATION, targets)?;
        if !(0.0..=1.0).contains(&options.label_smoothing) {
            return Err(Error::Option {
                option: "label_smoothing",
                reason: format!("{} is not between 0 and 1", options.label_smoothing),
            });
        }
        match targets.dtype.is_float() {
            true => of_probabilities(self, OPERATION, targets, options),
            false => of_classes(self, OPERATION, targets, options, LOGITS),
        }
    }

    /// [`nll_loss`](Tensor::nll_loss) with class weights, as in PyTorch.
    ///
    /// # Errors
    ///
    /// Those of [`nll_loss`](Tensor::nll_loss). [`Error::Shape`] also unless there is a weight for
    /// each class, [`Error::DType`] unless weights are floats, [`Error::Option`] for smoothed
    /// labels.
    #[track_caller]
    pub fn nll_loss_with(&self, targets: &Tensor, options: &ClassLoss) -> Result<Tensor> {
        const OPERATION: &str = "nll_loss_with";
        let _method = MadeFor::method(OPERATION);
        if options.label_smoothing != 0.0 {
            return Err(Error::Option {
                option: "label_smoothing",
                reason: "only cross_entropy_with smooths labels".into(),
            });
        }
        of_classes(self, OPERATION, targets, options, 0)
    }
}

#[track_caller]
fn of_classes(
    x: &Tensor,
    operation: &'static str,
    targets: &Tensor,
    options: &ClassLoss,
    code: u64,
) -> Result<Tensor> {
    check_float(operation, x)?;
    check_index_type(operation, x, targets)?;
    let weights = weights(x, operation, options)?;
    let mut losses = each(x, operation, targets, options.ignore, code)?;
    let counted = counted(targets, options.ignore)?;
    // The weight of each target in the mean.
    let mut counts = None;
    if let Some(weights) = &weights {
        let mut of_targets = weights.flatten()?.embedding(targets)?;
        if let Some(counted) = &counted {
            of_targets = counted.where_(&of_targets, 0.0)?;
        }
        losses = losses.mul(&of_targets)?;
        counts = Some(of_targets);
    }
    let share = options.label_smoothing;
    if share > 0.0 {
        let mut spread = smoothing(x, operation, weights.as_ref(), share)?;
        if let Some(counted) = &counted {
            spread = counted.where_(&spread, 0.0)?;
        }
        losses = (losses * (1.0 - share))?.add(&spread)?;
    }
    let result = match (options.reduction, counts, counted) {
        (Reduction::Mean, Some(counts), _) => losses.sum_all()?.div(&counts.sum_all()?)?,
        (Reduction::Mean, None, Some(counted)) => {
            let count = counted.count_nonzero_all()?.cast(DType::F32)?;
            losses.sum_all()?.div(&count)?
        }
        (reduction, ..) => reduced(losses, reduction)?,
    };
    result.cast(x.dtype)
}

/// The part of a loss that is spread evenly over all classes.
#[track_caller]
fn smoothing(
    x: &Tensor,
    operation: &'static str,
    weights: Option<&Tensor>,
    share: f32,
) -> Result<Tensor> {
    let axis = class_axis(x).unwrap_or(0);
    sum_of_logs(x, operation, axis, weights)? * (-share / x.shape()[axis] as f32)
}

/// The sum of the logarithms of probabilities along an axis in f32, each times its weight. Weights
/// in f32 broadcast to the shape of `x`.
#[track_caller]
fn sum_of_logs(
    x: &Tensor,
    operation: &'static str,
    axis: usize,
    weights: Option<&Tensor>,
) -> Result<Tensor> {
    if x.is_tracked() || weights.is_some_and(Tensor::is_tracked) {
        return gradient::sum_of_logs_recorded(x, operation, axis, weights);
    }
    let mut logs = x.cast(DType::F32)?.log_softmax(axis as isize)?;
    if let Some(weights) = weights {
        logs = logs.mul(weights)?;
    }
    logs.sum(&[axis as isize])
}

#[track_caller]
fn of_probabilities(
    x: &Tensor,
    operation: &'static str,
    targets: &Tensor,
    options: &ClassLoss,
) -> Result<Tensor> {
    let Some(axis) = class_axis(x).filter(|_| x.shape() == targets.shape()) else {
        return Err(Error::Shape {
            operation,
            reason: format!(
                "probabilities of shape {:?} for classes of shape {:?}",
                targets.shape(),
                x.shape()
            ),
        })
        .located();
    };
    if options.ignore.is_some() {
        return Err(Error::Option {
            option: "ignore",
            reason: "targets that are probabilities cannot be ignored".into(),
        });
    }
    let mut targets = targets.cast(DType::F32)?;
    let share = options.label_smoothing;
    if share > 0.0 {
        targets = ((targets * (1.0 - share))? + share / x.shape()[axis] as f32)?;
    }
    if let Some(weights) = weights(x, operation, options)? {
        targets = targets.mul(&weights)?;
    }
    let losses = sum_of_logs(x, operation, axis, Some(&targets))?.neg()?;
    reduced(losses, options.reduction)?.cast(x.dtype)
}

/// The weights in f32, in a shape that broadcasts along the classes of `x`.
#[track_caller]
fn weights(x: &Tensor, operation: &'static str, options: &ClassLoss) -> Result<Option<Tensor>> {
    let Some(weights) = options.weights else {
        return Ok(None);
    };
    x.same_engine(operation, weights)?;
    check_float(operation, weights)?;
    let axis = class_axis(x).filter(|&axis| weights.shape() == [x.shape()[axis]]);
    let Some(axis) = axis else {
        return Err(Error::Shape {
            operation,
            reason: format!(
                "weights of shape {:?} for classes of shape {:?}",
                weights.shape(),
                x.shape()
            ),
        })
        .located();
    };
    let mut shape = vec![1; x.rank() - axis];
    shape[0] = weights.len();
    weights.cast(DType::F32)?.reshape(&shape).map(Some)
}
