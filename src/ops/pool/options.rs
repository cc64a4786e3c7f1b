//! The options of poolings.

/// Options of a pooling over `N` dimensions: the arguments of PyTorch's pooling.
///
/// ```
/// use lapidary::operations::Pool;
///
/// let halves = Pool::new([2, 2]);
/// assert_eq!((halves.stride, halves.padding), ([2, 2], [0, 0]));
/// let overlapping = Pool { stride: [2, 2], padding: [1, 1], ..Pool::new([3, 3]) };
/// let of_pixels = Pool { count_include_pad: false, ..overlapping };
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Pool<const N: usize> {
    /// Elements of a window along each dimension.
    pub kernel: [usize; N],
    /// Elements from one window to the next.
    pub stride: [usize; N],
    /// Elements before and after each dimension, at most half of a window's extent. They are zeros
    /// for a mean, and are ignored for a maximum.
    pub padding: [usize; N],
    /// Elements from one element of a window to the next.
    pub dilation: [usize; N],
    /// Whether to round the number of windows up. The last window may then extend past the padding.
    pub ceil_mode: bool,
    /// Whether zeros of the padding count in the divisor of a mean. Elements past the padding never
    /// count.
    pub count_include_pad: bool,
    /// The divisor of means, in place of the number of a window's elements.
    pub divisor_override: Option<usize>,
}

impl<const N: usize> Pool<N> {
    /// Adjacent windows without padding. If padding is added, all of it counts.
    pub fn new(kernel: [usize; N]) -> Self {
        Pool {
            kernel,
            stride: kernel,
            padding: [0; N],
            dilation: [1; N],
            ceil_mode: false,
            count_include_pad: true,
            divisor_override: None,
        }
    }
}

impl Pool<1> {
    /// The same for planes of one row.
    pub(super) fn over_planes(&self) -> Pool<2> {
        Pool {
            kernel: [1, self.kernel[0]],
            stride: [1, self.stride[0]],
            padding: [0, self.padding[0]],
            dilation: [1, self.dilation[0]],
            ceil_mode: self.ceil_mode,
            count_include_pad: self.count_include_pad,
            divisor_override: self.divisor_override,
        }
    }
}

impl Pool<2> {
    pub(super) fn over_planes(&self) -> Pool<2> {
        *self
    }
}
