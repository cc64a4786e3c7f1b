//! Sorting along any axis: blocks of eight are sorted, then runs are merged in pairs until one is
//! left. If only the first few elements are needed, runs are cut to that length.

mod gradient;
#[cfg(any(test, feature = "sim"))]
pub(super) mod reference;

use std::borrow::Cow;

use bytemuck::{Pod, Zeroable};

use super::elementwise::arg;
use super::gather;
use super::rows::{self, Axes, Rows};
use super::text::{Text, key_section};
use crate::tensor::Tensor;
use crate::tensor::called::Called;
use crate::tensor::layout::{Layout, axis};
use lapidary_core::internal::{BuiltInKernel, Launch, MadeFor, Operand, Variant};
use lapidary_core::{DType, Error, Result};

const WGSL: &str = include_str!("../../shaders/sort.wgsl");

/// Elements of a block.
const BLOCK: u64 = 8;

/// The keys and the order of every block of `x`.
static SORT_BLOCKS: BuiltInKernel = BuiltInKernel {
    name: "sort_blocks",
    operands: &[Operand::read("x"), Operand::write("k"), Operand::write("o")],
    text: blocks_text,
    reference: reference!(reference::blocks),
};

/// The keys `l` and the order `q` of runs that are twice as long.
static SORT_MERGE: BuiltInKernel = BuiltInKernel {
    name: "sort_merge",
    operands: &[
        Operand::read("k"),
        Operand::read("o"),
        Operand::write("l"),
        Operand::write("q"),
    ],
    text: merge_text,
    reference: reference!(reference::merge),
};

/// `struct Params` of the section `merge` of `shaders/sort.wgsl`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub(super) struct Merge {
    pub(super) rows: u32,
    pub(super) length: u32,
    pub(super) kept: u32,
    pub(super) run: u32,
    pub(super) keep: u32,
    pub(super) pairs: u32,
    pub(super) pieces: u32,
    pub(super) piece: u32,
}

/// Bit of a variant's code: the largest element comes first.
const DESCENDING: u64 = 1 << 8;

impl Tensor {
    /// The elements in ascending or descending order along `axis`, and their indices along the
    /// axis, as `u32`.
    ///
    /// The sort is stable, and -0 equals 0. NaN counts as the largest, as in PyTorch: it comes
    /// last, or first in descending order.
    ///
    /// ```
    /// # fn demo(scores: &lapidary::Tensor) -> lapidary::Result<()> {
    /// let (sorted, indices) = scores.sort(-1, true)?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Axis`] if there is no such axis, [`Error::NeverFits`] if the tensor is too large
    /// for its keys.
    #[track_caller]
    pub fn sort(&self, axis: isize, descending: bool) -> Result<(Tensor, Tensor)> {
        let _method = MadeFor::method("sort");
        ordered(self, "sort", axis, descending, None)
    }

    /// The indices along `axis` that sort the elements in ascending or descending order, as `u32`:
    /// the second result of [`sort`](Tensor::sort).
    ///
    /// # Errors
    ///
    /// Those of [`sort`](Tensor::sort).
    #[track_caller]
    pub fn argsort(&self, axis: isize, descending: bool) -> Result<Tensor> {
        let _method = MadeFor::method("argsort");
        if let Some(x) = self.as_axis() {
            return Ok(x.argsort(axis, descending)?.into_number());
        }
        let at = self::axis("argsort", axis, self.layout.rank())?;
        order(self, at, descending, None)
    }

    /// The `k` largest or smallest elements along `axis`, the most extreme first, and their indices
    /// along the axis, as `u32`. Among equal elements the first ones are taken first. NaN counts as
    /// the largest.
    ///
    /// ```
    /// # fn demo(logits: &lapidary::Tensor) -> lapidary::Result<()> {
    /// let (best, tokens) = logits.top_k(40, -1, true)?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Shape`] if the axis has fewer than `k` elements; those of [`sort`](Tensor::sort).
    #[track_caller]
    pub fn top_k(&self, k: usize, axis: isize, largest: bool) -> Result<(Tensor, Tensor)> {
        let _method = MadeFor::method("top_k");
        ordered(self, "top_k", axis, largest, Some(k))
    }
}

/// The first `keep` of the sorted elements, or all, and their indices.
#[track_caller]
fn ordered(
    x: &Tensor,
    operation: &'static str,
    along: isize,
    descending: bool,
    keep: Option<usize>,
) -> Result<(Tensor, Tensor)> {
    if let Some(x) = x.as_axis() {
        let (values, indices) = ordered(&x, operation, along, descending, keep)?;
        return match keep {
            // An empty result is not a single number.
            Some(0) => Ok((values, indices)),
            _ => Ok((values.into_number(), indices.into_number())),
        };
    }
    let at = axis(operation, along, x.layout.rank())?;
    if x.is_tracked() {
        return gradient::ordered_recorded(x, operation, at, descending, keep);
    }
    let size = x.layout.shape[at];
    if let Some(keep) = keep.filter(|&keep| keep > size) {
        return Err(Error::Shape {
            operation,
            reason: format!("axis {at} of {:?} has fewer than {keep}", x.layout.shape),
        })
        .located();
    }
    let indices = order(x, at, descending, keep)?;
    let values = gather::pick(x, at, &indices)?;
    Ok((values, indices))
}

