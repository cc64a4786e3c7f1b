//! Kernels that read an operand `x` element by element, wherever it may come from: fusion can have
//! its elements computed on the way in. They reach it by `x_get` and `x_get4` alone, and what they
//! are told is a [`RowParams`](super::rows::RowParams).

use super::rows::RowParams;
use super::{argreduce, layer_norm, normalize, reduce, softmax};
use lapidary_core::internal::Kernel;

/// A kernel whose first operand is `x`.
#[derive(Debug)]
pub(crate) struct Reader {
    pub(crate) kernel: &'static Kernel,
    /// How often it reads each element.
    pub(crate) times: u32,
    /// What a variant computes, by its code.
    pub(crate) name: fn(u64) -> &'static str,
    /// Can expressions come before and after a variant?
    pub(crate) fuses: fn(u64) -> bool,
}

/// Words of the parameters of all of them.
pub(crate) const READER_WORDS: usize = size_of::<RowParams>() / 4;

/// What the parameters begin with: vectors of which a variant looks at as many lanes as its rows
/// have dimensions.
const VECTORS: [&str; 4] = ["outer_dims", "outer_strides", "inner_dims", "inner_strides"];

static READERS: [Reader; 5] = [
    Reader {
        kernel: &reduce::REDUCE,
        times: 1,
        name: reduce::name_of,
        fuses: |_| true,
    },
    Reader {
        kernel: &reduce::REDUCE_AROUND,
        times: 1,
        name: reduce::name_of,
        fuses: |_| true,
    },
    Reader {
        kernel: &softmax::SOFTMAX,
        times: 3,
        name: softmax::name_of,
        fuses: normalize::is_by_vec4s,
    },
    Reader {
        kernel: &layer_norm::LAYER_NORM,
        times: 3,
        name: layer_norm::name_of,
        fuses: normalize::is_by_vec4s,
    },
    Reader {
        kernel: &argreduce::ARGREDUCE,
        times: 1,
        name: |_| "argreduce",
        fuses: |_| true,
    },
];

/// The reader of a kernel, if it is one.
pub(crate) fn reader_of(kernel: &'static Kernel) -> Option<&'static Reader> {
    READERS.iter().find(|one| std::ptr::eq(one.kernel, kernel))
}

/// Words of the parameters that are not looked at where the code holds these ranks.
pub(crate) fn unseen_words(code: u64) -> impl Iterator<Item = usize> {
    let (outer, inner) = ((code & 15) as usize, (code >> 4 & 15) as usize);
    // The outermost dimension ends with the rows, or with the row.
    let seen = [
        outer.max(1) - 1,
        outer.max(1),
        inner.max(1) - 1,
        inner.max(1),
    ];
    let lanes = seen.into_iter().enumerate();
    lanes.flat_map(|(vector, seen)| (seen..4).map(move |lane| 4 * vector + lane))
}

/// The vector and the lane that hold one of those.
pub(crate) fn unseen_word(word: usize) -> (&'static str, usize) {
    (VECTORS[word / 4], word % 4)
}

impl Reader {
    /// No other has it.
    pub(crate) fn number(&self) -> u8 {
        let mut readers = READERS.iter();
        let number = readers.position(|one| std::ptr::eq(one, self));
        number.unwrap_or(0) as u8
    }
}
