//! Tensors out of nothing: from slices, and filled on the device.

use super::Gpu;
use crate::dtype::{DType, Element};
use crate::error::{Error, Result};
use crate::tensor::Tensor;

impl Gpu {
    /// A tensor of `shape` with the elements of a slice, in row-major order. The slice is copied
    /// before this returns.
    ///
    /// # Errors
    /// [`Error::Length`] when the slice does not fill the shape, [`Error::Overflow`] and [`Error::NeverFits`]
    /// for shapes beyond the device, [`Error::DeviceLost`].
    #[track_caller]
    pub fn tensor<T: Element>(&self, data: &[T], shape: &[usize]) -> Result<Tensor> {
        let tensor = Tensor::output(&self.engine, shape, T::DTYPE)?;
        if tensor.len() != data.len() {
            return Err(Error::Length {
                expected: tensor.len(),
                got: data.len(),
                shape: shape.to_vec(),
            });
        }
        self.engine.upload(&tensor.storage, 0, T::bytes_of(data))?;
        Ok(tensor)
    }

    /// A tensor of `shape` full of zeros (`false`).
    ///
    /// # Errors
    /// [`Error::Overflow`] and [`Error::NeverFits`] for shapes beyond the device, [`Error::DeviceLost`].
    #[track_caller]
    pub fn zeros(&self, shape: &[usize], dtype: DType) -> Result<Tensor> {
        let tensor = Tensor::output(&self.engine, shape, dtype)?;
        self.engine.clear(&tensor.storage)?;
        Ok(tensor)
    }
}