/// The indices of the first `keep` sorted elements, or of all, in the shape of `x`.
#[track_caller]
fn order(x: &Tensor, at: usize, descending: bool, keep: Option<usize>) -> Result<Tensor> {
    let keep = keep.unwrap_or(x.layout.shape[at]);
    let mut shape = x.layout.shape.clone();
    shape[at] = keep;
    if shape.contains(&0) {
        return Tensor::output(&x.engine, &shape, DType::U32);
    }
    let (_, order) = sorted(x, at, descending, keep)?;
    // `sorted` moves the axis to the end.
    let size = shape.remove(at);
    shape.push(size);
    let mut axes: Vec<isize> = (0..shape.len() as isize - 1).collect();
    axes.insert(at, shape.len() as isize - 1);
    let order = order.view(Layout::contiguous(&shape).permute(&axes)?);
    order.contiguous()
}

/// Keys and order of the first `keep` sorted elements of every row along an axis, row by row. All
/// dimensions must be at least 1.
#[track_caller]
pub(super) fn sorted(
    x: &Tensor,
    at: usize,
    descending: bool,
    keep: usize,
) -> Result<(Tensor, Tensor)> {
    let engine = &x.engine;
    let folded = Axes::from(at, at + 1);
    let (x, rows) = &Rows::along(x, folded)?;
    let mut params = rows.params();
    params.parts = u64::from(rows.length).div_ceil(BLOCK) as u32;
    let [mut keys, mut order] = pair(x, rows, rows.length as usize)?;
    let code = rows::rank_bits(rows) | if descending { DESCENDING } else { 0 };
    let args = [arg(x, false), arg(&keys, false), arg(&order, false)];
    let items = u64::from(rows.rows) * u64::from(params.parts);
    let groups = rows::groups(engine.caps(), items, 32);
    engine.launch(Launch::new(&SORT_BLOCKS, code, args, &params, groups))?;
    let piece = if rows::is_gpu(engine.caps()) { 8 } else { 32 };
    let (mut length, mut run) = (u64::from(rows.length), BLOCK);
    while run < length {
        let next = merge(rows, length, run, keep as u64, piece);
        let [l, q] = pair(x, rows, next.kept as usize)?;
        let args = [&keys, &order, &l, &q].map(|tensor| arg(tensor, false));
        let items = u64::from(next.rows) * u64::from(next.pairs) * u64::from(next.pieces);
        let groups = rows::groups(engine.caps(), items, 32);
        engine.launch(Launch::new(&SORT_MERGE, 0, args, &next, groups))?;
        (keys, order) = (l, q);
        (length, run) = (next.kept.into(), next.keep.into());
    }
    if length > keep as u64 {
        keys = keys.narrow(1, 0, keep)?.contiguous()?;
        order = order.narrow(1, 0, keep)?.contiguous()?;
    }
    Ok((keys, order))
}

/// New tensors for the keys and the order of rows of `length` elements.
#[track_caller]
fn pair(of: &Tensor, rows: &Rows, length: usize) -> Result<[Tensor; 2]> {
    let shape = [rows.rows as usize, length];
    let keys = Tensor::output(&of.engine, &shape, DType::U32)?;
    Ok([keys, Tensor::output(&of.engine, &shape, DType::U32)?])
}

/// The parameters of the next merge, for rows of `length` elements in runs of `run`.
fn merge(rows: &Rows, length: u64, run: u64, keep: u64, piece: u64) -> Merge {
    // A shorter run would lose its first elements.
    let keep = (2 * run).min(keep.max(BLOCK));
    let pairs = length.div_ceil(2 * run);
    let last = length - (pairs - 1) * 2 * run;
    Merge {
        rows: rows.rows,
        length: length as u32,
        kept: ((pairs - 1) * keep + last.min(keep)) as u32,
        run: run as u32,
        keep: keep as u32,
        pairs: pairs as u32,
        pieces: keep.div_ceil(piece) as u32,
        piece: piece as u32,
    }
}

fn blocks_text(variant: &Variant) -> Cow<'static, str> {
    let (kind, descending) = (variant.dtypes[0].wgsl(), is_descending(variant.code));
    rows::rank_constants(variant.code)
        .line(format_args!(
            "alias T = {kind};\nconst DESCENDING: bool = {descending};"
        ))
        .sections(rows::WGSL, &["params"])
        .sections(WGSL, &[key_section(kind), "blocks"])
        .done()
}

fn merge_text(_: &Variant) -> Cow<'static, str> {
    Text::new().sections(WGSL, &["merge"]).done()
}

/// Whether the variant puts the largest first.
pub(super) fn is_descending(code: u64) -> bool {
    code & DESCENDING != 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::check::valid;

    #[test]
    fn every_type_and_rank_gives_a_valid_shader() {
        for x in DType::ALL {
            for code in [0x11, 0x14, 0x11 | DESCENDING] {
                valid(&SORT_BLOCKS, code, &[x, DType::U32, DType::U32], 0);
            }
        }
        valid(&SORT_MERGE, 0, &[DType::U32; 4], 0);
    }
}
