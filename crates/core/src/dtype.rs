//! Element types: their widths, their names, and the Rust types that tensors are read into.
//!
//! A leaf module, like [`units`](crate::units): every layer may name it.
//!
//! WGSL addresses memory in 32-bit words, so types narrower than a word are packed, low bits first.
//! A word holds two f16 (or bf16) or four u8 (or i8, or bool). Kernels therefore work on *vec4s*:
//! four neighbouring elements, which fill whole words for every type. One invocation writes a whole
//! vec4, so no two invocations ever write the same word.

use std::fmt;

use half::{bf16, f16};

use crate::parallel::{PART_BYTES, copy, share_out};

/// The type of a tensor's elements.
///
/// Types are never promoted: both operands of an operation have the same type. `cast` changes the
/// type of a tensor, and a plain number takes the type of the tensor. The types of results:
///
/// - Arithmetic, and operations that pick or move elements: the same type.
/// - Comparisons, logic, `any` and `all`: [`Bool`](DType::Bool). Counts and positions:
///   [`U32`](DType::U32).
/// - Sums and products, also running ones: the same type. Bytes are widened as in PyTorch, but to
///   32 bits: [`U32`](DType::U32) for [`U8`](DType::U8) and [`Bool`](DType::Bool),
///   [`I32`](DType::I32) for [`I8`](DType::I8).
/// - Products of matrices: the same type. If one operand only stores its elements in fewer bits,
///   the wider type: f16 or bf16 beside [`F32`](DType::F32), [`I8`](DType::I8) beside floats.
/// - Operations for floats only (means, exponentials, norms, …): the same type. They refuse
///   integers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum DType {
    /// IEEE 754 single precision, 4 bytes.
    F32,
    /// IEEE 754 half precision, 2 bytes; widened to f32 inside every kernel.
    F16,
    /// Signed 32-bit integer.
    I32,
    /// Unsigned 32-bit integer.
    U32,
    /// Unsigned 8-bit integer; widened to u32 inside every kernel.
    U8,
    /// A truth value in one byte, 0 or 1.
    Bool,
    /// The upper half of an [`F32`](DType::F32), 2 bytes: the same range, with 8 bits of precision.
    /// Every kernel widens it to f32, and rounds to the nearest value, ties to even, when it
    /// stores.
    Bf16,
    /// Signed 8-bit integer; widened to i32 inside every kernel, and wrapped when stored.
    I8,
}

impl DType {
    /// Every element type, in order of declaration.
    pub const ALL: [DType; 8] = [
        DType::F32,
        DType::F16,
        DType::I32,
        DType::U32,
        DType::U8,
        DType::Bool,
        DType::Bf16,
        DType::I8,
    ];

    /// Bytes of one element: 4, 2 or 1.
    pub const fn size_bytes(self) -> u64 {
        match self {
            DType::F32 | DType::I32 | DType::U32 => 4,
            DType::F16 | DType::Bf16 => 2,
            DType::U8 | DType::Bool | DType::I8 => 1,
        }
    }

    /// Whether this is a floating-point type.
    pub const fn is_float(self) -> bool {
        matches!(self, DType::F32 | DType::F16 | DType::Bf16)
    }

    /// The WGSL type that kernels compute in: `f32`, `i32` or `u32` (a bool is 0 or 1 in a `u32`).
    pub const fn wgsl(self) -> &'static str {
        match self {
            DType::F32 | DType::F16 | DType::Bf16 => "f32",
            DType::I32 | DType::I8 => "i32",
            DType::U32 | DType::U8 | DType::Bool => "u32",
        }
    }

    /// The name in Rust's spelling: `f32`, `f16`, `i32`, `u32`, `u8`, `bool`, `bf16`, `i8`.
    pub const fn name(self) -> &'static str {
        match self {
            DType::F32 => "f32",
            DType::F16 => "f16",
            DType::I32 => "i32",
            DType::U32 => "u32",
            DType::U8 => "u8",
            DType::Bool => "bool",
            DType::Bf16 => "bf16",
            DType::I8 => "i8",
        }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

mod sealed {
    pub trait Sealed: bytemuck::Zeroable {}
}

