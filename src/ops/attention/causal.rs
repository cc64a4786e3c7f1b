//! Which keys a query sees by its place.

use super::Call;
use super::problem::{Shapes, rows_of};
use crate::ops::fill::full;
use crate::tensor::Tensor;
use lapidary_core::Result;

/// Which keys are hidden from a query of
/// [`scaled_dot_product_attention`](Tensor::scaled_dot_product_attention) because they come later.
///
/// The two masks differ where there are not as many queries as keys. From a `bool`, `true` is
/// `FirstKey` and `false` is `No`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Causal {
    /// Every query sees every key.
    #[default]
    No,
    /// The first query is as old as the first key: query `i` sees the keys up to `i`, as with
    /// PyTorch's `is_causal` and `causal_upper_left`.
    FirstKey,
    /// The last query is as old as the last key: query `i` sees the keys up to
    /// `i + keys - queries`. So it is where the keys are a cache to which those of the queries were
    /// added, and in PyTorch's `causal_lower_right`. Queries that are older than all keys give
    /// zeros.
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

impl Call<'_> {
    /// The whole call, with later keys hidden so.
    #[track_caller]
    pub(super) fn run_causal(self, causal: Causal) -> Result<Tensor> {
        let (queries, keys) = (rows_of(self.q), rows_of(self.k));
        let call = Call {
            is_causal: causal != Causal::No,
            ..self
        };
        match causal {
            Causal::LastKey if queries > keys => call.after_blind(queries - keys),
            Causal::LastKey => Call {
                first: keys - queries,
                ..call
            }
            .run(None),
            Causal::No | Causal::FirstKey => call.run(None),
        }
    }

    /// The same, where so many queries are older than all keys.
    #[track_caller]
    fn after_blind(&self, blind: usize) -> Result<Tensor> {
        self.check_types()?;
        let mask = self.mask.map(|mask| &mask.layout);
        let shapes = Shapes::new(&self.q.layout, &self.k.layout, &self.v.layout, mask)?;
        let seeing = self.queries(blind, shapes.queries - blind, |late| late.run(None))?;
        let mut shape = shapes.result;
        let axis = shape.len() - 2;
        shape[axis] = blind;
        let zeros = full(&self.q.engine, &shape, 0.into(), self.q.dtype)?;
        Tensor::concat(&[&zeros, &seeing], axis as isize)
    }
}
