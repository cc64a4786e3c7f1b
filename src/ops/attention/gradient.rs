//! The gradients of attention. The backward computes the weights again, for a block of queries at a
//! time, so only the operands are kept.
//!
//! ```text
//!   P = softmax(scale · q · kᵀ + mask)        by P = g · vᵀ
//!   by v = Pᵀ · g                             by scores = P · (by P − Σ P · by P)
//!   by q = scale · by scores · k              by k = scale · by scoresᵀ · q
//! ```

use smallvec::SmallVec;

use super::call::Call;
use super::causal::{Causal, run_causal};
use super::problem::{OPERATION, Shapes};
use crate::ops::fill::{arange, full};
use crate::tensor::Tensor;
use crate::tensor::history::{Backward, Grads, Save};
use crate::tensor::layout::Dims;
use lapidary_core::{DType, Result};

/// Most bytes of the scores of a block. A block always holds one query of each head.
pub(super) const BLOCK_BYTES: usize = 64 << 20;

/// The whole call, with its gradients.
#[cold]
#[track_caller]
pub(super) fn recorded(call: &Call<'_>, causal: Causal, block_bytes: usize) -> Result<Tensor> {
    let [q, k, v] = [call.q, call.k, call.v].map(Tensor::untracked);
    let mask = call.mask.map(Tensor::untracked);
    let plain = Call {
        q: &q,
        k: &k,
        v: &v,
        mask: mask.as_ref(),
        ..*call
    };
    let y = run_causal(&plain, causal)?;
    let mask = call.mask.map(|mask| &mask.layout);
    let shapes = Shapes::new(&q.layout, &k.layout, &v.layout, mask)?;
    let first = match causal {
        Causal::No => None,
        Causal::FirstKey => Some(0),
        Causal::LastKey => Some(shapes.keys as i64 - shapes.queries as i64),
    };
    let past = Past {
        scale: call.scale.unwrap_or_else(|| shapes.scale()),
        first,
        block_bytes,
        shapes,
    };
    let operands: SmallVec<[&Tensor; 4]> = [call.q, call.k, call.v]
        .into_iter()
        .chain(call.mask)
        .collect();
    let saves: SmallVec<[Save<'_>; 4]> = (0..operands.len()).map(Save::Operand).collect();
    Ok(y.recorded_as(OPERATION, &operands, &saves, move |b| past.through(b)))
}

/// What a backward knows of the call, beside the operands.
struct Past {
    shapes: Shapes,
    scale: f32,
    /// The position of the first query among the keys, if later keys are hidden from it.
    first: Option<i64>,
    block_bytes: usize,
}

/// Some queries, and the first keys up to the last that one of them sees.
#[derive(Clone, Copy)]
struct Block {
    start: usize,
    len: usize,
    seen: usize,
}

/// The operands and the gradient of the result. Queries and results have the dimensions
/// `[outer, heads of keys, heads of a group, rows, elements]`, keys and values lack the third.
struct Operands<'a> {
    /// Queries, scaled, in f32.
    q: Tensor,
    g: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Option<&'a Tensor>,
}

/// The gradients in the dimensions of [`Operands`], and that of the mask in its own.
struct Sums {
    q: Sum,
    k: Sum,
    v: Sum,
    mask: Sum,
}

