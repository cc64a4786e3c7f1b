//! The gradients of losses. All are computed in f32.

use super::slopes::Loss;
use super::{LOGITS, Reduction, class_axis, counted, each_with_totals, word};
use crate::ops::fill;
use crate::tensor::Tensor;
use crate::tensor::history::{Backward, Grads, Save, grads};
use crate::tensor::layout::broadcast_shapes;
use lapidary_core::internal::MaybeShared;
use lapidary_core::{DType, Result};

/// A loss of elements and targets that broadcast, and how its gradients are computed.
pub(super) struct Pairwise<S> {
    pub(super) operation: &'static str,
    pub(super) reduction: Reduction,
    /// The gradients of the operands in their order. Gets that of each loss, and the operands.
    pub(super) slopes: S,
}

impl<S> Pairwise<S>
where
    S: Fn(&Backward, &Tensor, &[Tensor]) -> Result<Grads> + MaybeShared + 'static,
{
    /// Computes the loss of detached operands, and records it.
    #[cold]
    #[track_caller]
    pub(super) fn recorded(
        self,
        operands: &[&Tensor],
        compute: impl FnOnce(&[Tensor]) -> Result<Tensor>,
    ) -> Result<Tensor> {
        let detached: Vec<Tensor> = operands.iter().map(|operand| operand.untracked()).collect();
        let y = compute(&detached)?;
        let mut shape = operands[0].layout.shape.clone();
        for operand in &operands[1..] {
            shape = broadcast_shapes(self.operation, &shape, &operand.layout.shape)?;
        }
        let own: Vec<_> = operands
            .iter()
            .map(|operand| (operand.layout.shape.clone(), operand.dtype))
            .collect();
        let saves: Vec<_> = (0..operands.len()).map(Save::Operand).collect();
        let count: usize = shape.iter().product();
        let rule = move |b: &Backward| {
            let g = b.grad.cast(DType::F32)?;
            let g = match self.reduction {
                Reduction::Mean => (g * (1.0 / count as f64))?,
                Reduction::Sum | Reduction::None => g,
            };
            let operands = b.saved.iter().map(|operand| operand.cast(DType::F32));
            let operands = operands.collect::<Result<Vec<Tensor>>>()?;
            let mut grads = (self.slopes)(b, &g.broadcast_to(&shape)?, &operands)?;
            for (grad, (shape, dtype)) in grads.iter_mut().zip(&own) {
                if let Some(wide) = grad {
                    *wide = wide.sum_to(shape)?.cast(*dtype)?;
                }
            }
            Ok(grads)
        };
        Ok(y.recorded_as(self.operation, operands, &saves, rule))
    }
}

/// Of [`mse_loss`](Tensor::mse_loss).
pub(super) fn of_squares(b: &Backward, g: &Tensor, operands: &[Tensor]) -> Result<Grads> {
    let slope = (((&operands[0] - &operands[1])? * 2.0)? * g)?;
    grads![b; slope.clone(), slope.neg()?]
}

/// Of [`l1_loss`](Tensor::l1_loss).
pub(super) fn of_sizes(b: &Backward, g: &Tensor, operands: &[Tensor]) -> Result<Grads> {
    let slope = ((&operands[0] - &operands[1])?.sign()? * g)?;
    grads![b; slope.clone(), slope.neg()?]
}

/// Of [`smooth_l1_loss`](Tensor::smooth_l1_loss): between −1 and 1, as steep as the square inside.
pub(super) fn of_smooth_sizes(
    b: &Backward,
    g: &Tensor,
    operands: &[Tensor],
    beta: f32,
) -> Result<Grads> {
    let away = ((&operands[0] - &operands[1])? / beta)?;
    let slope = (away.clamp(-1.0, 1.0)? * g)?;
    grads![b; slope.clone(), slope.neg()?]
}

/// Of [`binary_cross_entropy`](Tensor::binary_cross_entropy).
pub(super) fn of_binary(b: &Backward, g: &Tensor, operands: &[Tensor]) -> Result<Grads> {
    let [x, target] = [&operands[0], &operands[1]];
    grads![b;
        {
            // As in PyTorch, the divisor is not 0 at 0 and 1.
            let divisor = (x * (1.0 - x)?)?.maximum(1e-12)?;
            (((x - target)? / divisor)? * g)?
        },
        {
            let yes = x.log()?.maximum(-100)?;
            let no = x.neg()?.log1p()?.maximum(-100)?;
            ((no - yes)? * g)?
        },
    ]
}

