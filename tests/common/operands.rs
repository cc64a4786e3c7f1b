//! Operands for the list of operations, and tensors of any type as plain numbers.

use half::{bf16, f16};
use lapidary::{DType, Gpu, Result, Tensor};

use super::operations::{Holds, Operation};

/// An operand of an operation as a tensor of its own, and its elements.
#[allow(dead_code, reason = "some programs make views instead")]
pub(crate) fn plain(
    gpu: &Gpu,
    operation: &Operation,
    dtype: DType,
    number: usize,
    sizes: (usize, usize),
) -> Result<(Tensor, Vec<f64>)> {
    let operand = &operation.operands[number];
    let dtype = operand.dtype.unwrap_or(dtype);
    let shape = (operand.shape)(sizes.0, sizes.1);
    let elements = 0..shape.iter().product();
    let elements = elements.map(|at| element(operand.holds(dtype), number, at, sizes));
    let elements: Vec<f64> = elements.collect();
    Ok((tensor(gpu, dtype, &elements, &shape)?, elements))
}

/// An element of an operand, in all types alike.
pub(crate) fn element(holds: Holds, number: usize, at: usize, sizes: (usize, usize)) -> f64 {
    let step = [3, 5, 7, 11, 13][number];
    match holds {
        // Neighbours differ, and all numbers are exact in every type.
        Holds::Numbers => (1 + (number + at * step) % 8) as f64,
        Holds::Shares => (1 + (number + at * step) % 15) as f64 / 16.0,
        Holds::Truths => f64::from(u8::from((at * at + at / 3).is_multiple_of(3))),
        Holds::Places(axis) => {
            let axis = axis(sizes.0, sizes.1);
            ((at * (axis - 1) + at / axis) % axis) as f64
        }
    }
}

/// A tensor of these numbers in any type.
pub(crate) fn tensor(gpu: &Gpu, dtype: DType, values: &[f64], shape: &[usize]) -> Result<Tensor> {
    macro_rules! of {
        ($to:expr) => {
            gpu.tensor(&values.iter().copied().map($to).collect::<Vec<_>>(), shape)
        };
    }
    match dtype {
        DType::F32 => of!(|v| v as f32),
        DType::F16 => of!(f16::from_f64),
        DType::Bf16 => of!(bf16::from_f64),
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
