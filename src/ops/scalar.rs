//! Plain numbers as operands.

use crate::tensor::Tensor;
use crate::tensor::called::Called;
use half::{bf16, f16};

use lapidary_core::{DType, Error, Result};

/// A number or truth value in place of a tensor: `&x * 2.0`, `x.clamp(0, 255)`.
///
/// A float tensor takes floats and integers, an integer tensor takes integers that its type can
/// hold, and a bool tensor takes bools. Plain numbers convert by `From`.
///
/// ```
/// use lapidary::operations::Scalar;
/// assert_eq!(Scalar::from(2.5_f32), Scalar::Float(2.5));
/// assert_eq!(Scalar::from(7_u8), Scalar::Int(7));
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Scalar {
    /// A float; rounded to the tensor's type.
    Float(f64),
    /// An integer.
    Int(i64),
    /// A truth value.
    Bool(bool),
}

macro_rules! from {
    ($($type:ty => $variant:ident),*) => {$(
        impl From<$type> for Scalar {
            fn from(value: $type) -> Self {
                Scalar::$variant(value.into())
            }
        }
    )*};
}

from!(
    f32 => Float, f64 => Float, f16 => Float, bf16 => Float, i32 => Int, i64 => Int, u32 => Int, u8 => Int,
    i8 => Int, bool => Bool
);

/// An operand: the elements of a tensor, or one number in their place. Both convert by `From`.
///
/// ```
/// # fn demo(x: &lapidary::Tensor, y: &lapidary::Tensor) -> lapidary::Result<()> {
/// let (larger, positive) = (x.maximum(y)?, x.maximum(0.0)?);
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug)]
pub enum TensorOrNumber<'a> {
    /// The elements of a tensor.
    Tensor(&'a Tensor),
    /// The same number everywhere.
    Number(Scalar),
}

impl<'a> From<&'a Tensor> for TensorOrNumber<'a> {
    fn from(tensor: &'a Tensor) -> Self {
        TensorOrNumber::Tensor(tensor)
    }
}

impl<T: Into<Scalar>> From<T> for TensorOrNumber<'_> {
    fn from(number: T) -> Self {
        TensorOrNumber::Number(number.into())
    }
}

impl Scalar {
    /// As a float, for arithmetic before the type is known.
    pub(crate) fn as_f64(self) -> f64 {
        match self {
            Scalar::Float(value) => value,
            Scalar::Int(value) => value as f64,
            Scalar::Bool(value) => f64::from(u8::from(value)),
        }
    }

    /// The bits in the type that kernels compute in, [`DType::wgsl`].
    #[track_caller]
    pub(crate) fn bits(self, operation: &'static str, dtype: DType) -> Result<u32> {
        let bits = match (self, dtype) {
            (Scalar::Bool(value), DType::Bool) => Some(u32::from(value)),
            (Scalar::Bool(_), _) => None,
            (value, DType::F32) => Some((value.as_f64() as f32).to_bits()),
            // As in PyTorch, by way of f32. `from_f64` of the crate `half` ignores 32 bits.
            (value, DType::F16) => Some(f16::from_f32(value.as_f64() as f32).to_f32().to_bits()),
            (value, DType::Bf16) => Some(bf16::from_f32(value.as_f64() as f32).to_f32().to_bits()),
            (Scalar::Int(value), DType::I32) => i32::try_from(value).ok().map(|v| v as u32),
            (Scalar::Int(value), DType::U32) => u32::try_from(value).ok(),
            (Scalar::Int(value), DType::U8) => u8::try_from(value).ok().map(u32::from),
            (Scalar::Int(value), DType::I8) => {
                i8::try_from(value).ok().map(|v| i32::from(v) as u32)
            }
            (Scalar::Int(_), DType::Bool) | (Scalar::Float(_), _) => None,
        };
        bits.ok_or_else(|| Error::DType {
            operation,
            expected: match self {
                Scalar::Float(value) => format!("a type that holds {value:?}"),
                Scalar::Int(value) => format!("a type that holds {value}"),
                Scalar::Bool(value) => format!("a type that holds {value}"),
            },
            got: dtype,
            hint: "Use `cast`",
            at: String::new(),
        })
        .located()
    }

    /// One element in its memory format, repeated to fill a word.
    #[track_caller]
    pub(crate) fn word(self, operation: &'static str, dtype: DType) -> Result<u32> {
        let bits = self.bits(operation, dtype)?;
        Ok(match dtype {
            DType::F32 | DType::I32 | DType::U32 => bits,
            DType::F16 => u32::from(f16::from_f32(f32::from_bits(bits)).to_bits()) * 0x0001_0001,
            DType::Bf16 => bits >> 16 | bits & 0xffff_0000,
            DType::U8 | DType::Bool | DType::I8 => (bits & 0xff) * 0x0101_0101,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scalar_fits_a_type_or_is_refused() {
        let check = |scalar: Scalar, dtype, bits: Option<u32>| {
            let got = scalar.bits("test", dtype).ok();
            assert_eq!(got, bits, "{scalar:?} as {dtype}");
        };
        check(1.into(), DType::F32, Some(1.0_f32.to_bits()));
        check(1e9.into(), DType::F16, Some(f32::INFINITY.to_bits()));
        check((-1).into(), DType::I32, Some(u32::MAX));
        check((-1).into(), DType::U32, None);
        check(256.into(), DType::U8, None);
        check((-128).into(), DType::I8, Some(-128_i32 as u32));
        check(128.into(), DType::I8, None);
        check(1e9.into(), DType::Bf16, Some(0x4e6e_0000));
        check(2.5.into(), DType::I32, None);
        check(true.into(), DType::Bool, Some(1));
        check(true.into(), DType::F32, None);
        check(1.into(), DType::Bool, None);
        assert_eq!(
            Scalar::from(7).word("test", DType::U8).ok(),
            Some(0x0707_0707)
        );
        assert_eq!(
            Scalar::from(1.0).word("test", DType::F16).ok(),
            Some(0x3c00_3c00)
        );
        assert_eq!(
            Scalar::from(1.0).word("test", DType::Bf16).ok(),
            Some(0x3f80_3f80)
        );
        assert_eq!(
            Scalar::from(-2).word("test", DType::I8).ok(),
            Some(0xfefe_fefe)
        );
    }

    #[test]
    fn the_message_says_what_does_not_fit() {
        let error = Scalar::from(300)
            .bits("add", DType::U8)
            .map_err(|e| e.to_string());
        assert_eq!(
            error,
            Err("add: u8 where a type that holds 300 is needed. Use `cast`".to_string())
        );
    }
}
