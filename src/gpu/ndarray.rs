//! Conversion from and to arrays of the crate `ndarray`.

use ndarray::{ArrayD, ArrayRef, Dimension, IxDyn};

use super::Gpu;
use crate::tensor::Tensor;
use lapidary_core::Element;
#[cfg(not(target_arch = "wasm32"))]
use lapidary_core::internal::block_on;
use lapidary_core::{Error, Result};

impl Gpu {
    /// A tensor with the shape and the elements of an array or a view, with any strides:
    /// transposed, sliced, flipped or broadcast. The call copies the elements before it returns,
    /// without an intermediate vector.
    ///
    /// ```no_run
    /// # fn main() -> lapidary::Result<()> {
    /// # let gpu = lapidary::Gpu::open(Default::default())?;
    /// let a = ndarray::array![[1.0_f32, 2.0, 3.0], [4.0, 5.0, 6.0]];
    /// let t = gpu.tensor_from(&a.t())?;
    /// assert_eq!(t.shape(), [3, 2]);
    /// assert_eq!(t.to_array::<f32>()?, a.t().into_dyn());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`tensor`](Gpu::tensor).
    #[track_caller]
    pub fn tensor_from<T: Element, D: Dimension>(&self, array: &ArrayRef<T, D>) -> Result<Tensor> {
        match array.as_slice() {
            Some(elements) => self.tensor(elements, array.shape()),
            None => self.upload_with(array.shape(), |out| {
                for row in array.rows() {
                    match row.as_slice() {
                        Some(elements) => out.extend_from_slice(elements),
                        None => out.extend(row.iter().copied()),
                    }
                }
            }),
        }
    }
}

impl Tensor {
    /// The elements as an array of this shape. Call the array's `into_dimensionality` if the number
    /// of axes is known.
    ///
    /// # Errors
    /// Those of [`to_vec_async`](Tensor::to_vec_async).
    #[cfg(not(target_arch = "wasm32"))]
    #[track_caller]
    pub fn to_array<T: Element>(&self) -> Result<ArrayD<T>> {
        block_on("Tensor::to_array", self.to_array_async())
    }

    /// As [`to_array`](Tensor::to_array), as a future: the only form in a browser.
    ///
    /// # Errors
    /// Those of [`to_vec_async`](Tensor::to_vec_async).
    #[track_caller]
    pub fn to_array_async<T: Element>(&self) -> impl Future<Output = Result<ArrayD<T>>> + use<T> {
        let (shape, elements) = (self.shape().to_vec(), self.to_vec_async::<T>());
        async move {
            let made = ArrayD::from_shape_vec(IxDyn(&shape), elements.await?);
            made.map_err(|error| Error::Shape {
                operation: "to_array",
                reason: format!("{shape:?} is not a valid shape of an array: {error}"),
            })
        }
    }
}
