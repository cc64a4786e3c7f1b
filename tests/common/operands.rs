//! Tensors of any type as plain numbers.

use half::{bf16, f16};
use lapidary::{DType, Gpu, Result, Tensor};

/// A tensor of these numbers in any type.
pub(crate) fn tensor(gpu: &Gpu, dtype: DType, values: &[f64], shape: &[usize]) -> Result<Tensor> {
    macro_rules! of {
        ($to:expr) => {
            gpu.tensor(&values.iter().copied().map($to).collect::<Vec<_>>(), shape)
        };
    }
    match dtype {
        DType::F32 => of!(|v| v as f32),
        DType::F16 => of!(|v| f16::from_f32(v as f32)),
        DType::Bf16 => of!(|v| bf16::from_f32(v as f32)),
        DType::I32 => of!(|v| v as i32),
        DType::U32 => of!(|v| v as u32),
        DType::U8 => of!(|v| v as u8),
        DType::I8 => of!(|v| v as i8),
        _ => of!(|v| v != 0.0),
    }
}

/// The numbers of a tensor of any type.
pub(crate) fn numbers(x: &Tensor) -> Result<Vec<f64>> {
    macro_rules! of {
        ($T:ty, $to:expr) => {
            x.to_vec::<$T>()?.into_iter().map($to).collect()
        };
    }
    Ok(match x.dtype() {
        DType::F32 => of!(f32, f64::from),
        DType::F16 => of!(f16, f16::to_f64),
        DType::Bf16 => of!(bf16, bf16::to_f64),
        DType::I32 => of!(i32, f64::from),
        DType::U32 => of!(u32, f64::from),
        DType::U8 => of!(u8, f64::from),
        DType::I8 => of!(i8, f64::from),
        _ => of!(bool, |v| f64::from(u8::from(v))),
    })
}
