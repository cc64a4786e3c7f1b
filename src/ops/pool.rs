//! Maxima and means of windows.
//!
//! Windows of equal size are rows of a view, which the reductions fold. Windows that differ, the
//! places of maxima, and the gradients have their own kernels. `windows` computes the positions of
//! windows, `call` runs a pooling, `kernel` has the variants.

mod call;
mod gradient;
mod kernel;
mod options;
mod windows;

#[cfg(any(test, feature = "sim"))]
pub(super) mod reference;

use crate::tensor::Tensor;
use call::Planes;
use kernel::PoolFold;
use lapidary_core::Result;
use lapidary_core::internal::MadeFor;
pub use options::Pool;

/// Declares the methods of both dimensions: name, name of the gradient, fold, and texts for the
/// docs.
macro_rules! pools {
    ($($forward:ident $backward:ident $dims:literal $fold:ident $shape:literal $what:literal;)*) => {
        impl Tensor {
            $(
            #[doc = concat!("The ", $what, " of every window of `", $shape, "`, as PyTorch's `", stringify!($forward), "`. \
                NaN makes its windows NaN. Padding counts as zeros for a mean, and is ignored for a maximum. \
                The first axis may be left out.")]
            ///
            /// ```
            /// # use lapidary::{Tensor, operations::Pool};
            /// # fn demo(x: &Tensor) -> lapidary::Result<()> {
            #[doc = concat!("let y = x.", stringify!($forward), "(&Pool::new([2; ", stringify!($dims), "]))?;")]
            /// # Ok(()) }
            /// ```
            ///
            /// # Errors
            ///
            /// [`Error::Shape`](crate::Error::Shape) for another number of dimensions, and for a
            /// kernel, stride, dilation or divisor of 0. Also for a padding of more than half of a
            /// window's extent, and for a window larger than the padded input. Also for a divisor
            /// of a maximum, and on a software adapter for very large windows that differ.
            /// [`Error::DType`](crate::Error::DType) unless it is f32, f16 or bf16.
            #[track_caller]
            pub fn $forward(&self, pool: &Pool<$dims>) -> Result<Tensor> {
                let _method = MadeFor::method(stringify!($forward));
                let planes = Planes::new(stringify!($forward), self, $dims)?;
                planes.by_pool(&pool.over_planes(), PoolFold::$fold)?.forward(PoolFold::$fold)
            }

            #[doc = concat!("The gradient of [`", stringify!($forward), "`](Tensor::", stringify!($forward),
                ") with respect to its input. `self` is the gradient with respect to its result.")]
            ///
            /// # Errors
            ///
            #[doc = concat!("Those of [`", stringify!($forward), "`](Tensor::", stringify!($forward), "), ")]
            /// [`Error::Shape`](crate::Error::Shape) unless `self` has the shape of the result, and
            /// on a software adapter for very large windows;
            /// [`Error::Foreign`](crate::Error::Foreign).
            #[track_caller]
            pub fn $backward(&self, input: &Tensor, pool: &Pool<$dims>) -> Result<Tensor> {
                let _method = MadeFor::method(stringify!($backward));
                let planes = Planes::new(stringify!($backward), input, $dims)?;
                planes.by_pool(&pool.over_planes(), PoolFold::$fold)?.backward(PoolFold::$fold, self)
            }
            )*
        }
    };
}

pools! {
    max_pool1d max_pool1d_backward 1 Max "[samples, channels, length]" "maximum";
    avg_pool1d avg_pool1d_backward 1 Mean "[samples, channels, length]" "mean";
    max_pool2d max_pool2d_backward 2 Max "[samples, channels, height, width]" "maximum";
    avg_pool2d avg_pool2d_backward 2 Mean "[samples, channels, height, width]" "mean";
}

