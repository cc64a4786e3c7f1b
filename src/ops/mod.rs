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

// Stand-in until the copy room arrives.
impl crate::Tensor {
    #[allow(missing_docs)]
    pub fn contiguous(&self) -> crate::Result<Self> {
        use crate::{DType, Element};
        let out = crate::Tensor::output(&self.engine, self.shape(), self.dtype)?;
        macro_rules! up {
            ($t:ty) => {
                self.engine
                    .upload(&out.storage, 0, <$t>::bytes_of(&self.to_vec::<$t>()?))?
            };
        }
        match self.dtype {
            DType::F32 => up!(f32),
            DType::F16 => up!(half::f16),
            DType::I32 => up!(i32),
            DType::U32 => up!(u32),
            DType::U8 => up!(u8),
            DType::Bool => up!(bool),
        }
        Ok(out)
    }
}
