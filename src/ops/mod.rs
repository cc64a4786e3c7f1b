//! Operations on tensors: one file a family of kernels, named as its WGSL in `shaders/`.

pub(crate) mod argreduce;
pub(crate) mod concat;
pub(crate) mod index_select;
mod layer_norm;
mod normalize;
pub(crate) mod reduce;
mod rows;
mod softmax;

#[cfg(test)]
mod check;
#[cfg(any(test, feature = "sim"))]
pub(crate) mod twin;

impl crate::Tensor { #[allow(missing_docs)] pub fn contiguous(&self) -> crate::Result<Self> { unimplemented!() } }
