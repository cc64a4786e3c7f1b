//! The gradients of a convolution.

use super::columns;
use super::geometry::{Conv, Geometry, check_rank, longer};
use super::gradient::{by_input_recorded, by_weight_recorded};
use crate::ops::normalize::check_float;
use crate::ops::operation::same_dtype;
use crate::tensor::Tensor;
use crate::tensor::called::Called;
use lapidary_core::internal::MadeFor;
use lapidary_core::{DType, Error, Result};

pub(super) const OPERATION: &str = "conv2d_backward";

impl Tensor {
    /// The gradients of [`conv2d`](Tensor::conv2d) with respect to its input, its weight and its
    /// bias, as PyTorch's `convolution_backward`. `self` is the gradient with respect to the
    /// result.
    ///
    /// Each has the shape of its operand. Gradient and input may both lack the axis of samples. The
    /// gradient of the input is a convolution with the rotated kernel. The gradient of the weight
    /// uses [`matmul`](Tensor::matmul) on slabs of at most 16 MiB of patches, summed in f32.
    ///
    /// ```
    /// # use lapidary::{Tensor, operations::Conv};
    /// # fn demo(x: &Tensor, weight: &Tensor, bias: &Tensor, by_y: &Tensor) -> lapidary::Result<()> {
    /// let options = Conv::default();
    /// let y = x.conv2d(weight, Some(bias), &options)?;
    /// let [by_x, by_weight, by_bias] = by_y.conv2d_backward(x, weight, &options)?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`conv2d`](Tensor::conv2d). [`Error::Shape`] also unless `self` has the shape of
    /// its result.
    #[track_caller]
    pub fn conv2d_backward(
        &self,
        input: &Tensor,
        weight: &Tensor,
        options: &Conv<2>,
    ) -> Result<[Tensor; 3]> {
        let _method = MadeFor::method("conv2d_backward");
        if input.rank() == 3 && self.rank() == 3 {
            let [by_x, by_weight, by_bias] =
                self.unsqueeze(0)?
                    .conv2d_backward(&input.unsqueeze(0)?, weight, options)?;
            return Ok([by_x.squeeze_axis(0)?, by_weight, by_bias]);
        }
        check_float(OPERATION, self)?;
        for other in [input, weight] {
            self.same_engine(OPERATION, other)?;
            same_dtype(OPERATION, self.dtype, other.dtype)?;
        }
        let (options, more) = options.with_numbers(OPERATION, weight.shape()).located()?;
        let longer = longer(input, more)?;
        let geometry =
            Geometry::new(OPERATION, longer.shape(), weight.shape(), &options).located()?;
        let [height, width] = geometry.output;
        let expected = [geometry.samples, geometry.out_channels, height, width];
        if self.shape() != expected {
            return Err(Error::Shape {
                operation: OPERATION,
                reason: format!(
                    "the gradient has shape {:?}, and the result {expected:?}",
                    self.shape()
                ),
            })
            .located();
        }
        let by_longer = by_input(self, weight, None, &geometry).called(OPERATION)?;
        Ok([
            first_of_planes(by_longer, [input.shape()[2], input.shape()[3]])?,
            by_weight(self, &longer, &geometry).called(OPERATION)?,
            self.sum(&[0, 2, 3])?,
        ])
    }

    /// The gradients of [`conv1d`](Tensor::conv1d) with respect to its input, its weight and its
    /// bias. See [`conv2d_backward`](Tensor::conv2d_backward).
    ///
    /// # Errors
    ///
    /// Those of [`conv2d_backward`](Tensor::conv2d_backward).
    #[track_caller]
    pub fn conv1d_backward(
        &self,
        input: &Tensor,
        weight: &Tensor,
        options: &Conv<1>,
    ) -> Result<[Tensor; 3]> {
        let _method = MadeFor::method("conv1d_backward");
        check_rank("conv1d_backward", "weights", weight, 3)?;
        let rank = if input.rank() == 2 { 2 } else { 3 };
        for (what, x) in [("gradients", self), ("lines", input)] {
            check_rank("conv1d_backward", what, x, rank)?;
        }
        let [grad, input, weight] = [
            self.unsqueeze(-2)?,
            input.unsqueeze(-2)?,
            weight.unsqueeze(-2)?,
        ];
        let made = grad.conv2d_backward(&input, &weight, &options.over_rows());
        let [by_x, by_weight, by_bias] = made.called("conv1d_backward")?;
        Ok([by_x.squeeze_axis(-2)?, by_weight.squeeze_axis(-2)?, by_bias])
    }
}

