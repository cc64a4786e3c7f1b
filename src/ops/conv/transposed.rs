//! Transposed convolutions: the gradients of convolutions by their inputs, as operations of their
//! own.

use super::backward::by_input;
use super::geometry::{Conv, Geometry, as_batch, check_rank};
use super::gradient::by_input_recorded;
use crate::ops::normalize::check_float;
use crate::ops::operation::same_dtype;
use crate::tensor::Tensor;
use crate::tensor::called::Called;
use lapidary_core::internal::MadeFor;
use lapidary_core::{Error, Result};

/// Options of a transposed convolution over `N` dimensions: the arguments that PyTorch's
/// `conv_transpose1d` and `conv_transpose2d` take after the bias. The default is stride 1, no
/// padding, dilation 1, one group.
///
/// ```
/// use lapidary::operations::ConvTranspose;
///
/// let twice = ConvTranspose { stride: [2, 2], ..ConvTranspose::default() };
/// assert_eq!((twice.output_padding, twice.groups), ([0, 0], 1));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ConvTranspose<const N: usize> {
    /// Elements of the result from one element of the input to the next, along each dimension.
    pub stride: [usize; N],
    /// Elements that are cut off before and after each dimension of the result.
    pub padding: [usize; N],
    /// Elements of the result in addition, after each dimension. Less than the stride or the
    /// dilation.
    pub output_padding: [usize; N],
    /// Elements from one tap of the kernel to the next.
    pub dilation: [usize; N],
    /// The number of groups of channels. Each group sees only its own channels.
    pub groups: usize,
}

impl<const N: usize> Default for ConvTranspose<N> {
    fn default() -> Self {
        ConvTranspose {
            stride: [1; N],
            padding: [0; N],
            output_padding: [0; N],
            dilation: [1; N],
            groups: 1,
        }
    }
}

impl ConvTranspose<1> {
    /// The same for a plane of one row.
    fn over_rows(&self) -> ConvTranspose<2> {
        ConvTranspose {
            stride: [1, self.stride[0]],
            padding: [0, self.padding[0]],
            output_padding: [0, self.output_padding[0]],
            dilation: [1, self.dilation[0]],
            groups: self.groups,
        }
    }
}

impl Tensor {
    /// The transposed convolution of `[samples, channels, length]` with `weight`, of
    /// `[channels, out / groups, kernel]`, and `bias`, of `[out]`, as in PyTorch. See
    /// [`conv_transpose2d`](Tensor::conv_transpose2d).
    ///
    /// ```
    /// # use lapidary::{Tensor, operations::ConvTranspose};
    /// # fn demo(x: &Tensor, weight: &Tensor) -> lapidary::Result<()> {
    /// let options = ConvTranspose { stride: [2], ..ConvTranspose::default() };
    /// let y = x.conv_transpose1d(weight, None, &options)?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`conv_transpose2d`](Tensor::conv_transpose2d).
    #[track_caller]
    pub fn conv_transpose1d(
        &self,
        weight: &Tensor,
        bias: Option<&Tensor>,
        options: &ConvTranspose<1>,
    ) -> Result<Tensor> {
        const OPERATION: &str = "conv_transpose1d";
        let _method = MadeFor::method(OPERATION);
        check_rank(OPERATION, "weight", weight, 3)?;
        let (x, is_batch) = as_batch(self, 3)?;
        check_rank(OPERATION, "lines", &x, 3)?;
        let (x, weight) = (x.unsqueeze(-2)?, weight.unsqueeze(-2)?);
        let y = transposed(OPERATION, &x, &weight, bias, &options.over_rows())?;
        let y = y.squeeze_axis(-2)?;
        match is_batch {
            true => Ok(y),
            false => y.squeeze_axis(0),
        }
    }

