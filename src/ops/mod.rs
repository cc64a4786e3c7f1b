//! Operations on tensors: one file a family of kernels, named as its WGSL in `shaders/`.

mod matmul;

#[cfg(any(test, feature = "sim"))]
pub(crate) mod twin;

impl crate::Tensor {
    #[allow(missing_docs)]
    pub fn contiguous(&self) -> crate::Result<Self> {
        unimplemented!()
    }
}
