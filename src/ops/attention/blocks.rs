//! Attention by matmul and softmax, a block of queries at a time, for calls that do not suit the
//! kernel. The scores of a block are no larger than the keys, so memory stays linear.

use super::call::Call;
use super::problem::Shapes;
use crate::ops::fill::{arange, full};
use crate::tensor::Tensor;
use crate::tensor::layout::Dims;
use lapidary_core::{DType, Result};

/// Every operand with the dimensions `[outer, heads of keys, heads of a group, rows, elements]`.
struct Grouped {
    q: Tensor,
    k: Tensor,
    v: Tensor,
    outer: usize,
}

impl Grouped {
    #[track_caller]
    fn new(call: &Call<'_>, shapes: &Shapes) -> Result<Self> {
        // The scores of 16-bit floats may overflow, so queries are cast to f32. Products widen keys
        // and values as they load them, so a cache of 16-bit floats is read in place.
        let q = call.q.cast(DType::F32)?;
        Ok(Grouped {
            q: shapes.grouped(&q, shapes.group)?,
            k: shapes.grouped(call.k, 1)?,
            v: shapes.grouped(call.v, 1)?,
            outer: shapes.outer.iter().product(),
        })
    }
}

impl Shapes {
    /// An operand with the dimensions of [`Grouped`].
    #[track_caller]
    pub(super) fn grouped(&self, x: &Tensor, group: usize) -> Result<Tensor> {
        let [rows, elements] = [x.shape()[x.rank() - 2], x.shape()[x.rank() - 1]];
        let mut shape: Dims = self.outer.clone();
        shape.extend([self.heads * group, rows, elements]);
        let whole = x.broadcast_to(&shape)?;
        let outer = self.outer.iter().product();
        whole.reshape(&[outer, self.heads, group, rows, elements])
    }
}

/// Writes the result to `y`, which has the result's shape in `shapes`.
#[track_caller]
pub(super) fn run(call: &Call<'_>, shapes: &Shapes, scale: f32, y: &Tensor) -> Result<()> {
    let all = Grouped::new(call, shapes)?;
    let keys = all.k.transpose(-2, -1)?;
    y.clear_storage()?;
    let rows = (shapes.size.max(1) / shapes.group.max(1)).clamp(1, shapes.queries);
    for start in (0..shapes.queries).step_by(rows) {
        let len = rows.min(shapes.queries - start);
        let q = (all.q.narrow(-2, start, len)? * scale)?;
        let scores = masked(call, shapes, &all, q.matmul(&keys)?, start)?;
        let weights = match call.mask {
            None => scores.softmax(-1)?,
            Some(_) => {
                // Softmax would give NaN for a query that sees no key.
                let below = full(
                    &y.engine,
                    &[],
                    f64::from(f32::NEG_INFINITY).into(),
                    DType::F32,
                )?;
                let is_blind = scores.max_keepdim(&[-1])?.eq(&below)?;
                let zero = full(&y.engine, &[], 0.0.into(), DType::F32)?;
                is_blind.where_(&zero, &scores.softmax(-1)?)?
            }
        };
        let made = weights.matmul(&all.v)?.cast(y.dtype)?;
        let part = y.narrow(-2, start, len)?;
        part.copy_(&made.reshape(part.shape())?)?;
    }
    Ok(())
}

/// The scores of the queries from `start` on; masked ones are −∞.
#[track_caller]
fn masked(
    call: &Call<'_>,
    shapes: &Shapes,
    all: &Grouped,
    scores: Tensor,
    start: usize,
) -> Result<Tensor> {
    let engine = &scores.engine.clone();
    let below = full(engine, &[], f64::from(f32::NEG_INFINITY).into(), DType::F32)?;
    let len = scores.shape()[3];
    let mut scores = scores;
    if let Some(mask) = call.mask {
        let rank = mask.rank();
        let mask = match rank >= 2 && mask.shape()[rank - 2] != 1 {
            true => mask.narrow(-2, start, len)?,
            false => mask.clone(),
        };
        let mut shape: Dims = shapes.outer.clone();
        shape.extend([shapes.heads * shapes.group, len, shapes.keys]);
        let mask = mask.broadcast_to(&shape)?;
        let mask = mask.reshape(&[all.outer, shapes.heads, shapes.group, len, shapes.keys])?;
        scores = match mask.dtype() {
            DType::Bool => mask.where_(&scores, &below)?,
            _ => (scores + mask.cast(DType::F32)?)?,
        };
    }
    if call.is_causal {
        let of = |from: usize, len: usize| {
            arange(
                engine,
                (from as i64).into(),
                ((from + len) as i64).into(),
                1.into(),
                DType::I32,
            )
        };
        let seen = of(0, shapes.keys)?.le(&of(call.first + start, len)?.unsqueeze(1)?)?;
        scores = seen.where_(&scores, &below)?;
    }
    Ok(scores)
}
