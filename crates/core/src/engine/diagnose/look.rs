//! The kinds of looks, and the sizes of their answers.

use super::finding::Diagnostics;
use crate::dtype::DType;

/// The bytes of the buffer that hold the pattern, ready to be copied.
pub(crate) const PATTERN_BYTES: u64 = 64 << 10;

/// The size of an answer: four words.
pub(crate) const ANSWER_BYTES: u64 = 16;

/// The most answers in the buffer, if one binding can show as many.
pub(super) const MOST_ANSWERS: u64 = 16 << 10;

/// The number of answers when memory is short.
pub(super) const LEAST_ANSWERS: u64 = 4 << 10;

/// The number of answers that a look at one range binds. It writes some of them.
pub(super) const PAGE_ANSWERS: u32 = 256;

/// The bytes of the parameters of a look.
pub(crate) const PARAMS_BYTES: u32 = 32;

/// The kinds of looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// Counts words that differ from the pattern.
    Words,
    /// The same, for many ranges.
    Table,
    /// Counts words of the pattern, and replaces them by zeros.
    Clear,
    /// Counts NaN and infinities of f32.
    F32,
    /// Counts NaN and infinities of f16.
    F16,
    /// Counts NaN and infinities of bf16.
    Bf16,
}

impl Look {
    /// All looks, in the order of their codes.
    pub const ALL: [Look; 6] = [
        Look::Words,
        Look::Table,
        Look::Clear,
        Look::F32,
        Look::F16,
        Look::Bf16,
    ];

    /// The look of a variant's code.
    pub(crate) fn from_code(code: u64) -> Look {
        let known = Look::ALL.get(code as usize);
        known.copied().unwrap_or(Look::Words)
    }

    pub(super) fn of_dtype(dtype: DType) -> Option<Look> {
        match dtype {
            DType::F32 => Some(Look::F32),
            DType::F16 => Some(Look::F16),
            DType::Bf16 => Some(Look::Bf16),
            _ => None,
        }
    }

    pub(super) fn is_wanted(self, wants: Diagnostics) -> bool {
        match self {
            Look::Words | Look::Table => wants.canaries || wants.poison,
            Look::Clear => wants.unwritten,
            Look::F32 | Look::F16 | Look::Bf16 => wants.non_finite,
        }
    }

    pub(super) fn element_bytes(self) -> u64 {
        match self {
            Look::F16 | Look::Bf16 => 2,
            _ => 4,
        }
    }
}
