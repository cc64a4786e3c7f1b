//! Losses: cross-entropy, negative log-likelihood, mean squared error. `distance` has those of
//! absolute differences, and `weighted` those whose elements have weights.

mod distance;
mod gradient;
#[cfg(any(test, feature = "sim"))]
pub(super) mod reference;
mod slopes;
mod weighted;

use std::borrow::Cow;

use gradient::Pairwise;

use super::class_loss::ClassLoss;
use super::index_select::check_index_type;
use super::launch::by_vec4s;
use super::normalize::check_float;
use super::rows::{self, Axes, Rows};
use crate::tensor::Tensor;
use crate::tensor::called::Called;
use crate::tensor::layout::Layout;
use lapidary_core::internal::{BuiltInKernel, MadeFor, Operand, Variant};
use lapidary_core::{DType, Error, Result};

const WGSL: &str = include_str!("../../shaders/loss.wgsl");

/// `y[r]` = minus the element `i[r]` of row `r` of `x`.
static LOSS: BuiltInKernel = BuiltInKernel {
    name: "loss",
    operands: &[Operand::read("x"), Operand::read("i"), Operand::write("y")],
    text,
    reference: reference!(reference::run),
};

/// `y[r]` = `m[r]` minus the element `i[r]` of row `r` of `x`.
static LOSS_OF_LOGITS: BuiltInKernel = BuiltInKernel {
    name: "loss_of_logits",
    operands: &[
        Operand::read("x"),
        Operand::read("i"),
        Operand::read("m"),
        Operand::write("y"),
    ],
    text,
    reference: reference!(reference::run),
};

/// Bit of a variant's code: `x` holds logits.
pub(super) const LOGITS: u64 = 1 << 8;

/// How the losses of all targets are reduced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reduction {
    /// Not at all.
    None,
    /// Their mean, with shape `[]`; ignored targets do not count.
    #[default]
    Mean,
    /// Their sum, with shape `[]`.
    Sum,
}

impl Tensor {
    /// The cross-entropy of logits and classes, as in PyTorch: minus the logarithm of the
    /// probability that [`softmax`](Tensor::softmax) along axis 1 gives to the target.
    ///
    /// `self` has shape `[batch, classes, ..]`, or `[classes]`. `targets` are `u32` or `i32`, in
    /// that shape without the classes. Targets equal to `ignore` do not count. The device cannot
    /// report a target that is not a class. Its loss is NaN, and so are the mean or the sum, and
    /// the gradient of its logits. The mean over no targets is NaN too. Targets may also be floats
    /// in the shape of `self`: the probability of each class. For weights, see
    /// [`cross_entropy_with`](Tensor::cross_entropy_with).
    ///
    /// ```
    /// # use lapidary::{Tensor, operations::Reduction};
    /// # fn demo(logits: &Tensor, labels: &Tensor) -> lapidary::Result<()> {
    /// let loss = logits.cross_entropy(labels, Some(-100), Reduction::Mean)?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::DType`] unless `self` holds floats and `targets` `u32`, `i32` or floats.
    /// [`Error::Shape`] unless their shapes match. [`Error::Option`] for ignored targets among
    /// probabilities. [`Error::Foreign`] for tensors of several `Gpu`s. [`Error::NeverFits`] if the
    /// operands are too large.
    #[track_caller]
    pub fn cross_entropy(
        &self,
        targets: &Tensor,
        ignore: Option<i64>,
        reduction: Reduction,
    ) -> Result<Tensor> {
        let _method = MadeFor::method("cross_entropy");
        if targets.dtype.is_float() {
            let options = ClassLoss {
                ignore,
                reduction,
                ..ClassLoss::default()
            };
            let made = self.cross_entropy_with(targets, &options);
            return made.called("cross_entropy");
        }
        likelihood(self, "cross_entropy", targets, ignore, reduction, LOGITS)
    }

    /// As [`cross_entropy`](Tensor::cross_entropy), for a `self` that
    /// [`log_softmax`](Tensor::log_softmax) returned: minus the element of the target's class.
    ///
    /// # Errors
    ///
    /// Those of [`cross_entropy`](Tensor::cross_entropy).
    #[track_caller]
    pub fn nll_loss(
        &self,
        targets: &Tensor,
        ignore: Option<i64>,
        reduction: Reduction,
    ) -> Result<Tensor> {
        let _method = MadeFor::method("nll_loss");
        likelihood(self, "nll_loss", targets, ignore, reduction, 0)
    }

    /// The squares of the differences from `target`, for floats. Its shape broadcasts.
    ///
    /// # Errors
    ///
    /// Those of [`sub`](Tensor::sub); [`Error::DType`] for integers.
    #[track_caller]
    pub fn mse_loss(&self, target: &Tensor, reduction: Reduction) -> Result<Tensor> {
        let _method = MadeFor::method("mse_loss");
        check_float("mse_loss", self)?;
        if self.is_tracked() || target.is_tracked() {
            let loss = Pairwise {
                operation: "mse_loss",
                reduction,
                slopes: gradient::of_squares,
            };
            let _line = MadeFor::caller();
            return loss.recorded(&[self, target], |x| x[0].mse_loss(&x[1], reduction));
        }
        let apart = self.sub(target).called("mse_loss")?;
        reduced(apart.square()?, reduction)
    }