impl Past {
    /// The gradients of queries, keys, values and the mask.
    #[track_caller]
    fn through(&self, b: &Backward) -> Result<Grads> {
        let Shapes {
            heads,
            group,
            queries,
            keys,
            ..
        } = self.shapes;
        if b.grad.is_empty() || keys == 0 {
            let zeros = b.saved.iter().enumerate();
            let zeros = zeros.map(|(operand, of)| match b.needs(operand) {
                true => of.untracked().zeros_like().map(Some),
                false => Ok(None),
            });
            return zeros.collect();
        }
        let one = |x: &Tensor| self.shapes.grouped(x, 1)?.squeeze_axis(2);
        let q = b.saved[0].cast(DType::F32)?;
        let all = Operands {
            q: (self.shapes.grouped(&q, group)? * self.scale)?,
            g: self.shapes.grouped(&b.grad.cast(DType::F32)?, group)?,
            k: one(&b.saved[1])?,
            v: one(&b.saved[2])?,
            mask: b.saved.get(3),
        };
        let mut sums = Sums {
            q: Sum::new(all.q.shape()),
            k: Sum::new(all.k.shape()),
            v: Sum::new(all.v.shape()),
            mask: Sum::new(all.mask.map_or(&[], Tensor::shape)),
        };
        let outer = all.q.shape()[0];
        let row_bytes = outer * heads * group * keys * 4;
        let rows = (self.block_bytes / row_bytes.max(1)).clamp(1, queries);
        for start in (0..queries).step_by(rows) {
            if let Some(block) = self.block(start, rows.min(queries - start)) {
                self.add(b, &all, block, &mut sums)?;
            }
        }
        let narrow = |sum: Sum, heads: usize, operand: usize| {
            if !b.needs(operand) {
                return Ok(None);
            }
            let of = &b.saved[operand];
            let [rows, elements] = [of.shape()[of.rank() - 2], of.shape()[of.rank() - 1]];
            let whole = sum.finish(&b.grad)?;
            let whole = whole.reshape(&self.batch(heads, rows, elements))?;
            whole.sum_to(of.shape())?.cast(of.dtype).map(Some)
        };
        let mut grads = Grads::new();
        grads.push(narrow(sums.q, heads * group, 0)?);
        grads.push(narrow(sums.k, heads, 1)?);
        grads.push(narrow(sums.v, heads, 2)?);
        if let (true, Some(mask)) = (b.needs(3), all.mask) {
            grads.push(Some(sums.mask.finish(&b.grad)?.cast(mask.dtype)?));
        }
        Ok(grads)
    }

    /// Adds the gradients by a block of queries.
    #[track_caller]
    fn add(&self, b: &Backward, all: &Operands<'_>, block: Block, sums: &mut Sums) -> Result<()> {
        let Block { start, len, seen } = block;
        let [outer, heads, group] = [0, 1, 2].map(|axis| all.q.shape()[axis]);
        // Heads that share keys become rows, so a product sums over them.
        let lines = |x: &Tensor| {
            let shape = [outer, heads, group * len, x.shape()[4]];
            x.narrow(3, start, len)?.reshape(&shape)
        };
        let (q, g) = (lines(&all.q)?, lines(&all.g)?);
        let (k, v) = (all.k.narrow(2, 0, seen)?, all.v.narrow(2, 0, seen)?);
        let scores = q.matmul(&k.transpose(-2, -1)?)?;
        let scores = scores.reshape(&[outer, heads, group, len, seen])?;
        let weights = self.weights(scores, all.mask, block)?;
        let weights = weights.reshape(&[outer, heads, group * len, seen])?;
        if b.needs(2) {
            let part = weights.transpose(-2, -1)?.matmul(&g)?;
            sums.v.add(part, |whole| whole.narrow(2, 0, seen))?;
        }
        if !(b.needs(0) || b.needs(1) || b.needs(3)) {
            return Ok(());
        }
        let by_weights = g.matmul(&v.transpose(-2, -1)?)?;
        let by_scores = by_weights.softmax_backward(&weights, -1)?;
        if b.needs(0) {
            let part = (by_scores.matmul(&k)? * self.scale)?;
            let part = part.reshape(&[outer, heads, group, len, q.shape()[3]])?;
            sums.q.add(part, |whole| whole.narrow(3, start, len))?;
        }
        if b.needs(1) {
            let part = by_scores.transpose(-2, -1)?.matmul(&q)?;
            sums.k.add(part, |whole| whole.narrow(2, 0, seen))?;
        }
        if let (true, Some(mask)) = (b.needs(3), all.mask) {
            let wide = by_scores.reshape(&self.batch(heads * group, len, seen))?;
            let part = wide.sum_to(self.within(mask, block)?.shape())?;
            sums.mask.add(part, |whole| self.within(whole, block))?;
        }
        Ok(())
    }

    /// The block of queries. `None` if they see no key by their positions.
    fn block(&self, start: usize, len: usize) -> Option<Block> {
        let keys = self.shapes.keys as i64;
        let seen = match self.first {
            Some(first) => (first + (start + len) as i64).clamp(0, keys),
            None => keys,
        };
        (seen > 0).then_some(Block {
            start,
            len,
            seen: seen as usize,
        })
    }

