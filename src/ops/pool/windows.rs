//! The positions of a pooling's windows, and the divisors of their means.

use bytemuck::{Pod, Zeroable};

use super::kernel::PoolFold;
use super::options::Pool;
use lapidary_core::{Error, Result};

/// The windows of planes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Windows {
    pub(super) input: [usize; 2],
    pub(super) output: [usize; 2],
    /// Elements of a window along each dimension; for adaptive windows, those of the largest.
    pub(super) kernel: [usize; 2],
    pub(super) stride: [usize; 2],
    pub(super) padding: [usize; 2],
    pub(super) dilation: [usize; 2],
    /// How far the last window extends past the padding after the plane.
    pub(super) beyond: [usize; 2],
    /// The divisor of each mean. `None` if it is the number of the window's elements.
    pub(super) divisor: Option<usize>,
    /// Whether padding counts among these elements.
    counts_padding: bool,
    /// Whether they have nearly equal sizes, and cover the plane together.
    pub(super) are_adaptive: bool,
}

/// `struct Params` of `shaders/pool.wgsl`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub(in crate::ops) struct Params {
    /// Samples times channels, height and width of x, height of y.
    pub(in crate::ops) planes: [u32; 4],
    /// Width of y, height and width of the kernel, stride down.
    pub(in crate::ops) kernel: [u32; 4],
    /// Stride across, padding above, to the left, start of x.
    pub(in crate::ops) margin: [u32; 4],
    /// Start of the gradient, divisor of means or 0, whether padding counts.
    pub(in crate::ops) rest: [u32; 4],
    /// Down, across.
    pub(in crate::ops) dilation: [u32; 4],
}

impl Windows {
    /// The windows of a pooling with this fold.
    pub(super) fn of_pool(
        operation: &'static str,
        input: [usize; 2],
        pool: &Pool<2>,
        fold: PoolFold,
    ) -> Result<Self> {
        let refuse = |reason: String| Err(Error::Shape { operation, reason });
        let is_mean = fold == PoolFold::Mean;
        if !is_mean && (pool.divisor_override.is_some() || !pool.count_include_pad) {
            return refuse(
                "`divisor_override` and `count_include_pad` are for means: leave them as \
                 `Pool::new` sets them for a maximum"
                    .into(),
            );
        }
        let given = pool.divisor_override;
        if let Some(divisor) = given.filter(|divisor| !(1..1 << 31).contains(divisor)) {
            return refuse(format!("a divisor of {divisor} is not 1 to {}", i32::MAX));
        }
        let [down, across] = [
            along(operation, input, pool, 0)?,
            along(operation, input, pool, 1)?,
        ];
        let beyond = [down.beyond, across.beyond];
        let are_full = pool.count_include_pad || pool.padding == [0, 0];
        let divisor = match given {
            None if are_full && beyond == [0, 0] => {
                Some(pool.kernel[0].saturating_mul(pool.kernel[1]))
            }
            given => given,
        };
        Ok(Windows {
            input,
            output: [down.output, across.output],
            kernel: pool.kernel,
            stride: pool.stride,
            padding: pool.padding,
            dilation: pool.dilation,
            beyond,
            divisor: divisor.filter(|&divisor| divisor < 1 << 31),
            counts_padding: pool.count_include_pad,
            are_adaptive: false,
        })
    }

    /// A given number of windows. Window `i` of `n` has the elements from ⌊i · size / n⌋ to before
    /// ⌈(i + 1) · size / n⌉.
    pub(super) fn adaptive(
        operation: &'static str,
        input: [usize; 2],
        output: [usize; 2],
    ) -> Result<Self> {
        let refuse = |reason: String| Err(Error::Shape { operation, reason });
        for (&size, &wanted) in input.iter().zip(&output) {
            if size == 0 && wanted > 0 {
                return refuse(format!("{wanted} windows of an axis of 0 elements"));
            }
            // Kernels multiply the two sizes, each incremented by one.
            let product = (size as u64)
                .saturating_add(1)
                .saturating_mul((wanted as u64).saturating_add(1));
            if product > u64::from(u32::MAX) {
                return refuse(format!(
                    "{wanted} windows of an axis of {size} elements: the product of the two \
                     passes 2³² − 1"
                ));
            }
        }
        let size = |at: usize| input[at] / output[at].max(1);
        let divide = (0..2).all(|at| output[at] > 0 && input[at].is_multiple_of(output[at]));
        let kernel = [0, 1].map(|at| size(at) + if divide { 0 } else { 2 });
        Ok(Windows {
            input,
            output,
            kernel,
            stride: kernel,
            padding: [0; 2],
            dilation: [1; 2],
            beyond: [0; 2],
            divisor: divide.then_some(kernel[0] * kernel[1]),
            counts_padding: false,
            are_adaptive: !divide,
        })
    }

