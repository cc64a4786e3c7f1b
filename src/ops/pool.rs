//! Maxima and means of windows. Forward, a window is a row of a view, which the reductions fold;
//! the kernel of this family is the gradient.

use std::borrow::Cow;

use bytemuck::{Pod, Zeroable};

use super::conv::{output_size, padded, windows};
use super::elementwise::{arg, groups};
use super::long::{assemble, part};
use super::normalize::check_float;
use super::operation::same_dtype;
use super::text::push_sections;
use crate::driver::AdapterKind;
use crate::engine::{Kernel, Launch, Operand, Variant};
use crate::error::{Error, Result};
use crate::tensor::Tensor;

const WGSL: &str = include_str!("../../shaders/pool.wgsl");

/// `y` is the gradient by `x`, `g` that by the result.
static POOL: Kernel = Kernel {
    name: "pool",
    operands: &[Operand::read("x"), Operand::read("g"), Operand::write("y")],
    text,
    #[cfg(any(test, feature = "sim"))]
    twin: super::twin::pool::run,
};

/// Windows of `N` dimensions: the arguments of PyTorch's pooling.
///
/// ```
/// use lapidary::Pool;
///
/// let halves = Pool::new([2, 2]);
/// assert_eq!((halves.stride, halves.padding), ([2, 2], [0, 0]));
/// let overlapping = Pool { stride: [2, 2], padding: [1, 1], ..Pool::new([3, 3]) };
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Pool<const N: usize> {
    /// Elements of a window along each dimension.
    pub kernel: [usize; N],
    /// Elements from one window to the next.
    pub stride: [usize; N],
    /// Elements before and after each dimension, at most half the kernel: zeros of a mean, and
    /// never a maximum.
    pub padding: [usize; N],
}

impl<const N: usize> Pool<N> {
    /// Windows that lie side by side.
    pub fn new(kernel: [usize; N]) -> Self {
        Pool {
            kernel,
            stride: kernel,
            padding: [0; N],
        }
    }
}

impl Pool<1> {
    /// The same over one row of a plane.
    fn over_planes(&self) -> Pool<2> {
        Pool {
            kernel: [1, self.kernel[0]],
            stride: [1, self.stride[0]],
            padding: [0, self.padding[0]],
        }
    }
}

impl Pool<2> {
    fn over_planes(&self) -> Pool<2> {
        *self
    }
}

/// What a window is folded to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fold {
    Avg,
    Max,
}

/// llvmpipe leaves the loops of an invocation, which makes four elements, after 65,535 rounds in all of
/// them.
const MOST_ROUNDS: u64 = 15_000;

/// `struct Params` of `shaders/pool.wgsl`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub(super) struct Params {
    /// Samples times channels, height and width of x, height of y.
    pub(super) planes: [u32; 4],
    /// Width of y, height and width of the kernel, stride down.
    pub(super) kernel: [u32; 4],
    /// Stride across, padding above, to the left, where x starts.
    pub(super) margin: [u32; 4],
    /// Where the gradient starts.
    pub(super) rest: [u32; 4],
}

/// The methods of both dimensions: name, its gradient, the fold, what is said of them.
macro_rules! pools {
    ($($forward:ident $backward:ident $dims:literal $fold:ident $shape:literal $what:literal;)*) => {
        impl Tensor {
            $(
            #[doc = concat!("The ", $what, " of every window of `", $shape, "`, as PyTorch's `", stringify!($forward), "`. \
                NaN makes its windows NaN; padding counts as zeros of a mean, and not at all for a maximum.")]
            ///
            /// ```
            /// # use lapidary::{Pool, Tensor};
            /// # fn demo(x: &Tensor) -> lapidary::Result<()> {
            #[doc = concat!("let y = x.", stringify!($forward), "(&Pool::new([2; ", stringify!($dims), "]))?;")]
            /// # Ok(()) }
            /// ```
            ///
            /// # Errors
            ///
            /// [`Error::Shape`] for another number of dimensions, a kernel or stride of 0, a padding
            /// of more than half the kernel, or a kernel larger than the padded input;
            /// [`Error::DType`] unless it is f32, f16 or bf16.
            #[track_caller]
            pub fn $forward(&self, pool: &Pool<$dims>) -> Result<Tensor> {
                let call = Call::new(stringify!($forward), self, $dims, pool.over_planes())?;
                call.forward(Fold::$fold)
            }

            #[doc = concat!("The gradient of [`", stringify!($forward), "`](Tensor::", stringify!($forward),
                ") by its input, where `self` is that by its result.")]
            ///
            /// # Errors
            ///
            #[doc = concat!("Those of [`", stringify!($forward), "`](Tensor::", stringify!($forward), "), ")]
            /// [`Error::Shape`] unless `self` has the shape of the result, and on a software adapter
            /// for windows of very many elements; [`Error::Foreign`].
            #[track_caller]
            pub fn $backward(&self, input: &Tensor, pool: &Pool<$dims>) -> Result<Tensor> {
                let call = Call::new(stringify!($backward), input, $dims, pool.over_planes())?;
                call.backward(Fold::$fold, self)
            }
            )*
        }
    };
}

