//! The sizes of a convolution or a pooling, also as the kernel gets them, and views of its windows.

use bytemuck::{Pod, Zeroable};

use crate::ops::fill::full;
use crate::tensor::Tensor;
use crate::tensor::called::Called;
use crate::tensor::layout::{Dims, Layout, Strides};
use lapidary_core::{Error, Result};

/// Options of a convolution over `N` dimensions: the arguments that PyTorch's `conv1d` and `conv2d`
/// take after the bias. The default is stride 1, no padding, dilation 1, one group.
///
/// ```
/// use lapidary::operations::Conv;
///
/// let same = Conv { padding: [1, 1], ..Conv::default() };
/// assert_eq!((same.stride, same.groups), ([1, 1], 1));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Conv<const N: usize> {
    /// Elements from one window to the next, along each dimension.
    pub stride: [usize; N],
    /// Zeros before and after each dimension; [`SAME`](Conv::SAME) keeps the sizes.
    pub padding: [usize; N],
    /// Elements from one tap of the kernel to the next.
    pub dilation: [usize; N],
    /// The number of groups of channels. Each group sees only its own channels.
    pub groups: usize,
}

impl<const N: usize> Default for Conv<N> {
    fn default() -> Self {
        Conv {
            stride: [1; N],
            padding: [0; N],
            dilation: [1; N],
            groups: 1,
        }
    }
}

impl<const N: usize> Conv<N> {
    /// The padding with which the result is as large as the input: PyTorch's `padding="same"`. It
    /// needs stride 1. If the number of zeros is odd, one more stands after the dimension. As a
    /// number it is none that a padding can be.
    ///
    /// ```
    /// # use lapidary::{Tensor, operations::Conv};
    /// # fn demo(x: &Tensor, weight: &Tensor) -> lapidary::Result<()> {
    /// let options = Conv { padding: Conv::SAME, ..Conv::default() };
    /// let y = x.conv2d(weight, None, &options)?;
    /// # Ok(()) }
    /// ```
    // The largest number is what a mistake gives, and stays refused.
    pub const SAME: [usize; N] = [usize::MAX - 1; N];
}

impl Conv<2> {
    /// The same with numbers for [`SAME`](Conv::SAME), and the zeros that come after each dimension
    /// in addition.
    pub(super) fn with_numbers(
        &self,
        operation: &'static str,
        weight: &[usize],
    ) -> Result<(Self, [usize; 2])> {
        let (mut options, mut more) = (*self, [0; 2]);
        for at in [0, 1] {
            if self.padding[at] != Self::SAME[at] {
                continue;
            }
            if self.stride[at] != 1 {
                return Err(Error::Shape {
                    operation,
                    reason: format!("the padding `SAME` needs stride 1, not {}", self.stride[at]),
                });
            }
            let taps = weight.get(2 + at).copied().unwrap_or(1);
            let zeros = taps.saturating_sub(1).saturating_mul(self.dilation[at]);
            (options.padding[at], more[at]) = (zeros / 2, zeros % 2);
        }
        Ok((options, more))
    }
}

impl Conv<1> {
    /// The same for a plane of one row.
    pub(super) fn over_rows(&self) -> Conv<2> {
        Conv {
            stride: [1, self.stride[0]],
            padding: [0, self.padding[0]],
            dilation: [1, self.dilation[0]],
            groups: self.groups,
        }
    }
}

/// `x` with an axis of samples, and whether it had one.
#[track_caller]
pub(super) fn as_batch(x: &Tensor, rank: usize) -> Result<(Tensor, bool)> {
    match x.rank() + 1 == rank {
        true => Ok((x.unsqueeze(0)?, false)),
        false => Ok((x.clone(), true)),
    }
}

/// A convolution's sizes.
#[derive(Clone, Debug)]
pub(super) struct Geometry {
    pub(super) samples: usize,
    pub(super) in_channels: usize,
    pub(super) out_channels: usize,
    pub(super) groups: usize,
    pub(super) input: [usize; 2],
    pub(super) kernel: [usize; 2],
    pub(super) output: [usize; 2],
    pub(super) options: Conv<2>,
}