    /// A shape with all dimensions before the rows.
    fn batch(&self, heads: usize, rows: usize, elements: usize) -> Dims {
        let mut shape = self.shapes.outer.clone();
        shape.extend([heads, rows, elements]);
        shape
    }

    /// The elements of a mask for a block.
    #[track_caller]
    fn within(&self, mask: &Tensor, block: Block) -> Result<Tensor> {
        let rank = mask.rank();
        let is_whole = |from_end: usize| rank < from_end || mask.shape()[rank - from_end] == 1;
        let rows = match is_whole(2) {
            true => mask.clone(),
            false => mask.narrow(-2, block.start, block.len)?,
        };
        match is_whole(1) {
            true => Ok(rows),
            false => rows.narrow(-1, 0, block.seen),
        }
    }

    /// The softmax of the scores of a block. A query that sees no key has weights of 0.
    #[track_caller]
    fn weights(&self, scores: Tensor, mask: Option<&Tensor>, block: Block) -> Result<Tensor> {
        let Block { start, len, seen } = block;
        let Shapes { heads, group, .. } = self.shapes;
        let mut scores = scores;
        if let Some(mask) = mask {
            let part = self.within(mask, block)?;
            let part = match part.dtype {
                DType::Bool => part.logical_not()?,
                _ => part.cast(DType::F32)?,
            };
            let part = part.broadcast_to(&self.batch(heads * group, len, seen))?;
            let part = part.reshape(scores.shape())?;
            scores = match part.dtype {
                DType::Bool => scores.masked_fill(&part, f32::NEG_INFINITY)?,
                _ => (scores + part)?,
            };
        }
        if let Some(first) = self.first.map(|first| first + start as i64) {
            let along = |from: i64, len: usize| {
                let end = from + len as i64;
                arange(
                    &scores.engine,
                    from.into(),
                    end.into(),
                    1.into(),
                    DType::I32,
                )
            };
            let is_later = along(0, seen)?.gt(&along(first, len)?.unsqueeze(1)?)?;
            scores = scores.masked_fill(&is_later, f32::NEG_INFINITY)?;
        }
        if mask.is_none() && self.first.is_none_or(|first| first >= 0) {
            return scores.softmax(-1);
        }
        // The softmax of nothing but −∞ is NaN, and so would be its gradient.
        let highest = scores.untracked().max_keepdim(&[-1])?;
        let is_blind = highest.eq(f32::NEG_INFINITY)?;
        let weights = scores.masked_fill(&is_blind, 0.0)?.softmax(-1)?;
        weights.masked_fill(&is_blind, 0.0)
    }
}

/// A gradient, summed over blocks.
struct Sum {
    shape: Dims,
    whole: Option<Tensor>,
}

impl Sum {
    fn new(shape: &[usize]) -> Self {
        Sum {
            shape: shape.into(),
            whole: None,
        }
    }

    /// Adds a part at its place.
    #[track_caller]
    fn add(&mut self, part: Tensor, place: impl FnOnce(&Tensor) -> Result<Tensor>) -> Result<()> {
        if part.shape() == &self.shape[..] {
            self.whole = Some(match self.whole.take() {
                None => part,
                // A recorded operation may have saved the first part.
                Some(whole) if whole.is_tracked() || part.is_tracked() => (whole + part)?,
                Some(whole) => {
                    whole.add_(&part)?;
                    whole
                }
            });
            return Ok(());
        }
        let whole = match self.whole.take() {
            Some(whole) => whole,
            None => self.zeros(&part)?,
        };
        place(&whole)?.add_(&part)?;
        self.whole = Some(whole);
        Ok(())
    }

    /// The sum, on the device of another tensor.
    #[track_caller]
    fn finish(self, like: &Tensor) -> Result<Tensor> {
        match self.whole {
            Some(whole) => Ok(whole),
            None => self.zeros(like),
        }
    }

    #[track_caller]
    fn zeros(&self, like: &Tensor) -> Result<Tensor> {
        full(&like.engine, &self.shape, 0.0.into(), DType::F32)
    }
}