pools! {
    max_pool1d max_pool1d_backward 1 Max "[samples, channels, length]" "maximum";
    avg_pool1d avg_pool1d_backward 1 Avg "[samples, channels, length]" "mean";
    max_pool2d max_pool2d_backward 2 Max "[samples, channels, height, width]" "maximum";
    avg_pool2d avg_pool2d_backward 2 Avg "[samples, channels, height, width]" "mean";
}

/// A pooling of planes.
struct Call {
    operation: &'static str,
    /// `[samples, channels, height, width]`.
    x: Tensor,
    pool: Pool<2>,
    output: [usize; 2],
    /// Dimensions that are pooled: of one, the planes have one row.
    dims: usize,
}

impl Call {
    fn new(operation: &'static str, x: &Tensor, dims: usize, pool: Pool<2>) -> Result<Call> {
        check_float(operation, x)?;
        let refuse = |reason: String| Err(Error::Shape { operation, reason });
        if x.rank() != dims + 2 {
            return refuse(format!(
                "shape {:?} is not samples, channels and {dims} more",
                x.shape()
            ));
        }
        let x = planes(x, dims)?;
        let mut output = [0; 2];
        for (at, output) in output.iter_mut().enumerate() {
            let (kernel, padding) = (pool.kernel[at], pool.padding[at]);
            if padding > kernel / 2 {
                return refuse(format!(
                    "a padding of {padding} is more than half of a kernel of {kernel}"
                ));
            }
            let input = x.shape()[2 + at];
            *output = output_size(operation, input, kernel, pool.stride[at], padding, 1)?;
        }
        Ok(Call {
            operation,
            x,
            pool,
            output,
            dims,
        })
    }

    #[track_caller]
    fn forward(&self, fold: Fold) -> Result<Tensor> {
        let Pool {
            kernel,
            stride,
            padding,
        } = self.pool;
        let outside = match fold {
            Fold::Avg => 0.0,
            Fold::Max => f64::NEG_INFINITY,
        };
        let x = padded(&self.x, padding, outside)?;
        let windows = windows(&x, self.output, kernel, stride, [1, 1]);
        let y = match fold {
            Fold::Avg => windows.mean(&[-2, -1])?,
            Fold::Max => windows.max(&[-2, -1])?,
        };
        self.lines(y)
    }

    #[track_caller]
    fn backward(&self, fold: Fold, grad: &Tensor) -> Result<Tensor> {
        let operation = self.operation;
        self.x.same_engine(operation, grad)?;
        same_dtype(operation, self.x.dtype, grad.dtype)?;
        let [samples, channels, height, width] = [0, 1, 2, 3].map(|axis| self.x.shape()[axis]);
        let expected = [samples, channels, self.output[0], self.output[1]];
        let is_right = grad.rank() == self.dims + 2;
        let given = if is_right {
            planes(grad, self.dims)?
        } else {
            grad.clone()
        };
        if given.shape() != expected {
            return Err(Error::Shape {
                operation,
                reason: format!(
                    "the gradient has shape {:?}, and the windows of {:?} are {:?}",
                    grad.shape(),
                    self.x.shape(),
                    self.output
                ),
            });
        }
        self.check_rounds(fold)?;
        let count = samples * channels;
        let x = self.x.reshape(&[count, height, width])?;
        let g = given.reshape(&[count, self.output[0], self.output[1]])?;
        let work = self.rounds(fold).saturating_mul(x.len() as u64);
        let most_work = x.engine.caps().most_work;
        let y = match part(work, most_work, count, 1) {
            None => self.gradient(fold, &x, &g)?,
            Some(step) => assemble(&x, x.shape(), x.dtype, (0, step), |start, len| {
                self.gradient(fold, &x.narrow(0, start, len)?, &g.narrow(0, start, len)?)
            })?,
        };
        self.lines(y.reshape(self.x.shape())?)
    }

