//! Calls too long for one submission: some queries at a time.

use super::call::Call;
use super::problem::{Shapes, rows_of};
use crate::ops::long::{assemble, part};
use crate::tensor::Tensor;
use lapidary_core::Result;

/// The number of queries in a part is a multiple of this, so that tiles stay whole.
const UNIT: usize = 128;

impl Shapes {
    /// Multiply-adds.
    pub(super) fn work(&self) -> u64 {
        let columns = self.result.last().copied().unwrap_or(0);
        let sizes = [
            self.heads,
            self.group,
            self.queries,
            self.keys,
            self.size + columns,
        ];
        (self.outer.iter().chain(&sizes))
            .fold(1, |work: u64, &size| work.saturating_mul(size as u64))
    }
}

impl Call<'_> {
    /// The number of queries at a time, if all at once take too long.
    pub(super) fn queries_at_once(&self, shapes: &Shapes) -> Option<usize> {
        let most_work = self.q.engine.caps().most_work;
        part(shapes.work(), most_work, shapes.queries, UNIT)
    }

    /// Runs the call for `step` queries at a time.
    #[track_caller]
    pub(super) fn in_parts(&self, shapes: &Shapes, step: usize) -> Result<Tensor> {
        let axis = shapes.result.len() - 2;
        assemble(
            self.q,
            &shapes.result,
            self.q.dtype,
            (axis, step),
            |start, len| {
                self.queries(start, len, |part| {
                    let first = self.first + start;
                    Call { first, ..*part }.run(None)
                })
            },
        )
    }

    /// Calls `run` with some of the queries and their rows of the mask.
    #[track_caller]
    pub(super) fn queries(
        &self,
        start: usize,
        len: usize,
        run: impl FnOnce(&Call<'_>) -> Result<Tensor>,
    ) -> Result<Tensor> {
        let mask = match self.mask {
            Some(mask) if rows_of(mask) > 1 => Some(mask.narrow(-2, start, len)?),
            mask => mask.cloned(),
        };
        run(&Call {
            q: &self.q.narrow(-2, start, len)?,
            mask: mask.as_ref(),
            ..*self
        })
    }
}