/// Declares the same for a given number of windows.
macro_rules! adaptive_pools {
    ($($forward:ident $backward:ident $dims:literal $fold:ident $shape:literal $what:literal;)*) => {
        impl Tensor {
            $(
            #[doc = concat!("The ", $what, " of windows of `", $shape, "`. `output` is the number of windows along each \
                dimension, as in PyTorch's `", stringify!($forward), "`. Along a dimension of `size` elements window `i` of \
                `n` has the elements from ⌊i · size / n⌋ to before ⌈(i + 1) · size / n⌉. NaN makes its windows NaN. \
                The first axis may be left out.")]
            ///
            /// ```
            /// # use lapidary::Tensor;
            /// # fn demo(x: &Tensor) -> lapidary::Result<()> {
            #[doc = concat!("let y = x.", stringify!($forward), "([7; ", stringify!($dims), "])?;")]
            /// # Ok(()) }
            /// ```
            ///
            /// # Errors
            ///
            /// [`Error::Shape`](crate::Error::Shape) for another number of dimensions, and for
            /// windows of an axis without elements. Also if the size of an axis times its windows
            /// exceeds 2³² − 1, and on a software adapter for very large windows of different
            /// sizes. [`Error::DType`](crate::Error::DType) unless it is f32, f16 or bf16.
            #[track_caller]
            pub fn $forward(&self, output: [usize; $dims]) -> Result<Tensor> {
                let _method = MadeFor::method(stringify!($forward));
                let planes = Planes::new(stringify!($forward), self, $dims)?;
                planes.adaptive(&output)?.forward(PoolFold::$fold)
            }

            #[doc = concat!("The gradient of [`", stringify!($forward), "`](Tensor::", stringify!($forward),
                ") with respect to its input. `self` is the gradient with respect to its result; its shape gives the \
                number of windows.")]
            ///
            /// # Errors
            ///
            #[doc = concat!("Those of [`", stringify!($forward), "`](Tensor::", stringify!($forward), "), ")]
            /// [`Error::Shape`](crate::Error::Shape) unless `self` has as many samples and channels
            /// as `input`; [`Error::Foreign`](crate::Error::Foreign).
            #[track_caller]
            pub fn $backward(&self, input: &Tensor) -> Result<Tensor> {
                let _method = MadeFor::method(stringify!($backward));
                let planes = Planes::new(stringify!($backward), input, $dims)?;
                let windows = self.shape().len().saturating_sub($dims);
                planes.adaptive(&self.shape()[windows..])?.backward(PoolFold::$fold, self)
            }
            )*
        }
    };
}

adaptive_pools! {
    adaptive_max_pool1d adaptive_max_pool1d_backward 1 Max "[samples, channels, length]" "maximum";
    adaptive_avg_pool1d adaptive_avg_pool1d_backward 1 Mean "[samples, channels, length]" "mean";
    adaptive_max_pool2d adaptive_max_pool2d_backward 2 Max "[samples, channels, height, width]" "maximum";
    adaptive_avg_pool2d adaptive_avg_pool2d_backward 2 Mean "[samples, channels, height, width]" "mean";
}

/// Declares the methods that return maxima with their places.
macro_rules! pools_with_indices {
    ($($name:ident $adaptive:ident $dims:literal $of:literal $of_adaptive:literal;)*) => {
        impl Tensor {
            $(
            #[doc = concat!("[`", $of, "`](Tensor::", $of, "), and the place of each maximum, as PyTorch's `return_indices`: \
                a `u32` that counts the plane's elements in row-major order. The first of equal elements wins, but the \
                last NaN.")]
            ///
            /// # Errors
            ///
            #[doc = concat!("Those of [`", $of, "`](Tensor::", $of, "), ")]
            /// and on a software adapter [`Error::Shape`](crate::Error::Shape) for windows of more
            /// than 16,249 elements.
            #[track_caller]
            pub fn $name(&self, pool: &Pool<$dims>) -> Result<(Tensor, Tensor)> {
                let _method = MadeFor::method(stringify!($name));
                let planes = Planes::new(stringify!($name), self, $dims)?;
                planes.by_pool(&pool.over_planes(), PoolFold::Place)?.places()
            }

            #[doc = concat!("[`", $of_adaptive, "`](Tensor::", $of_adaptive, "), and the place of each maximum, as in [`",
                stringify!($name), "`](Tensor::", stringify!($name), ").")]
            ///
            /// # Errors
            ///
            #[doc = concat!("Those of [`", $of_adaptive, "`](Tensor::", $of_adaptive, "), ")]
            /// and on a software adapter [`Error::Shape`](crate::Error::Shape) for windows of more
            /// than 16,249 elements.
            #[track_caller]
            pub fn $adaptive(&self, output: [usize; $dims]) -> Result<(Tensor, Tensor)> {
                let _method = MadeFor::method(stringify!($adaptive));
                let planes = Planes::new(stringify!($adaptive), self, $dims)?;
                planes.adaptive(&output)?.places()
            }
            )*
        }
    };
}

pools_with_indices! {
    max_pool1d_with_indices adaptive_max_pool1d_with_indices 1 "max_pool1d" "adaptive_max_pool1d";
    max_pool2d_with_indices adaptive_max_pool2d_with_indices 2 "max_pool2d" "adaptive_max_pool2d";
}