/// The first rows and columns of each plane; `x` itself if there are no more.
#[track_caller]
pub(super) fn first_of_planes(x: Tensor, [height, width]: [usize; 2]) -> Result<Tensor> {
    match x.shape()[2..] == [height, width] {
        true => Ok(x),
        false => x.narrow(2, 0, height)?.narrow(3, 0, width)?.contiguous(),
    }
}

/// A convolution of stride 1 over the gradient, with the kernel rotated and its channels exchanged.
/// Zeros between the gradient's pixels stand for those that the stride skipped. `bias` is added.
#[track_caller]
pub(super) fn by_input(
    grad: &Tensor,
    weight: &Tensor,
    bias: Option<&Tensor>,
    geometry: &Geometry,
) -> Result<Tensor> {
    let operands = [Some(grad), Some(weight), bias];
    if operands.into_iter().flatten().any(Tensor::is_tracked) {
        return by_input_recorded(OPERATION, grad, weight, bias, geometry);
    }
    let Conv {
        stride,
        padding,
        dilation,
        groups,
    } = geometry.options;
    let channels = geometry.out_channels / groups;
    let [down, across] = geometry.kernel;
    let by_group = weight.reshape(&[groups, channels, geometry.channels(), down, across])?;
    let turned = by_group.transpose(1, 2)?.flip(&[-2, -1])?;
    let turned = turned.reshape(&[geometry.in_channels, channels, down, across])?;
    // Zeros around the gradient, so that the result has exactly the input's pixels.
    let before = [0, 1].map(|at| dilation[at] * (geometry.kernel[at] - 1));
    let whole = [0, 1].map(|at| geometry.input[at] + 2 * padding[at]);
    let room = [0, 1].map(|at| whole[at] + before[at]);
    let shape = [geometry.samples, geometry.out_channels, room[0], room[1]];
    let spread = crate::ops::fill::full(&grad.engine, &shape, 0.0.into(), grad.dtype)?;
    let mut to = spread.clone();
    for at in [0, 1] {
        let axis = at as isize + 2;
        let reach = (geometry.output[at] - 1) * stride[at] + 1;
        to = to.narrow(axis, before[at], reach)?;
        to = to.slice(axis, None, None, stride[at] as isize)?;
    }
    to.copy_(grad)?;
    let inner = spread
        .narrow(2, padding[0], geometry.input[0] + before[0])?
        .narrow(3, padding[1], geometry.input[1] + before[1])?;
    let options = Conv {
        dilation,
        groups,
        ..Conv::default()
    };
    inner.conv2d(&turned, bias, &options)
}

/// The sum over all slabs of the gradient times the patches.
#[track_caller]
pub(super) fn by_weight(grad: &Tensor, x: &Tensor, geometry: &Geometry) -> Result<Tensor> {
    if grad.is_tracked() || x.is_tracked() {
        return by_weight_recorded(grad, x, geometry);
    }
    let groups = geometry.groups;
    let channels = geometry.out_channels / groups;
    let shape = [groups, channels, geometry.taps()];
    let sum = crate::ops::fill::full(&grad.engine, &shape, 0.0.into(), DType::F32)?;
    let slabs = columns::Slabs::new(x, geometry)?;
    for range in slabs.ranges() {
        let [sample, samples, row, rows] = range;
        let patches = slabs.patches(range)?.transpose(-2, -1)?;
        let part = grad.narrow(0, sample, samples)?.narrow(2, row, rows)?;
        let part = part.reshape(&[samples, groups, channels, rows * geometry.output[1]])?;
        let (part, patches) = (part.cast(DType::F32)?, patches.cast(DType::F32)?);
        sum.add_(&part.matmul(&patches)?.sum(&[0])?)?;
    }
    sum.cast(grad.dtype)?.reshape(&geometry.weight())
}