    /// The transposed convolution of `[samples, channels, height, width]` with `weight`, of
    /// `[channels, out / groups, kernel height, kernel width]`, and `bias`, of `[out]`, as in
    /// PyTorch: the gradient of a [`conv2d`](Tensor::conv2d) by its input. The result is
    /// `[samples, out, (height − 1) · stride − 2 · padding + dilation · (kernel − 1) +
    /// output_padding + 1, …]`. The input may lack the axis of samples; then the result lacks it
    /// too.
    ///
    /// All operands have one float type; sums are in f32. The input may be any view. The input with
    /// zeros between its elements takes the memory of a tensor somewhat larger than the result.
    ///
    /// ```
    /// # use lapidary::{Tensor, operations::ConvTranspose};
    /// # fn demo(x: &Tensor, weight: &Tensor, bias: &Tensor) -> lapidary::Result<()> {
    /// let options = ConvTranspose {
    ///     stride: [2, 2],
    ///     padding: [1, 1],
    ///     output_padding: [1, 1],
    ///     ..ConvTranspose::default()
    /// };
    /// let y = x.conv_transpose2d(weight, Some(bias), &options)?; // Twice as large for kernel 3.
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Shape`] if the shapes do not match, the input or the result has no pixels, or a
    /// stride, a dilation or the number of groups is 0. Also for an output padding that is neither
    /// less than the stride nor than the dilation. [`Error::DType`] for integers, bools and types
    /// that differ. [`Error::Foreign`] for tensors of another `Gpu`.
    #[track_caller]
    pub fn conv_transpose2d(
        &self,
        weight: &Tensor,
        bias: Option<&Tensor>,
        options: &ConvTranspose<2>,
    ) -> Result<Tensor> {
        let _method = MadeFor::method("conv_transpose2d");
        let (x, is_batch) = as_batch(self, 4)?;
        let y = transposed("conv_transpose2d", &x, weight, bias, options)?;
        match is_batch {
            true => Ok(y),
            false => y.squeeze_axis(0),
        }
    }
}

/// The transposed convolution of planes.
#[track_caller]
fn transposed(
    operation: &'static str,
    x: &Tensor,
    weight: &Tensor,
    bias: Option<&Tensor>,
    options: &ConvTranspose<2>,
) -> Result<Tensor> {
    check_float(operation, x)?;
    for other in [Some(weight), bias].into_iter().flatten() {
        x.same_engine(operation, other)?;
        same_dtype(operation, x.dtype, other.dtype)?;
    }
    let geometry = geometry(operation, x.shape(), weight.shape(), options).located()?;
    if let Some(bias) = bias.filter(|bias| bias.shape() != [geometry.in_channels]) {
        return Err(Error::Shape {
            operation,
            reason: format!(
                "the bias has shape {:?}, not [{}]",
                bias.shape(),
                geometry.in_channels
            ),
        })
        .located();
    }
    let operands = [Some(x), Some(weight), bias];
    let made = match operands.into_iter().flatten().any(Tensor::is_tracked) {
        true => by_input_recorded(operation, x, weight, bias, &geometry),
        false => by_input(x, weight, bias, &geometry),
    };
    made.called(operation)
}

/// The sizes of the convolution of which this is the gradient. Its input is our result.
fn geometry(
    operation: &'static str,
    x: &[usize],
    weight: &[usize],
    options: &ConvTranspose<2>,
) -> Result<Geometry> {
    let refuse = |reason: String| Err(Error::Shape { operation, reason });
    let (&[samples, channels, height, width], &[from, own, down, across]) = (x, weight) else {
        return refuse(format!(
            "the input {x:?} and the weight {weight:?} need four dimensions each"
        ));
    };
    let groups = options.groups;
    if groups == 0 || !channels.is_multiple_of(groups) {
        return refuse(format!(
            "{groups} groups do not divide {channels} channels of input"
        ));
    }
    if from != channels {
        return refuse(format!(
            "the weight {weight:?} takes {from} channels, and the input {x:?} has {channels}"
        ));
    }
    let along = |at, input, kernel| size_along(operation, options, at, input, kernel);
    Ok(Geometry {
        samples,
        in_channels: own.saturating_mul(groups),
        out_channels: channels,
        groups,
        input: [along(0, height, down)?, along(1, width, across)?],
        kernel: [down, across],
        output: [height, width],
        options: Conv {
            stride: options.stride,
            padding: options.padding,
            dilation: options.dilation,
            groups,
        },
    })
}

/// The size of the result along a dimension.
fn size_along(
    operation: &'static str,
    options: &ConvTranspose<2>,
    at: usize,
    input: usize,
    kernel: usize,
) -> Result<usize> {
    let refuse = |reason: String| Err(Error::Shape { operation, reason });
    let (stride, dilation) = (options.stride[at], options.dilation[at]);
    let (padding, more) = (options.padding[at], options.output_padding[at]);
    if [input, kernel, stride, dilation].contains(&0) {
        return refuse("inputs, kernels, strides and dilations are at least 1".into());
    }
    let most = i32::MAX as usize;
    if [input, kernel, stride, dilation, padding]
        .iter()
        .any(|&size| size > most)
    {
        return refuse(format!(
            "sizes, strides, paddings and dilations are at most {most}"
        ));
    }
    if more >= stride.max(dilation) {
        return refuse(format!(
            "an output padding of {more} is neither less than the stride {stride} nor than the \
             dilation {dilation}"
        ));
    }
    let reach = (kernel - 1) as u64 * dilation as u64 + 1;
    let whole = (input - 1) as u64 * stride as u64 + reach + more as u64;
    match whole.checked_sub(2 * padding as u64) {
        Some(size) if (1..=most as u64).contains(&size) => Ok(size as usize),
        _ => refuse(format!(
            "a padding of {padding} on both sides of {whole} elements leaves no size from 1 to \
             {most}"
        )),
    }
}
