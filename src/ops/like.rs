//! New tensors with the shape and type of another.

use super::{Scalar, fill, random};
use crate::tensor::Tensor;
use crate::tensor::called::Called;
use lapidary_core::Result;
use lapidary_core::internal::MadeFor;

/// New tensors with the shape and type of `self`, on the same `Gpu`. They are row-major,
/// independent of the strides of `self`. They share no memory with it and read none of it.
///
/// ```
/// # fn demo(weight: &lapidary::Tensor) -> lapidary::Result<()> {
/// let momentum = weight.zeros_like()?;
/// let noise = weight.rand_normal_like(0.0, 0.02, 7)?;
/// # Ok(()) }
/// ```
///
/// # Errors
///
/// All of them return the errors of the [`Gpu`](crate::Gpu) method with the same name.
impl Tensor {
    /// Uninitialized, as [`Gpu::empty`](crate::Gpu::empty).
    #[track_caller]
    pub fn empty_like(&self) -> Result<Tensor> {
        fill::empty(&self.engine, self.shape(), self.dtype).called("empty_like")
    }

    /// Filled with zeros (`false`), as [`Gpu::zeros`](crate::Gpu::zeros).
    #[track_caller]
    pub fn zeros_like(&self) -> Result<Tensor> {
        let _method = MadeFor::method("zeros_like");
        self.full_like(fill::zero_of(self.dtype))
            .called("zeros_like")
    }

    /// Filled with ones (`true`), as [`Gpu::ones`](crate::Gpu::ones).
    #[track_caller]
    pub fn ones_like(&self) -> Result<Tensor> {
        let _method = MadeFor::method("ones_like");
        self.full_like(fill::one_of(self.dtype)).called("ones_like")
    }

    /// Filled with one value, as [`Gpu::full`](crate::Gpu::full).
    #[track_caller]
    pub fn full_like(&self, value: impl Into<Scalar>) -> Result<Tensor> {
        let _method = MadeFor::method("full_like");
        fill::full(&self.engine, self.shape(), value.into(), self.dtype).called("full_like")
    }

    /// Floats drawn uniformly from `low` to `high`, as
    /// [`Gpu::rand_uniform`](crate::Gpu::rand_uniform).
    #[doc(alias = "rand_like")]
    #[track_caller]
    pub fn rand_uniform_like(&self, low: f32, high: f32, seed: u64) -> Result<Tensor> {
        let _method = MadeFor::method("rand_uniform_like");
        let made = random::rand_uniform(&self.engine, self.shape(), low, high, seed, self.dtype);
        made.called("rand_uniform_like")
    }

    /// Floats drawn from the normal distribution, as
    /// [`Gpu::rand_normal`](crate::Gpu::rand_normal).
    #[doc(alias = "randn_like")]
    #[track_caller]
    pub fn rand_normal_like(&self, mean: f32, std: f32, seed: u64) -> Result<Tensor> {
        let _method = MadeFor::method("rand_normal_like");
        let made = random::rand_normal(&self.engine, self.shape(), mean, std, seed, self.dtype);
        made.called("rand_normal_like")
    }
}
