//! A call in the kernel's terms: sizes, strides, and as few batch dimensions as possible.

use bytemuck::{Pod, Zeroable};

use crate::tensor::Tensor;
use crate::tensor::layout::{Dims, Layout, Strides, broadcast_shapes, collapse};
use lapidary_core::{DType, Error, Result};

pub(super) const OPERATION: &str = "scaled_dot_product_attention";

/// Batch dimensions of the kernel: outer ones, heads of keys, heads of a group.
const MOST_BATCH_DIMS: usize = 3;

/// `Params` of the kernel's text. All are in elements; batch dimensions count from the innermost.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
pub(crate) struct Params {
    /// Queries, keys, head size of queries and keys, of values.
    pub(crate) size: [u32; 4],
    /// Batch dimensions 0 and 1, number of heads, bits of the scale.
    pub(crate) batch: [u32; 4],
    /// Strides of three batch dimensions and of rows, for q, k, v and the mask.
    pub(crate) strides: [[u32; 4]; 4],
    /// The starts of q, k, v and the mask.
    pub(crate) starts: [u32; 4],
    /// The mask's stride by key, elements of a row of y, position of the first query.
    pub(crate) rest: [u32; 4],
}

/// The sizes that follow from all operands' shapes.
#[derive(Clone, Debug)]
pub(super) struct Shapes {
    /// The dimensions before the heads.
    pub(super) outer: Dims,
    /// Heads of keys and values.
    pub(super) heads: usize,
    /// Heads of queries for each head of keys.
    pub(super) group: usize,
    pub(super) queries: usize,
    pub(super) keys: usize,
    /// Elements of a query and of a key.
    pub(super) size: usize,
    pub(super) result: Dims,
}

/// The size of a dimension counted from the end; 1 if the operand lacks it.
fn dim(layout: &Layout, from_end: usize) -> usize {
    let at = layout.rank().checked_sub(from_end);
    at.map_or(1, |axis| layout.shape[axis])
}

/// The number of queries or keys; 1 if there is no such dimension.
pub(super) fn rows_of(operand: &Tensor) -> usize {
    dim(&operand.layout, 2)
}

/// The stride of a dimension; 0 if it has only one element.
fn stride(layout: &Layout, from_end: usize) -> isize {
    match dim(layout, from_end) {
        1 => 0,
        _ => layout.strides[layout.rank() - from_end],
    }
}

impl Shapes {
    /// What scores are multiplied by unless the app says it. Without elements, scores are 0.
    pub(super) fn scale(&self) -> f32 {
        1.0 / (self.size.max(1) as f32).sqrt()
    }

    pub(super) fn new(q: &Layout, k: &Layout, v: &Layout, mask: Option<&Layout>) -> Result<Self> {
        let refuse = |what: String| {
            let shapes = [q, k, v].map(|layout| layout.shape.to_vec());
            Err(Error::Shape {
                operation: OPERATION,
                reason: format!(
                    "queries {:?}, keys {:?} and values {:?}: {what}",
                    shapes[0], shapes[1], shapes[2]
                ),
            })
        };
        if [q, k, v].iter().any(|layout| layout.rank() < 2) {
            return refuse("each needs a dimension of rows and one of elements".into());
        }
        let (size, columns) = (dim(q, 1), dim(v, 1));
        let (queries, keys) = (dim(q, 2), dim(k, 2));
        if dim(k, 1) != size {
            return refuse(format!(
                "a query has {size} elements and a key {}",
                dim(k, 1)
            ));
        }
        if dim(v, 2) != keys {
            return refuse(format!("there are {keys} keys and {} values", dim(v, 2)));
        }
        let of_queries = dim(q, 3);
        let heads = broadcast_shapes(OPERATION, &[dim(k, 3)], &[dim(v, 3)])?[0];
        let group = match (of_queries, heads) {
            (1, _) | (_, 1) if heads != 0 => {
                if heads == 1 {
                    of_queries
                } else {
                    1
                }
            }
            (of_queries, heads) if heads != 0 && of_queries.is_multiple_of(heads) => {
                of_queries / heads
            }
            (0, 0) => 1,
            _ => {
                return refuse(format!(
                    "{heads} heads of keys cannot serve {of_queries} heads of queries evenly"
                ));
            }
        };
        let outer =
            |layout: &Layout| -> Dims { layout.shape[..layout.rank().saturating_sub(3)].into() };
        let common = broadcast_shapes(OPERATION, &outer(k), &outer(v))?;
        let common = broadcast_shapes(OPERATION, &outer(q), &common)?;
        let mut result = common.clone();
        if [q, k, v].iter().any(|layout| layout.rank() > 2) {
            result.push(heads * group);
        }
        let mut scores = result.clone();
        scores.extend([queries, keys]);
        if let Some(mask) = mask {
            let fits = |at: usize| matches!(dim(mask, at), dim if dim == 1 || dim == scores[scores.len() - at]);
            if mask.rank() > scores.len() || !(1..=mask.rank()).all(fits) {
                return refuse(format!(
                    "the mask's shape {:?} does not broadcast to that of the scores, {:?}",
                    &mask.shape[..],
                    &scores[..]
                ));
            }
        }
        result.extend([queries, columns]);
        Ok(Shapes {
            outer: common,
            heads,
            group,
            queries,
            keys,
            size,
            result,
        })
    }

