//! The elements of a tensor of any type, as bytes.

use lapidary::{DType, Error, Tensor};

/// The bytes of a tensor's elements, if it has a value.
pub(crate) fn elements(tensor: &Tensor) -> Option<Vec<u8>> {
    fn bytes<T: lapidary::Element>(tensor: &Tensor) -> Option<Vec<u8>> {
        match tensor.to_vec::<T>() {
            Ok(elements) => Some(T::bytes_of(&elements).to_vec()),
            Err(Error::Source { .. }) => None,
            Err(other) => panic!("{other:?}"),
        }
    }
    match tensor.dtype() {
        DType::F32 => bytes::<f32>(tensor),
        DType::F16 => bytes::<half::f16>(tensor),
        DType::Bf16 => bytes::<half::bf16>(tensor),
        DType::I32 => bytes::<i32>(tensor),
        DType::U32 => bytes::<u32>(tensor),
        DType::I8 => bytes::<i8>(tensor),
        DType::U8 => bytes::<u8>(tensor),
        DType::Bool => bytes::<bool>(tensor),
    }
}