    /// The gradient by some planes, `x`, where `g` is that by their windows.
    #[track_caller]
    fn gradient(&self, fold: Fold, x: &Tensor, g: &Tensor) -> Result<Tensor> {
        let y = Tensor::output(&x.engine, x.shape(), x.dtype)?;
        if y.is_empty() {
            return Ok(y);
        }
        let (x, g) = (x.contiguous()?, g.contiguous()?);
        let Pool {
            kernel,
            stride,
            padding,
        } = self.pool;
        let [planes, height, width] = [0, 1, 2].map(|axis| x.shape()[axis]);
        let words = |sizes: [usize; 4]| sizes.map(|size| size as u32);
        let params = Params {
            planes: words([planes, height, width, self.output[0]]),
            kernel: words([self.output[1], kernel[0], kernel[1], stride[0]]),
            margin: words([stride[1], padding[0], padding[1], x.layout.offset]),
            rest: words([g.layout.offset, 0, 0, 0]),
        };
        let groups = groups(y.engine.caps(), (y.len() as u64).div_ceil(4));
        let args = [arg(&x, false), arg(&g, false), arg(&y, true)];
        let launch = Launch::new(&POOL, fold as u64, args, &params, groups);
        let work = self.rounds(fold).saturating_mul(y.len() as u64);
        y.engine.launch(launch.with_work(work))?;
        Ok(y)
    }

    /// Steps that an element of the gradient takes: windows that it is in, times what each looks at.
    fn rounds(&self, fold: Fold) -> u64 {
        let Pool { kernel, stride, .. } = self.pool;
        let own = |at: usize| (kernel[at].div_ceil(stride[at].max(1)).min(self.output[at])) as u64;
        let windows = own(0).saturating_mul(own(1));
        let elements = (kernel[0] as u64).saturating_mul(kernel[1] as u64);
        match fold {
            Fold::Avg => windows,
            Fold::Max => windows.saturating_mul(elements),
        }
    }

    /// Refuses windows whose gradient a software adapter would leave unfinished.
    fn check_rounds(&self, fold: Fold) -> Result<()> {
        let (kernel, rounds) = (self.pool.kernel, self.rounds(fold));
        if self.x.engine.caps().kind != AdapterKind::Cpu || rounds <= MOST_ROUNDS {
            return Ok(());
        }
        Err(Error::Shape {
            operation: self.operation,
            reason: format!(
                "an element of the gradient takes {rounds} steps with windows of {kernel:?}, and a software \
                 adapter goes {MOST_ROUNDS}: use smaller windows, or several poolings one after the other"
            ),
        })
    }

    /// The result with as many dimensions as the input had.
    fn lines(&self, y: Tensor) -> Result<Tensor> {
        match self.dims {
            1 => y.squeeze_axis(2),
            _ => Ok(y),
        }
    }
}

fn planes(x: &Tensor, dims: usize) -> Result<Tensor> {
    match dims {
        1 => x.unsqueeze(2),
        _ => Ok(x.clone()),
    }
}

pub(super) fn fold_of(code: u64) -> Fold {
    match code {
        0 => Fold::Avg,
        _ => Fold::Max,
    }
}

/// The WGSL of a variant.
fn text(variant: &Variant) -> Cow<'static, str> {
    let share = match fold_of(variant.code) {
        Fold::Avg => "avg",
        Fold::Max => "max",
    };
    let mut out = String::new();
    push_sections(&mut out, WGSL, &["frame", share]);
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DType;
    use crate::ops::check::valid;

    #[test]
    fn every_text_is_a_valid_shader() {
        for dtype in [DType::F32, DType::F16, DType::Bf16] {
            for fold in [Fold::Avg, Fold::Max] {
                valid(&POOL, fold as u64, &[dtype; 3], 0b100);
            }
        }
    }
}
