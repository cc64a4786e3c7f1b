//! The gradients of convolutions and of their gradients. A convolution is linear in its input and
//! in its weight. So the rules of the convolution and of these two gradients consist of each other.

use smallvec::SmallVec;

use super::backward::{OPERATION, by_input, by_weight};
use super::call::conv;
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
            by_input(&b.grad, b.factor_of_first(), &geometry)?,
            by_weight(&b.grad, b.factor_of_second(), &geometry)?,
            b.grad.sum(&[0, 2, 3])?,
        ]
    };
    let operands: SmallVec<[&Tensor; 3]> = [x, weight].into_iter().chain(bias).collect();
    Ok(y.recorded_as(operation, &operands, &Save::factors(x, weight), rule))
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
            b.grad.conv2d(b.factor_of_first(), None, &geometry.options)?,
            by_weight(b.factor_of_second(), &b.grad, &geometry)?,
        ]
    };
    let saves = Save::factors(grad, weight);
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
            b.factor_of_first().conv2d(&b.grad, None, &geometry.options)?,
            by_input(b.factor_of_second(), &b.grad, &geometry)?,
        ]
    };
    Ok(y.recorded_as(OPERATION, &[grad, x], &Save::factors(grad, x), rule))
}
