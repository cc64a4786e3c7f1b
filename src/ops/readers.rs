//! Kernels that read an operand `x` element by element. Fusion can compute these elements within
//! the kernel. So the kernels read `x` only by `x_get` and `x_get4`, and their parameters are
//! [`RowParams`](super::rows::RowParams).

use super::rows::RowParams;
use super::{argreduce, layer_norm, normalize, reduce, softmax};
use lapidary_core::internal::BuiltInKernel;

/// A kernel whose first operand is `x`.
#[derive(Debug)]
pub(crate) struct Reader {
    pub(crate) kernel: &'static BuiltInKernel,
    /// How often it reads each element.
    pub(crate) times: u32,
    /// What a variant computes, by its code.
    pub(crate) name: fn(u64) -> &'static str,
    /// Whether a variant can be fused with expressions before and after it.
    pub(crate) fuses: fn(u64) -> bool,
}

/// Words of parameters, the same for all readers.
pub(crate) const READER_WORDS: usize = size_of::<RowParams>() / 4;

/// The first vectors of the parameters. A variant reads as many lanes of each as its rows have
/// dimensions.
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

/// The reader of a kernel, if it has one.
pub(crate) fn reader_of(kernel: &'static BuiltInKernel) -> Option<&'static Reader> {
    READERS.iter().find(|one| std::ptr::eq(one.kernel, kernel))
}

/// The words of parameters that a variant with these ranks ignores.
pub(crate) fn unseen_words(code: u64) -> impl Iterator<Item = usize> {
    let (outer, inner) = ((code & 15) as usize, (code >> 4 & 15) as usize);
    // The bound of the outermost dimension is not read.
    let seen = [
        outer.max(1) - 1,
        outer.max(1),
        inner.max(1) - 1,
        inner.max(1),
    ];
    let lanes = seen.into_iter().enumerate();
    lanes.flat_map(|(vector, seen)| (seen..4).map(move |lane| 4 * vector + lane))
}

/// The vector and the lane of such a word.
pub(crate) fn unseen_word(word: usize) -> (&'static str, usize) {
    (VECTORS[word / 4], word % 4)
}

impl Reader {
    /// The unique number of a reader.
    pub(crate) fn number(&self) -> u8 {
        let mut readers = READERS.iter();
        let number = readers.position(|one| std::ptr::eq(one, self));
        number.unwrap_or(0) as u8
    }
}
