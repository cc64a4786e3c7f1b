//! The keys that a query sees by its position.

use super::call::Call;
use super::problem::{Shapes, rows_of};
use crate::ops::fill::full;
use crate::tensor::Tensor;
use lapidary_core::Result;

/// How [`scaled_dot_product_attention`](Tensor::scaled_dot_product_attention) hides later keys from
/// a query.
///
/// The two masks differ if there are not as many queries as keys. The `bool` `true` converts to
/// `FirstKey`, and `false` to `No`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Causal {
    /// Every query sees every key.
    #[default]
    No,
    /// The first query is aligned with the first key: query `i` sees the keys up to `i`, as with
    /// PyTorch's `is_causal` and `causal_upper_left`.
    FirstKey,
    /// The last query is aligned with the last key: query `i` sees the keys up to
    /// `i + keys - queries`. It is for keys in a cache that ends with those of the queries, and is
    /// PyTorch's `causal_lower_right`. Queries before all keys give zeros.
    LastKey,
}

impl From<bool> for Causal {
    fn from(is_causal: bool) -> Self {
        match is_causal {
            true => Causal::FirstKey,
            false => Causal::No,
        }
    }
}

/// Runs the whole call with this rule for later keys.
#[track_caller]
pub(super) fn run_causal(given: &Call<'_>, causal: Causal) -> Result<Tensor> {
    let (queries, keys) = (rows_of(given.q), rows_of(given.k));
    let call = Call {
        is_causal: causal != Causal::No,
        ..*given
    };
    match causal {
        Causal::LastKey if queries > keys => after_blind(&call, queries - keys),
        Causal::LastKey => Call {
            first: keys - queries,
            ..call
        }
        .run(None),
        Causal::No | Causal::FirstKey => call.run(None),
    }
}

/// The same, if the first `blind` queries see no keys.
#[track_caller]
fn after_blind(call: &Call<'_>, blind: usize) -> Result<Tensor> {
    call.check_types()?;
    let mask = call.mask.map(|mask| &mask.layout);
    let shapes = Shapes::new(&call.q.layout, &call.k.layout, &call.v.layout, mask)?;
    let seeing = call.queries(blind, shapes.queries - blind, |late| late.run(None))?;
    let mut shape = shapes.result;
    let axis = shape.len() - 2;
    shape[axis] = blind;
    let zeros = full(&call.q.engine, &shape, 0.into(), call.q.dtype)?;
    Tensor::concat(&[&zeros, &seeing], axis as isize)
}