    /// The layout of an operand's heads over `outer`, the heads of keys, and the heads of a group.
    fn over_batch(&self, layout: &Layout, grouped: bool) -> Layout {
        let mut strides: Strides = (0..self.outer.len())
            .map(|axis| stride(layout, 3 + self.outer.len() - axis))
            .collect();
        let head = stride(layout, 3);
        strides.extend(match grouped {
            true => [head.wrapping_mul(self.group as isize), head],
            false => [head, 0],
        });
        let mut shape = self.outer.clone();
        shape.extend([self.heads, self.group]);
        Layout {
            shape,
            strides,
            offset: layout.offset,
        }
    }
}

/// How the scores are masked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Mask {
    /// There is a mask.
    pub(super) is_given: bool,
    /// The mask holds bools.
    pub(super) is_bool: bool,
    /// Four keys of a row are one vec4.
    pub(super) vec4s: bool,
    /// All rows of queries share one row.
    pub(super) one_row: bool,
}

/// A call with at least one query, key and column.
#[derive(Clone, Debug)]
pub(super) struct Problem {
    params: Params,
    pub(super) mask: Mask,
}

impl Problem {
    /// `None` if the batch is too irregular for the kernel. The three operands must consist of
    /// vec4s.
    pub(super) fn new(
        shapes: &Shapes,
        operands: [&Layout; 3],
        mask: Option<(&Layout, DType)>,
        scale: f32,
    ) -> Option<Self> {
        let [q, k, v] = operands;
        let rows = mask.map_or(q, |(layout, _)| layout);
        let layouts = [(q, true), (k, false), (v, false), (rows, true)]
            .map(|(layout, grouped)| shapes.over_batch(layout, grouped));
        let [a, b, c, d] = &layouts;
        let batch = collapse(&a.shape, &[a, b, c, d]);
        let rank = batch.dims.len();
        if rank > MOST_BATCH_DIMS {
            return None;
        }
        let row = [q, k, v, rows].map(|layout| stride(layout, 2) as u32);
        let strides = |operand: usize| {
            let own = &batch.strides[operand];
            let of = |at: usize| if at < rank { own[rank - 1 - at] } else { 0 };
            [of(0), of(1), of(2), row[operand]]
        };
        let dims = |at: usize| {
            if at < rank {
                batch.dims[rank - 1 - at]
            } else {
                1
            }
        };
        let columns = dim(v, 1) as u32;
        let params = Params {
            size: [
                shapes.queries as u32,
                shapes.keys as u32,
                dim(q, 1) as u32,
                columns,
            ],
            batch: [
                dims(0),
                dims(1),
                batch.dims.iter().product(),
                scale.to_bits(),
            ],
            strides: [strides(0), strides(1), strides(2), strides(3)],
            starts: [0, 1, 2, 3].map(|operand| batch.offsets[operand]),
            rest: [stride(rows, 1) as u32, columns, 0, 0],
        };
        let mask = mask.map_or(Mask::default(), |(_, dtype)| {
            let [x, y, z, row] = params.strides[3];
            let lines = [x, y, z, row, params.starts[3], params.size[1]];
            Mask {
                is_given: true,
                is_bool: dtype == DType::Bool,
                vec4s: params.rest[0] == 1 && lines.iter().all(|line| line.is_multiple_of(4)),
                one_row: row == 0,
            }
        });
        Some(Problem { params, mask })
    }

    /// The same as a part of a longer call, whose first query has this position.
    pub(super) fn begun_at(mut self, first: usize) -> Self {
        self.params.rest[2] = first as u32;
        self
    }

    /// Multiply-adds.
    pub(super) fn work(&self) -> u64 {
        let [queries, keys, size, columns] = self.params.size.map(u64::from);
        let scores = (u64::from(self.heads()) * queries).saturating_mul(keys);
        scores.saturating_mul(size + columns)
    }

    pub(super) fn params(&self) -> &Params {
        &self.params
    }

    pub(super) fn queries(&self) -> u32 {
        self.params.size[0]
    }

    pub(super) fn keys(&self) -> u32 {
        self.params.size[1]
    }

    /// Elements of a query and of a key.
    pub(super) fn size(&self) -> u32 {
        self.params.size[2]
    }

    pub(super) fn heads(&self) -> u32 {
        self.params.batch[2]
    }

    pub(super) fn columns(&self) -> u32 {
        self.params.size[3]
    }
}