/// A Rust type that tensors are created from and read into: `f32`, `half::f16`, `half::bf16`,
/// `i32`, `u32`, `u8`, `i8`, `bool`.
///
/// Sealed: it has exactly one implementor for each [`DType`].
pub trait Element:
    Copy + Default + fmt::Debug + PartialEq + Send + Sync + sealed::Sealed + 'static
{
    /// The element type in device memory.
    const DTYPE: DType;

    /// The bytes of a slice, in the layout of device memory.
    fn bytes_of(slice: &[Self]) -> &[u8];

    /// Decodes device memory into a slice, from byte `offset_bytes` of the slice on. The bytes may
    /// start and end inside an element. Any byte but 0 is a true bool.
    fn decode(slice: &mut [Self], offset_bytes: usize, bytes: &[u8]);

    /// Views device memory as elements without a copy. `None` unless the memory is aligned for
    /// them, and each byte of a bool is 0 or 1.
    fn seen_in(bytes: &[u8]) -> Option<&[Self]>;

    /// Decodes device memory. `bytes` must hold a whole number of elements.
    fn vec_from(bytes: &[u8]) -> Vec<Self> {
        let mut slice = vec![Self::default(); bytes.len() / size_of::<Self>()];
        let whole_bytes = slice.len() * size_of::<Self>();
        Self::decode(&mut slice, 0, &bytes[..whole_bytes]);
        slice
    }
}

macro_rules! pod_element {
    ($($type:ty => $dtype:ident),*) => {$(
        impl sealed::Sealed for $type {}
        impl Element for $type {
            const DTYPE: DType = DType::$dtype;
            fn bytes_of(slice: &[Self]) -> &[u8] {
                bytemuck::cast_slice(slice)
            }
            fn decode(slice: &mut [Self], offset_bytes: usize, bytes: &[u8]) {
                let slice = bytemuck::cast_slice_mut::<Self, u8>(slice);
                copy(&mut slice[offset_bytes..offset_bytes + bytes.len()], bytes);
            }
            fn seen_in(bytes: &[u8]) -> Option<&[Self]> {
                bytemuck::try_cast_slice(bytes).ok()
            }
        }
    )*};
}

pod_element!(f32 => F32, f16 => F16, bf16 => Bf16, i32 => I32, u32 => U32, u8 => U8, i8 => I8);

impl sealed::Sealed for bool {}
impl Element for bool {
    const DTYPE: DType = DType::Bool;
    fn bytes_of(slice: &[Self]) -> &[u8] {
        bytemuck::cast_slice(slice)
    }
    fn decode(slice: &mut [Self], offset_bytes: usize, bytes: &[u8]) {
        let slice = &mut slice[offset_bytes..offset_bytes + bytes.len()];
        let parts = slice.chunks_mut(PART_BYTES).zip(bytes.chunks(PART_BYTES));
        share_out(bytes.len(), parts, |(to, from)| {
            for (element, &byte) in to.iter_mut().zip(from) {
                *element = byte != 0;
            }
        });
    }
    fn seen_in(bytes: &[u8]) -> Option<&[Self]> {
        bytemuck::checked::try_cast_slice(bytes).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_survive_the_trip_through_bytes_at_any_alignment() {
        let values = [1.5_f32, -0.0, f32::INFINITY];
        let mut shifted = vec![0_u8];
        shifted.extend_from_slice(f32::bytes_of(&values));
        assert_eq!(f32::vec_from(&shifted[1..]), values);
        for cut in 0..12 {
            let mut pieces = [0.0_f32; 3];
            let (front, back) = shifted[1..].split_at(cut);
            f32::decode(&mut pieces, 0, front);
            f32::decode(&mut pieces, cut, back);
            assert_eq!(pieces, values);
        }
        assert_eq!(bool::vec_from(&[0, 1, 7]), [false, true, true]);
        assert_eq!(bool::seen_in(&[0, 1]), Some(&[false, true][..]));
        assert_eq!(bool::seen_in(&[0, 7]), None);
        let words = [1_u32, 2];
        let bytes = u32::bytes_of(&words);
        assert_eq!(u32::seen_in(bytes), Some(&words[..]));
        assert_eq!(u32::seen_in(&bytes[1..5]), None);
        assert_eq!(f16::vec_from(f16::bytes_of(&[f16::ONE])), [f16::ONE]);
        assert_eq!(bf16::vec_from(&[0x80, 0x3f]), [bf16::ONE]);
        assert_eq!(i8::vec_from(&[0xff]), [-1]);
    }
}
