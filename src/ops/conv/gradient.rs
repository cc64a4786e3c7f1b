//! The gradients of convolutions and of their gradients. A convolution is linear in its input and
//! in its weight. So the rules of the convolution and of these two gradients consist of each other.

use smallvec::SmallVec;

use super::backward::{OPERATION, by_input, by_weight};
use super::conv;
use super::geometry::Geometry;
use crate::tensor::Tensor;
use crate::tensor::history::{Backward, Save, grads};
use lapidary_core::Result;

/// The convolution, with its gradients.
#[cold]
#[track_caller]
pub(super) fn conv_recorded(
    operation: &'static str,
    x: &Tensor,
    weight: &Tensor,
    bias: Option<&Tensor>,
    geometry: Geometry,
) -> Result<Tensor> {
    let [plain, kernel] = [x.untracked(), weight.untracked()];
    let constant = bias.map(Tensor::untracked);
    let options = &geometry.options;
    let y = conv(operation, &plain, &kernel, constant.as_ref(), options)?;
    let rule = move |b: &Backward| {
        grads![b;
            by_input(&b.grad, of_first(b), &geometry)?,
            by_weight(&b.grad, of_second(b), &geometry)?,
            b.grad.sum(&[0, 2, 3])?,
        ]
    };
    let operands: SmallVec<[&Tensor; 3]> = [x, weight].into_iter().chain(bias).collect();
    Ok(y.recorded_as(operation, &operands, &factors(x, weight), rule))
}

/// The gradient with respect to the input, with its own gradients.
#[cold]
#[track_caller]
pub(super) fn by_input_recorded(
    grad: &Tensor,
    weight: &Tensor,
    geometry: &Geometry,
) -> Result<Tensor> {
    let y = by_input(&grad.untracked(), &weight.untracked(), geometry)?;
    let geometry = geometry.clone();
    let rule = move |b: &Backward| {
        grads![b;
            b.grad.conv2d(of_first(b), None, &geometry.options)?,
            by_weight(of_second(b), &b.grad, &geometry)?,
        ]
    };
    let saves = factors(grad, weight);
    Ok(y.recorded_as(OPERATION, &[grad, weight], &saves, rule))
}

/// The gradient with respect to the weight, with its own gradients.
#[cold]
#[track_caller]
pub(super) fn by_weight_recorded(grad: &Tensor, x: &Tensor, geometry: &Geometry) -> Result<Tensor> {
    let y = by_weight(&grad.untracked(), &x.untracked(), geometry)?;
    let geometry = geometry.clone();
    let rule = move |b: &Backward| {
        grads![b;
            of_first(b).conv2d(&b.grad, None, &geometry.options)?,
            by_input(of_second(b), &b.grad, &geometry)?,
        ]
    };
    Ok(y.recorded_as(OPERATION, &[grad, x], &factors(grad, x), rule))
}

/// What the gradients of a product of two operands need: for each the other one. A frozen weight
/// thus keeps no input.
fn factors(first: &Tensor, second: &Tensor) -> SmallVec<[Save<'static>; 2]> {
    let others = [(first, Save::Operand(1)), (second, Save::Operand(0))];
    let are_needed = others
        .into_iter()
        .filter(|(operand, _)| operand.is_tracked());
    are_needed.map(|(_, other)| other).collect()
}

/// The factor of the first operand, if that needs a gradient.
fn of_first(b: &Backward) -> &Tensor {
    &b.saved[0]
}

/// The factor of the second operand, if that needs a gradient.
fn of_second(b: &Backward) -> &Tensor {
    &b.saved[b.saved.len() - 1]
}