    /// The cross-entropy of probabilities between 0 and 1: `-(t * ln(x) + (1 - t) * ln(1 - x))`,
    /// for floats whose shapes broadcast. As in PyTorch, logarithms are at least −100, so that the
    /// loss is finite.
    ///
    /// ```
    /// # use lapidary::{Tensor, operations::Reduction};
    /// # fn demo(logits: &Tensor, is_cat: &Tensor) -> lapidary::Result<()> {
    /// let loss = logits.sigmoid()?.binary_cross_entropy(is_cat, Reduction::Mean)?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`sub`](Tensor::sub); [`Error::DType`] for integers.
    #[track_caller]
    pub fn binary_cross_entropy(&self, target: &Tensor, reduction: Reduction) -> Result<Tensor> {
        const OPERATION: &str = "binary_cross_entropy";
        let _method = MadeFor::method(OPERATION);
        check_float(OPERATION, self)?;
        self.same_engine(OPERATION, target)?;
        if self.is_tracked() || target.is_tracked() {
            let loss = Pairwise {
                operation: OPERATION,
                reduction,
                slopes: gradient::of_binary,
            };
            let compute = |x: &[Tensor]| x[0].binary_cross_entropy(&x[1], reduction);
            let _line = MadeFor::caller();
            return loss.recorded(&[self, target], compute);
        }
        reduced(self.unlikelihood(target).called(OPERATION)?, reduction)
    }

    /// The binary cross entropy of each element.
    #[track_caller]
    fn unlikelihood(&self, target: &Tensor) -> Result<Tensor> {
        let yes = self.log()?.maximum(-100)?;
        let no = self.neg()?.log1p()?.maximum(-100)?;
        let likelihood = target.mul(&yes)?.add(&(1.0 - target)?.mul(&no)?)?;
        likelihood.neg()
    }

    /// [`binary_cross_entropy`](Tensor::binary_cross_entropy) of the [`sigmoid`](Tensor::sigmoid)
    /// of `self`. It is accurate even if that is too near 0 or 1. `positive_weight`, which
    /// broadcasts, multiplies the part of the loss for targets of 1.
    ///
    /// ```
    /// # use lapidary::{Tensor, operations::Reduction};
    /// # fn demo(logits: &Tensor, is_cat: &Tensor) -> lapidary::Result<()> {
    /// let loss = logits.binary_cross_entropy_with_logits(is_cat, None, Reduction::Mean)?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`sub`](Tensor::sub); [`Error::DType`] for integers.
    #[track_caller]
    pub fn binary_cross_entropy_with_logits(
        &self,
        target: &Tensor,
        positive_weight: Option<&Tensor>,
        reduction: Reduction,
    ) -> Result<Tensor> {
        const OPERATION: &str = "binary_cross_entropy_with_logits";
        let _method = MadeFor::method(OPERATION);
        check_float(OPERATION, self)?;
        self.same_engine(OPERATION, target)?;
        if self.is_tracked()
            || target.is_tracked()
            || positive_weight.is_some_and(Tensor::is_tracked)
        {
            let operands: Vec<&Tensor> =
                [self, target].into_iter().chain(positive_weight).collect();
            let loss = Pairwise {
                operation: OPERATION,
                reduction,
                slopes: gradient::of_binary_logits,
            };
            let compute =
                |x: &[Tensor]| x[0].binary_cross_entropy_with_logits(&x[1], x.get(2), reduction);
            let _line = MadeFor::caller();
            return loss.recorded(&operands, compute);
        }
        let losses = self.unlikelihood_of_logits(target, positive_weight);
        reduced(losses.called(OPERATION)?, reduction)
    }

    /// The same of logits.
    #[track_caller]
    fn unlikelihood_of_logits(
        &self,
        target: &Tensor,
        positive_weight: Option<&Tensor>,
    ) -> Result<Tensor> {
        let yes = self.log_sigmoid()?;
        let yes = match positive_weight {
            None => yes,
            Some(weight) => yes.mul(&target.mul(&(weight - 1.0)?)?.add(1)?)?,
        };
        (1.0 - target)?.mul(self)?.sub(&yes)
    }
}

#[track_caller]
pub(super) fn reduced(losses: Tensor, reduction: Reduction) -> Result<Tensor> {
    match reduction {
        Reduction::None => Ok(losses),
        Reduction::Mean => losses.mean_all(),
        Reduction::Sum => losses.sum_all(),
    }
}

#[track_caller]
fn likelihood(
    x: &Tensor,
    operation: &'static str,
    targets: &Tensor,
    ignore: Option<i64>,
    reduction: Reduction,
    code: u64,
) -> Result<Tensor> {
    let losses = each(x, operation, targets, ignore, code)?;
    let result = match reduction {
        Reduction::Mean => match counted(targets, ignore)? {
            None => losses.mean_all()?,
            Some(counted) => {
                let count = counted.count_nonzero_all()?.cast(DType::F32)?;
                losses.sum_all()?.div(&count)?
            }
        },
        _ => reduced(losses, reduction)?,
    };
    result.cast(x.dtype)
}

