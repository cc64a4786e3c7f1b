//! The gradients of convolutions and of their gradients. A convolution is linear in its input and
//! in its weight. So the rules of the convolution and of these two gradients consist of each other.

use smallvec::SmallVec;

use super::backward::{OPERATION, by_input, by_weight, first_of_planes};
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
            by_input(&b.grad, b.factor_of_first(), None, &geometry)?,
            by_weight(&b.grad, b.factor_of_second(), &geometry)?,
            b.grad.sum(&[0, 2, 3])?,
        ]
    };
    let operands: SmallVec<[&Tensor; 3]> = [x, weight].into_iter().chain(bias).collect();
    Ok(y.recorded_as(operation, &operands, &Save::factors(x, weight), rule))
}

/// The gradient with respect to the input plus `bias`, with its own gradients.
#[cold]
#[track_caller]
pub(super) fn by_input_recorded(
    operation: &'static str,
    grad: &Tensor,
    weight: &Tensor,
    bias: Option<&Tensor>,
    geometry: &Geometry,
) -> Result<Tensor> {
    let constant = bias.map(Tensor::untracked);
    let plain = [grad.untracked(), weight.untracked()];
    let y = by_input(&plain[0], &plain[1], constant.as_ref(), geometry)?;
    let geometry = geometry.clone();
    let rule = move |b: &Backward| {
        grads![b;
            forward(&b.grad, b.factor_of_first(), &geometry)?,
            by_weight(b.factor_of_second(), &b.grad, &geometry)?,
            b.grad.sum(&[0, 2, 3])?,
        ]
    };
    let saves = Save::factors(grad, weight);
    let operands: SmallVec<[&Tensor; 3]> = [grad, weight].into_iter().chain(bias).collect();
    Ok(y.recorded_as(operation, &operands, &saves, rule))
}

/// The convolution whose gradients these are.
#[track_caller]
fn forward(x: &Tensor, weight: &Tensor, geometry: &Geometry) -> Result<Tensor> {
    let y = x.conv2d(weight, None, &geometry.options)?;
    // The padding of the result of a transposed convolution may make room for more windows.
    first_of_planes(y, geometry.output)
}

/// The gradient with respect to the weight, with its own gradients.
#[cold]
#[track_caller]
pub(super) fn by_weight_recorded(grad: &Tensor, x: &Tensor, geometry: &Geometry) -> Result<Tensor> {
    let y = by_weight(&grad.untracked(), &x.untracked(), geometry)?;
    let geometry = geometry.clone();
    let rule = move |b: &Backward| {
        grads![b;
            forward(b.factor_of_first(), &b.grad, &geometry)?,
            by_input(b.factor_of_second(), &b.grad, None, &geometry)?,
        ]
    };
    Ok(y.recorded_as(OPERATION, &[grad, x], &Save::factors(grad, x), rule))
}
