//! Convolutions in one and two dimensions. `geometry` has the shapes. `call` chooses between
//! `kernel`, an implicit matrix product, and `columns`, the way by matmul. `backward` has the
//! gradients, and `transposed` the convolutions that are gradients of others.

mod backward;
mod call;
mod columns;
mod geometry;
mod gradient;
mod kernel;
#[cfg(test)]
mod tests;
mod transposed;

#[cfg(any(test, feature = "sim"))]
pub(super) mod reference;

use crate::tensor::Tensor;
use crate::tensor::called::Called;
use call::conv;
pub use geometry::Conv;
use geometry::{as_batch, check_rank};
pub(in crate::ops) use geometry::{padded, windows};
use lapidary_core::Result;
use lapidary_core::internal::MadeFor;
pub use transposed::ConvTranspose;

impl Tensor {
    /// The convolution (cross-correlation) of `[samples, channels, length]` with `weight`, of
    /// `[out, channels / groups, kernel]`, and `bias`, of `[out]`, as in PyTorch. See
    /// [`conv2d`](Tensor::conv2d).
    ///
    /// ```
    /// # use lapidary::{Tensor, operations::Conv};
    /// # fn demo(x: &Tensor, weight: &Tensor) -> lapidary::Result<()> {
    /// let y = x.conv1d(weight, None, &Conv { padding: [1], ..Conv::default() })?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`conv2d`](Tensor::conv2d).
    #[track_caller]
    pub fn conv1d(
        &self,
        weight: &Tensor,
        bias: Option<&Tensor>,
        options: &Conv<1>,
    ) -> Result<Tensor> {
        let _method = MadeFor::method("conv1d");
        check_rank("conv1d", "weight", weight, 3)?;
        let (x, is_batch) = as_batch(self, 3)?;
        check_rank("conv1d", "lines", &x, 3)?;
        let (x, weight) = (x.unsqueeze(-2)?, weight.unsqueeze(-2)?);
        let y = conv("conv1d", &x, &weight, bias, &options.over_rows());
        let y = y.called("conv1d")?.squeeze_axis(-2)?;
        match is_batch {
            true => Ok(y),
            false => y.squeeze_axis(0),
        }
    }

    /// The convolution (cross-correlation) of `[samples, channels, height, width]` with `weight`,
    /// of `[out, channels / groups, kernel height, kernel width]`, and `bias`, of `[out]`, as in
    /// PyTorch. The result is
    /// `[samples, out, (height + 2 · padding − dilation · (kernel − 1) − 1) / stride + 1, …]`. The
    /// input may lack the axis of samples; then the result lacks it too.
    ///
    /// All operands have one float type; sums are in f32. The input may be any view. The matrix of
    /// all patches is never stored. Convolutions that use [`matmul`](Tensor::matmul) take slabs of
    /// at most 16 MiB; all others read the input in place.
    ///
    /// ```
    /// # use lapidary::{Tensor, operations::Conv};
    /// # fn demo(x: &Tensor, weight: &Tensor, bias: &Tensor) -> lapidary::Result<()> {
    /// let options = Conv { stride: [2, 2], padding: [1, 1], ..Conv::default() };
    /// let y = x.conv2d(weight, Some(bias), &options)?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Shape`](crate::Error::Shape) if the shapes do not match, or if a stride, a dilation
    /// or the number of groups is 0. Also if the kernel is larger than the padded input.
    /// [`Error::DType`](crate::Error::DType) for integers, bools and types that differ.
    /// [`Error::Foreign`](crate::Error::Foreign) for tensors of another `Gpu`.
    #[track_caller]
    pub fn conv2d(
        &self,
        weight: &Tensor,
        bias: Option<&Tensor>,
        options: &Conv<2>,
    ) -> Result<Tensor> {
        let _method = MadeFor::method("conv2d");
        let (x, is_batch) = as_batch(self, 4)?;
        let y = conv("conv2d", &x, weight, bias, options).called("conv2d")?;
        match is_batch {
            true => Ok(y),
            false => y.squeeze_axis(0),
        }
    }
}