    /// The same windows along one axis; along the other axis every element is its own window.
    pub(super) fn only_along(&self, axis: usize, other: usize) -> Self {
        let mut one = *self;
        let at = 1 - axis;
        one.input[at] = other;
        one.output[at] = other;
        (one.kernel[at], one.stride[at], one.dilation[at]) = (1, 1, 1);
        (one.padding[at], one.beyond[at]) = (0, 0);
        one
    }

    /// Elements of the largest window.
    pub(super) fn area(&self) -> u64 {
        (self.kernel[0] as u64).saturating_mul(self.kernel[1] as u64)
    }

    /// Most windows that contain one element.
    pub(super) fn holders(&self) -> u64 {
        let own = |at: usize| match self.are_adaptive {
            true => self.output[at].div_ceil(self.input[at].max(1)) + 1,
            false => {
                let reach = (self.kernel[at] - 1) * self.dilation[at] + 1;
                reach.div_ceil(self.stride[at])
            }
        };
        let most = |at: usize| own(at).min(self.output[at]) as u64;
        most(0).saturating_mul(most(1))
    }

    /// The parameters for this many planes. `x` and `g` are the operands' first elements.
    pub(super) fn params(&self, planes: usize, [x, g]: [usize; 2]) -> Params {
        let words = |sizes: [usize; 4]| sizes.map(|size| size as u32);
        let [down, across] = self.stride;
        let divisor = self.divisor.unwrap_or(0);
        Params {
            planes: words([planes, self.input[0], self.input[1], self.output[0]]),
            kernel: words([self.output[1], self.kernel[0], self.kernel[1], down]),
            margin: words([across, self.padding[0], self.padding[1], x]),
            rest: words([g, divisor, usize::from(self.counts_padding), 0]),
            dilation: words([self.dilation[0], self.dilation[1], 0, 0]),
        }
    }
}

/// The windows along one axis.
struct Along {
    output: usize,
    beyond: usize,
}

/// PyTorch's rule for `ceil_mode`: the last window must start in the plane or in the padding before
/// it.
fn along(operation: &'static str, input: [usize; 2], pool: &Pool<2>, at: usize) -> Result<Along> {
    let refuse = |reason: String| Err(Error::Shape { operation, reason });
    let (input, kernel, stride) = (input[at], pool.kernel[at], pool.stride[at]);
    let (padding, dilation) = (pool.padding[at], pool.dilation[at]);
    if stride == 0 || dilation == 0 || kernel == 0 {
        return refuse("strides, dilations and kernels are at least 1".into());
    }
    if input == 0 {
        return refuse("an axis of 0 elements cannot be pooled: it needs at least one".into());
    }
    let most = i32::MAX as usize / 4;
    let sizes = [input, kernel, stride, padding, dilation];
    let reach = (kernel - 1).saturating_mul(dilation).saturating_add(1);
    if sizes.iter().any(|&size| size > most) || reach > most {
        return refuse(format!(
            "an input of {input}, a kernel of {kernel}, a stride of {stride}, a padding of \
             {padding} and a dilation of {dilation}: these and a window's span are at most {most}"
        ));
    }
    if padding > reach / 2 {
        return refuse(format!(
            "a padding of {padding} is more than half of a window that spans {reach}"
        ));
    }
    let whole = input + 2 * padding;
    let up = if pool.ceil_mode { stride - 1 } else { 0 };
    let Some(room) = (whole + up).checked_sub(reach) else {
        return refuse(format!(
            "a window that spans {reach} elements is larger than the input, {whole} \
             elements with its padding"
        ));
    };
    let mut output = room / stride + 1;
    if pool.ceil_mode && (output - 1) * stride >= input + padding {
        output -= 1;
    }
    let end = (output - 1) * stride + reach;
    Ok(Along {
        output,
        beyond: end.saturating_sub(whole),
    })
}