/// Of [`binary_cross_entropy_with_logits`](Tensor::binary_cross_entropy_with_logits).
pub(super) fn of_binary_logits(b: &Backward, g: &Tensor, operands: &[Tensor]) -> Result<Grads> {
    let [x, target] = [&operands[0], &operands[1]];
    let weight = operands.get(2);
    grads![b;
        {
            let slope = match weight {
                None => (x.sigmoid()? - target)?,
                Some(weight) => {
                    let weight = ((target * (weight - 1.0)?)? + 1.0)?;
                    ((1.0 - target)? - (weight * x.neg()?.sigmoid()?)?)?
                }
            };
            (slope * g)?
        },
        {
            let slope = match weight {
                None => x.clone(),
                Some(weight) => (x + (x.log_sigmoid()? * (weight - 1.0)?)?)?,
            };
            (slope.neg()? * g)?
        },
        ((x.log_sigmoid()? * target)?.neg()? * g)?,
    ]
}

/// Which targets are no class.
fn is_no_class(targets: &Tensor, classes: usize) -> Result<Tensor> {
    match (targets.dtype, i32::try_from(classes)) {
        (DType::I32, Ok(classes)) => (targets.lt(0)?).logical_or(&targets.ge(classes)?),
        (DType::I32, Err(_)) => targets.lt(0),
        // A tensor has fewer elements than 2³².
        _ => targets.ge(u32::try_from(classes).unwrap_or(u32::MAX)),
    }
}

/// The loss of each target, with the gradient of `x`.
#[cold]
#[track_caller]
pub(super) fn each_recorded(
    x: &Tensor,
    operation: &'static str,
    targets: &Tensor,
    ignore: Option<i64>,
    code: u64,
) -> Result<Tensor> {
    let (y, totals) = each_with_totals(&x.untracked(), operation, targets, ignore, code)?;
    let axis = class_axis(x).unwrap_or(0);
    let (classes, dtype, along) = (x.shape()[axis], x.dtype, axis as isize);
    let mut line = vec![1; x.rank()];
    line[axis] = classes;
    let rule = move |b: &Backward| {
        if let [targets, x, totals] = &b.saved[..] {
            // Gradients of gradients depend on what one launch hides.
            if !x.is_tracked() && !b.grad.is_tracked() {
                let loss = Loss {
                    x,
                    axis,
                    targets,
                    ignore: word(targets, ignore),
                    totals,
                };
                return grads![b; loss.slopes(&b.grad)?];
            }
        }
        let targets = b.saved[0].unsqueeze(along)?;
        // As the loss of such a target is NaN.
        let is_no_class = is_no_class(&targets, classes)?;
        let mut g = (b.grad.unsqueeze(along)?).masked_fill(&is_no_class, f32::NAN)?;
        if let Some(counted) = counted(&targets, ignore)? {
            g = counted.where_(&g, 0.0)?;
        }
        let end = (classes as f64).into();
        let line_of = fill::arange(&g.engine, 0.into(), end, 1.into(), targets.dtype)?;
        let is_target = line_of.reshape(&line)?.eq(&targets)?;
        let Some(x) = b.saved.get(1) else {
            let is_target = is_target.logical_or(&is_no_class)?;
            return grads![b; is_target.where_(&g.neg()?, 0.0)?.cast(dtype)?];
        };
        let wide = x.cast(DType::F32)?;
        let total = wide.logsumexp_keepdim(&[along])?;
        let probability = (wide - total)?.exp()?;
        grads![b; ((probability - is_target.cast(DType::F32)?)? * g)?.cast(dtype)?]
    };
    let mut saves = vec![Save::Other(targets)];
    if code & LOGITS != 0 {
        saves.push(Save::Operand(0));
        saves.extend(totals.as_ref().map(Save::Other));
    }
    Ok(y.recorded_as(operation, &[x], &saves, rule))
}