/// A mask of the targets that count; `None` if all do.
#[track_caller]
pub(super) fn counted(targets: &Tensor, ignore: Option<i64>) -> Result<Option<Tensor>> {
    match (word(targets, ignore), targets.dtype) {
        (None, _) => Ok(None),
        (Some(ignore), DType::I32) => targets.ne(ignore as i32).map(Some),
        (Some(ignore), _) => targets.ne(ignore).map(Some),
    }
}

/// The ignored target as a word. `None` if the type cannot hold it.
fn word(targets: &Tensor, ignore: Option<i64>) -> Option<u32> {
    let ignore = ignore?;
    match targets.dtype {
        DType::I32 => i32::try_from(ignore).ok().map(|ignore| ignore as u32),
        _ => u32::try_from(ignore).ok(),
    }
}

/// The axis of the classes.
pub(super) fn class_axis(x: &Tensor) -> Option<usize> {
    x.layout.rank().min(2).checked_sub(1)
}

/// The loss of each target in f32; 0 for ignored targets.
#[track_caller]
pub(super) fn each(
    x: &Tensor,
    operation: &'static str,
    targets: &Tensor,
    ignore: Option<i64>,
    code: u64,
) -> Result<Tensor> {
    if x.is_tracked() {
        return gradient::each_recorded(x, operation, targets, ignore, code);
    }
    each_with_totals(x, operation, targets, ignore, code).map(|(losses, _)| losses)
}

/// As [`each`], with what [`losses`] adds.
#[track_caller]
fn each_with_totals(
    x: &Tensor,
    operation: &'static str,
    targets: &Tensor,
    ignore: Option<i64>,
    code: u64,
) -> Result<(Tensor, Option<Tensor>)> {
    check_float(operation, x)?;
    check_index_type(operation, x, targets)?;
    let refusal = || Error::Shape {
        operation,
        reason: format!(
            "targets of shape {:?} for classes of shape {:?}",
            targets.shape(),
            x.shape()
        ),
    };
    let class_axis = class_axis(x).ok_or_else(refusal).located()?;
    let classes = Axes::from(class_axis, class_axis + 1);
    let shape = classes.fold_shape(&x.layout.shape, false);
    if shape != targets.layout.shape {
        return Err(refusal()).located();
    }
    let (losses, totals) = losses(x, classes, targets, word(targets, ignore), code)?;
    Ok((losses.view(Layout::contiguous(&shape)), totals))
}

/// One f32 for each target, in one dimension. Also the logarithms of the sums of exponentials of
/// logits, if there are any.
#[track_caller]
fn losses(
    x: &Tensor,
    classes: Axes,
    targets: &Tensor,
    ignore: Option<u32>,
    code: u64,
) -> Result<(Tensor, Option<Tensor>)> {
    let engine = &x.engine;
    let result = Tensor::output(engine, &[targets.layout.len()], DType::F32)?;
    if targets.layout.len() == 0 {
        return Ok((result, None));
    }
    let (x, rows) = &Rows::along(x, classes)?;
    let targets = targets.contiguous()?;
    let mut params = rows.params();
    params.second = targets.layout.offset as u32;
    params.parts = u32::from(ignore.is_some());
    params.third = ignore.unwrap_or(0);
    let code = code | rows::rank_bits(rows);
    if code & LOGITS == 0 {
        by_vec4s(&LOSS, code, [x, &targets], &result, &params)?;
        return Ok((result, None));
    }
    let totals = match rows.length {
        0 => None,
        _ => Some(x.log_sum_exp_rows(classes)?),
    };
    // Without classes there is no sum, and the loss of every target is NaN.
    let operands = [x, &targets, totals.as_ref().unwrap_or(&result)];
    by_vec4s(&LOSS_OF_LOGITS, code, operands, &result, &params)?;
    Ok((result, totals))
}

/// The WGSL of a variant.
fn text(variant: &Variant) -> Cow<'static, str> {
    let total = match variant.code & LOGITS {
        0 => "probabilities",
        _ => "logits",
    };
    rows::rank_constants(variant.code)
        .line(format_args!("alias T = {};", variant.dtypes[0].wgsl()))
        .sections(rows::WGSL, &["params"])
        .sections(WGSL, &["main", total])
        .done()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::check::valid;

    #[test]
    fn every_type_and_rank_gives_a_valid_shader() {
        for x in [DType::F32, DType::F16, DType::Bf16] {
            for index in [DType::U32, DType::I32] {
                for ranks in [0x11, 0x12, 0x14] {
                    valid(&LOSS, ranks, &[x, index, DType::F32], 0b100);
                    let dtypes = [x, index, DType::F32, DType::F32];
                    valid(&LOSS_OF_LOGITS, ranks | LOGITS, &dtypes, 0b1000);
                }
            }
        }
    }
}
