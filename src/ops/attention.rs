//! Scaled dot-product attention. `call` checks types. `problem` checks shapes and puts the operands
//! into the kernel's terms, `form` picks the variant, `emit` writes its text, `kernel` launches it.
//!
//! | variant | what it does | for |
//! | --- | --- | --- |
//! | register | an invocation takes up to four rows of queries; keys and values are broadcast within the subgroup | software adapters |
//! | register, no lanes | the same without broadcasts | no subgroups of known size |
//! | workgroup | 128 invocations take 32 rows, with tiles of keys in workgroup memory | GPUs |
//! | `blocks` | matmul and softmax, for a block of queries at a time | one query, and sums too long for one invocation of a software adapter |
//!
//! No kernel stores the scores. They keep only the running maximum and sum of the online softmax
//! (M. Milakov and N. Gimelshein, 2018; T. Dao et al., *FlashAttention*, 2022).

mod blocks;
mod call;
mod causal;
mod emit;
mod form;
mod gradient;
mod grouped;
mod kernel;
mod long;
mod problem;
#[cfg(test)]
mod tests;

#[cfg(any(test, feature = "sim"))]
pub(super) mod reference;

use crate::tensor::Tensor;
use crate::tensor::called::Called;
use call::Call;
pub use causal::Causal;
use causal::run_causal;
use gradient::{BLOCK_BYTES, recorded};
use lapidary_core::Result;
use lapidary_core::internal::MadeFor;

impl Tensor {
    /// `softmax(q · kᵀ · scale + mask) · v` of the queries `self`, as in PyTorch, in one kernel
    /// that never stores the scores. Beside the operands and the result, no memory grows with the
    /// number of queries times the number of keys. A backward computes the weights again, for
    /// blocks of queries whose scores take at most 64 MiB.
    ///
    /// Queries are `[…, heads, queries, size]`, keys `[…, heads, keys, size]`, values
    /// `[…, heads, keys, columns]`, all of one float type. The result is
    /// `[…, heads, queries, columns]` of that type. Sums are in f32. Any view, any size and any
    /// rank from 2 on is allowed; a size that is no multiple of 4 is padded by a copy. Dimensions
    /// before the heads broadcast. Keys and values may have fewer heads, if their number divides
    /// that of the queries. Each then serves a group of neighbouring heads of queries.
    ///
    /// - `mask` broadcasts to `[…, heads, queries, keys]`. Bools say which keys take part; floats
    ///   are added to the scaled scores.
    /// - `causal` hides later keys, also in addition to a mask. `false` hides none. `true` is
    ///   [`Causal::FirstKey`], as PyTorch's `is_causal`: query `i` sees the keys up to `i`. If the
    ///   keys are a cache that ends with those of the queries, use [`Causal::LastKey`].
    /// - `scale` is 1/√size unless given.
    ///
    /// A query that sees no key gives zeros, as in PyTorch from 2.5 on (before, NaN). Values that
    /// are not finite may make NaN also of queries from which they are hidden, as in PyTorch.
    ///
    /// ```
    /// # use lapidary::Tensor;
    /// # fn demo(q: &Tensor, k: &Tensor, v: &Tensor) -> lapidary::Result<()> {
    /// use lapidary::operations::Causal;
    ///
    /// // q: [batch, 8, 512, 64], k and v: [batch, 2, 512, 64]
    /// let y = q.scaled_dot_product_attention(k, v, None, true, None)?;
    /// // The last three queries beside a cache of all keys.
    /// let late = q.narrow(-2, 509, 3)?;
    /// let y = late.scaled_dot_product_attention(k, v, None, Causal::LastKey, None)?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Shape`](crate::Error::Shape) if the shapes do not match.
    /// [`Error::DType`](crate::Error::DType) for integers and bools, for keys and values of another
    /// type than the queries, and for a mask of integers.
    /// [`Error::Foreign`](crate::Error::Foreign) for tensors of another `Gpu`.
    #[track_caller]
    pub fn scaled_dot_product_attention(
        &self,
        key: &Tensor,
        value: &Tensor,
        mask: Option<&Tensor>,
        causal: impl Into<Causal>,
        scale: Option<f32>,
    ) -> Result<Tensor> {
        let _method = MadeFor::method("scaled_dot_product_attention");
        let call = Call {
            q: self,
            k: key,
            v: value,
            mask,
            is_causal: false,
            first: 0,
            scale,
        };
        let made = match call.is_tracked() {
            true => recorded(&call, causal.into(), BLOCK_BYTES),
            false => run_causal(&call, causal.into()),
        };
        made.located()
    }
}