/// `struct Params` of `shaders/conv.wgsl`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub(super) struct Params {
    /// Samples, input channels of a group, output channels of a group, groups.
    pub(super) size: [u32; 4],
    /// Height and width of x, of y.
    pub(super) planes: [u32; 4],
    /// Height, width, stride down, stride across.
    pub(super) kernel: [u32; 4],
    /// Padding above, to the left; dilation down, across.
    pub(super) margin: [u32; 4],
    /// Strides of x.
    pub(super) x: [u32; 4],
    /// The starts of x, the weights and the bias; elements of a channel of y.
    pub(super) starts: [u32; 4],
}

/// Returns an error for another number of dimensions.
#[track_caller]
pub(super) fn check_rank(
    operation: &'static str,
    what: &str,
    x: &Tensor,
    rank: usize,
) -> Result<()> {
    match x.rank() == rank {
        true => Ok(()),
        false => Err(Error::Shape {
            operation,
            reason: format!(
                "the {what} have shape {:?}, which does not have {rank} dimensions",
                x.shape()
            ),
        })
        .located(),
    }
}

/// The number of windows along a dimension.
fn output_size(
    operation: &'static str,
    input: usize,
    kernel: usize,
    stride: usize,
    padding: usize,
    dilation: usize,
) -> Result<usize> {
    let refuse = |reason: String| Err(Error::Shape { operation, reason });
    if stride == 0 || dilation == 0 || kernel == 0 {
        return refuse("strides, dilations and kernels are at least 1".into());
    }
    let most = i32::MAX as usize;
    if [input, kernel, stride, padding, dilation]
        .iter()
        .any(|&size| size > most)
    {
        return refuse(format!(
            "sizes, strides, paddings and dilations are at most {most}"
        ));
    }
    let reach = (kernel - 1) as u64 * dilation as u64 + 1;
    let whole = input as u64 + 2 * padding as u64;
    match whole.checked_sub(reach) {
        Some(room) => Ok((room / stride as u64) as usize + 1),
        None => refuse(format!(
            "a kernel that spans {reach} elements is larger than the input, {whole} elements with its padding"
        )),
    }
}

impl Geometry {
    pub(super) fn new(
        operation: &'static str,
        x: &[usize],
        weight: &[usize],
        options: &Conv<2>,
    ) -> Result<Self> {
        let refuse = |reason: String| Err(Error::Shape { operation, reason });
        let (&[samples, in_channels, height, width], &[out_channels, own, down, across]) =
            (x, weight)
        else {
            return refuse(format!(
                "the input {x:?} and the weight {weight:?} need four dimensions each"
            ));
        };
        let groups = options.groups;
        let divide =
            groups > 0 && in_channels.is_multiple_of(groups) && out_channels.is_multiple_of(groups);
        if !divide {
            return refuse(format!(
                "{groups} groups do not divide {in_channels} channels of input and {out_channels} of output"
            ));
        }
        if in_channels / groups != own {
            return refuse(format!(
                "the weight {weight:?} takes {own} channels, and a group of the input {x:?} has {}",
                in_channels / groups
            ));
        }
        let along = |at: usize, input, kernel| {
            output_size(
                operation,
                input,
                kernel,
                options.stride[at],
                options.padding[at],
                options.dilation[at],
            )
        };
        Ok(Geometry {
            samples,
            in_channels,
            out_channels,
            groups,
            input: [height, width],
            kernel: [down, across],
            output: [along(0, height, down)?, along(1, width, across)?],
            options: *options,
        })
    }

    /// Input channels of a group.
    pub(super) fn channels(&self) -> usize {
        self.in_channels / self.groups
    }

