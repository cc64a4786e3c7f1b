//! What a function that prepares a batch uploads with.

use std::fmt;
use std::ops::Deref;

use lapidary_core::internal::MaybeShared;
use lapidary_core::{Element, Result};

use crate::gpu::{Gpu, Upload};
use crate::tensor::Tensor;

/// A function that reserves bytes for an upload, or waits for them.
pub(super) trait Reserves: Fn(u64) -> Result<()> + MaybeShared {}
impl<F: Fn(u64) -> Result<()> + MaybeShared> Reserves for F {}

/// The [`Gpu`] of a batch that a loader prepares: see [`Gpu::loader`].
///
/// Its own methods upload, and keep within
/// [`LoaderOptions::bytes_ahead`](super::LoaderOptions::bytes_ahead). If the batches ahead have no
/// room for the bytes, they wait until the loop takes a batch. All methods of the `Gpu` are there
/// too. They count nothing and wait for nothing.
pub struct Uploader<'a> {
    gpu: &'a Gpu,
    reserve: &'a dyn Reserves,
}

impl<'a> Uploader<'a> {
    pub(super) fn new(gpu: &'a Gpu, reserve: &'a dyn Reserves) -> Self {
        Uploader { gpu, reserve }
    }

    /// A tensor with the elements of a slice: see [`Gpu::tensor`].
    ///
    /// # Errors
    /// As [`Gpu::tensor`]. [`Error::Loader`](crate::Error::Loader) once the loader is dropped.
    #[track_caller]
    pub fn tensor<T: Element>(&self, data: &[T], shape: &[usize]) -> Result<Tensor> {
        self.reserve::<T>(&[data.len()])?;
        self.gpu.tensor(data, shape)
    }

    /// A tensor whose elements a function writes directly to staging: see [`Gpu::upload_with`].
    ///
    /// # Errors
    /// As [`Gpu::upload_with`]. [`Error::Loader`](crate::Error::Loader) once the loader is dropped.
    #[track_caller]
    pub fn upload_with<T: Element>(
        &self,
        shape: &[usize],
        write: impl FnOnce(&mut Upload<'_, T>),
    ) -> Result<Tensor> {
        self.reserve::<T>(shape)?;
        self.gpu.upload_with(shape, write)
    }

    /// A tensor of an array: see [`Gpu::tensor_from`].
    ///
    /// # Errors
    /// As [`Gpu::tensor_from`]. [`Error::Loader`](crate::Error::Loader) once the loader is dropped.
    #[cfg(feature = "ndarray")]
    #[track_caller]
    pub fn tensor_from<T: Element, D: ndarray::Dimension>(
        &self,
        array: &ndarray::ArrayRef<T, D>,
    ) -> Result<Tensor> {
        self.reserve::<T>(array.shape())?;
        self.gpu.tensor_from(array)
    }

    fn reserve<T: Element>(&self, shape: &[usize]) -> Result<()> {
        // The upload refuses shapes beyond what can be addressed.
        let len = shape
            .iter()
            .try_fold(1_usize, |len, &size| len.checked_mul(size));
        let bytes = len.and_then(|len| len.checked_mul(size_of::<T>()));
        bytes.map_or(Ok(()), |bytes| (self.reserve)(bytes as u64))
    }
}

impl Deref for Uploader<'_> {
    type Target = Gpu;

    fn deref(&self) -> &Gpu {
        self.gpu
    }
}

impl fmt::Debug for Uploader<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Uploader").finish_non_exhaustive()
    }
}