    /// Products that are summed in one element of the result.
    pub(super) fn taps(&self) -> usize {
        self.channels() * self.kernel[0] * self.kernel[1]
    }

    /// The result's shape.
    pub(super) fn result(&self) -> [usize; 4] {
        let [height, width] = self.output;
        [self.samples, self.out_channels, height, width]
    }

    /// The weight's shape.
    pub(super) fn weight(&self) -> [usize; 4] {
        let [down, across] = self.kernel;
        [self.out_channels, self.channels(), down, across]
    }

    /// Multiply-adds.
    pub(super) fn work(&self) -> u64 {
        let result = self.result();
        (result.iter().chain([&self.taps()]))
            .fold(1, |work: u64, &size| work.saturating_mul(size as u64))
    }

    /// The parameters, except for those that depend on the tensors' layouts.
    pub(super) fn params(&self) -> Params {
        let [down, across] = self.options.stride;
        let [above, left] = self.options.padding;
        let [far_down, far_across] = self.options.dilation;
        let as_words = |sizes: [usize; 4]| sizes.map(|size| size as u32);
        Params {
            size: as_words([
                self.samples,
                self.channels(),
                self.out_channels / self.groups,
                self.groups,
            ]),
            planes: as_words([self.input[0], self.input[1], self.output[0], self.output[1]]),
            kernel: as_words([self.kernel[0], self.kernel[1], down, across]),
            margin: as_words([above, left, far_down, far_across]),
            x: [0; 4],
            starts: [0; 4],
        }
    }
}

/// `x`, `[samples, channels, height, width]`, with zeros after each row and column.
#[track_caller]
pub(super) fn longer(x: &Tensor, zeros: [usize; 2]) -> Result<Tensor> {
    match zeros {
        [0, 0] => Ok(x.clone()),
        [below, right] if x.rank() == 4 => x.pad(&[(0, 0), (0, 0), (0, below), (0, right)], 0),
        // The check of the shapes refuses it.
        _ => Ok(x.clone()),
    }
}

/// The strides of four dimensions.
pub(super) fn strides(x: &Tensor) -> [u32; 4] {
    let all = &x.layout.strides;
    [0, 1, 2, 3].map(|axis| all[axis] as u32)
}

/// A copy of `x`, `[samples, channels, height, width]`, with elements of `value` before and after
/// the rows and the columns of each plane. Returns `x` itself without padding.
#[track_caller]
pub(in crate::ops) fn padded(
    x: &Tensor,
    before: [usize; 2],
    after: [usize; 2],
    value: f64,
) -> Result<Tensor> {
    if before == [0, 0] && after == [0, 0] {
        return Ok(x.clone());
    }
    let [height, width] = [x.shape()[2], x.shape()[3]];
    let shape = [
        x.shape()[0],
        x.shape()[1],
        height + before[0] + after[0],
        width + before[1] + after[1],
    ];
    let whole = full(&x.engine, &shape, value.into(), x.dtype)?;
    let middle = whole
        .narrow(2, before[0], height)?
        .narrow(3, before[1], width)?;
    middle.copy_(x)?;
    Ok(whole)
}

/// A view of every window of the padded `x`:
/// `[samples, channels, output rows, output columns, kernel rows, kernel columns]`.
pub(in crate::ops) fn windows(
    x: &Tensor,
    output: [usize; 2],
    kernel: [usize; 2],
    stride: [usize; 2],
    dilation: [usize; 2],
) -> Tensor {
    let own = &x.layout;
    let mut shape: Dims = own.shape[..2].into();
    shape.extend(output.into_iter().chain(kernel));
    let mut strides: Strides = own.strides[..2].into();
    let planes = [own.strides[2], own.strides[3]];
    let steps = |by: [usize; 2]| [0, 1].map(|at| planes[at].wrapping_mul(by[at] as isize));
    strides.extend(steps(stride).into_iter().chain(steps(dilation)));
    x.view(Layout {
        shape,
        strides,
        offset: own.offset,
    })
}
