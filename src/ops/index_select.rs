//! Picks slices by index along an axis: embedding lookups, gathers of rows.

mod gradient;
#[cfg(any(test, feature = "sim"))]
pub(super) mod reference;

use std::borrow::Cow;

use bytemuck::{Pod, Zeroable};

use super::elementwise::arg;
use super::rows::{self, Side};
use super::text::Text;
use crate::tensor::Tensor;
use crate::tensor::called::Called;
use crate::tensor::layout::{Layout, axis};
use lapidary_core::internal::{BuiltInKernel, Launch, MadeFor, Operand, RowsNamed, Variant};
use lapidary_core::{DType, Error, Result};

const OPERATION: &str = "index_select";
const WGSL: &str = include_str!("../../shaders/index_select.wgsl");

/// `y[.., j, ..]` = `x[.., i[j], ..]`.
static INDEX_SELECT: BuiltInKernel = BuiltInKernel {
    name: "index_select",
    operands: &[
        Operand::table("x", rows_of),
        Operand::read("i"),
        Operand::write("y"),
    ],
    text,
    reference: reference!(reference::run),
};

/// `struct Params` of `shaders/index_select.wgsl`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub(super) struct Params {
    pub(super) before_dims: [u32; 4],
    pub(super) before_strides: [u32; 4],
    pub(super) after_dims: [u32; 4],
    pub(super) after_strides: [u32; 4],
    pub(super) offset: u32,
    pub(super) size: u32,
    pub(super) stride: u32,
    pub(super) indices: u32,
    pub(super) index_offset: u32,
    pub(super) index_stride: u32,
    pub(super) after: u32,
    pub(super) elements: u32,
}

/// The rows of `x` that a launch copies. `None` if they are not contiguous.
fn rows_of(launch: &Launch) -> Option<RowsNamed> {
    let p: Params = bytemuck::pod_read_unaligned(launch.params.get(..size_of::<Params>())?);
    let is_one_table = p.before_dims == [1; 4];
    let is_together = p.after == 1 || p.after_dims[0] == p.after && p.after_strides[0] == 1;
    let width = launch.args.first()?.dtype.size_bytes();
    let step = u32::try_from(p.stride as i32).ok()?;
    (is_one_table && is_together).then(|| RowsNamed {
        start_bytes: u64::from(p.offset) * width,
        step_bytes: u64::from(step) * width,
        row_bytes: u64::from(p.after) * width,
        rows: p.size,
        first_word: p.index_offset,
        word_step: p.index_stride,
        count: p.indices,
    })
}

/// Bit of a variant's code, after the two ranks: every vec4 of y is a vec4 of x.
const VEC4S: u64 = 1 << 8;

impl Tensor {
    /// The slices along `axis` that `indices` names, in that order. `indices` has one dimension, of
    /// `u32` or `i32`, and may repeat slices. Its size replaces that of the axis. A 0-d tensor of
    /// indices names one slice.
    ///
    /// The device cannot report an index outside of the axis, and never reads outside of the
    /// tensor. The slice of such an index is zeros. So is that of every negative index, which does
    /// not count from the end.
    ///
    /// A contiguous table may be evicted or still in its file. Then whole rows (axis 0) are read in
    /// place, up to 4 MiB and a quarter of the table. The table stays there until as many bytes
    /// have been read as it has. The indices are read first, so the call waits for the device.
    ///
    /// ```
    /// # use lapidary::Tensor;
    /// # fn demo(embedding: &Tensor, tokens: &Tensor) -> lapidary::Result<()> {
    /// let vectors = embedding.index_select(0, tokens)?; // shape [tokens, width]
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Axis`] if there is no such axis. [`Error::Shape`] if `indices` has more than one
    /// dimension. [`Error::DType`] unless it holds `u32` or `i32`. [`Error::Foreign`] if it belongs
    /// to another `Gpu`. [`Error::NeverFits`] or [`Error::Overflow`] if the result is too large.
    #[track_caller]
    pub fn index_select(&self, axis: isize, indices: &Tensor) -> Result<Tensor> {
        let _method = MadeFor::method("index_select");
        if let Some(x) = self.as_axis().filter(|_| indices.len() == 1) {
            return Ok(x.index_select(axis, &indices.flatten()?)?.into_number());
        }
        let lined = indices.as_axis();
        let indices = lined.as_ref().unwrap_or(indices);
        let at = self.check_indices(axis, indices)?;
        if self.is_tracked() {
            return self.index_select_recorded(at, indices, indices);
        }
        let mut shape = self.layout.shape.clone();
        shape[at] = indices.layout.shape[0];
        let engine = &self.engine;
        let result = Tensor::output(engine, &shape, self.dtype).called("index_select")?;
        let elements = result.layout.len();
        if elements == 0 {
            return Ok(result);
        }
        let copy;
        let (x, sides) = match sides(&self.layout, at) {
            Some(found) => (self, found),
            None => {
                copy = self.contiguous()?;
                let found = sides(&copy.layout, at)
                    .expect("either side of an axis of a contiguous tensor is one dimension");
                (&copy, found)
            }
        };
        let [before, after] = sides;
        let step = x.layout.strides[at] as u32;
        let vec4s = after.strides[0] == 1
            && after.dims[0] % 4 == 0
            && (before.strides.iter().chain(&after.strides[1..]))
                .chain([&step, &(x.layout.offset as u32)])
                .all(|number| number % 4 == 0);
        let params = Params {
            before_dims: before.dims,
            before_strides: before.strides,
            after_dims: after.dims,
            after_strides: after.strides,
            offset: x.layout.offset as u32,
            size: x.layout.shape[at] as u32,
            stride: step,
            indices: indices.layout.shape[0] as u32,
            index_offset: indices.layout.offset as u32,
            index_stride: indices.layout.strides[0] as u32,
            after: shape[at + 1..].iter().product::<usize>() as u32,
            elements: elements as u32,
        };
        let code = (before.rank | after.rank << 4) as u64 | if vec4s { VEC4S } else { 0 };
        let args = [arg(x, vec4s), arg(indices, false), arg(&result, true)];
        let groups = rows::groups(engine.caps(), (elements as u64).div_ceil(4), 64);
        engine.launch(Launch::new(&INDEX_SELECT, code, args, &params, groups))?;
        Ok(result)
    }

    /// The slices of the first axis that `indices` names. `indices` may have any shape: the result
    /// has that shape, followed by the rest of the shape of `self`. Indices outside of the axis
    /// give zeros, as in [`index_select`](Tensor::index_select).
    ///
    /// ```
    /// # use lapidary::Tensor;
    /// # fn demo(weight: &Tensor, tokens: &Tensor) -> lapidary::Result<()> {
    /// let vectors = weight.embedding(tokens)?; // [batch, length] → [batch, length, width]
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`index_select`](Tensor::index_select). [`Error::Shape`] also if the result has
    /// more than eight dimensions.
    #[track_caller]
    pub fn embedding(&self, indices: &Tensor) -> Result<Tensor> {
        let _method = MadeFor::method("embedding");
        let at = axis("embedding", 0, self.layout.rank())?;
        let mut shape = indices.layout.shape.clone();
        shape.extend_from_slice(&self.layout.shape[at + 1..]);
        let rows = self.index_select(0, &indices.flatten()?);
        rows.called("embedding")?
            .reshape(&shape)
            .called("embedding")
    }

    /// [`embedding`](Tensor::embedding) with a row that does not learn: its gradient is 0, as with
    /// PyTorch's `padding_idx`. A negative index counts from the end.
    ///
    /// ```
    /// # use lapidary::Tensor;
    /// # fn demo(weight: &Tensor, tokens: &Tensor) -> lapidary::Result<()> {
    /// let vectors = weight.embedding_with(tokens, 0)?; // Token 0 is padding.
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`embedding`](Tensor::embedding); [`Error::Shape`] also if there is no such row.
    #[track_caller]
    pub fn embedding_with(&self, indices: &Tensor, padding_idx: isize) -> Result<Tensor> {
        const OPERATION: &str = "embedding_with";
        let _method = MadeFor::method(OPERATION);
        let rows = self.shape()[axis(OPERATION, 0, self.rank())?];
        let Ok(row) = axis(OPERATION, padding_idx, rows) else {
            return Err(Error::Shape {
                operation: OPERATION,
                reason: format!("row {padding_idx} of {rows}"),
            })
            .located();
        };
        if !self.is_tracked() {
            return self.embedding(indices).called(OPERATION);
        }
        check_index_type(OPERATION, self, indices)?;
        let flat = indices.flatten()?;
        // The gradient skips indices outside of the table. A table has fewer rows than 2³².
        let places = flat.cast(DType::U32)?;
        let learned = places.masked_fill(&places.eq(row as u32)?, u32::MAX)?;
        let mut shape = indices.layout.shape.clone();
        shape.extend_from_slice(&self.layout.shape[1..]);
        let rows = self.index_select_recorded(0, &flat, &learned);
        rows.called(OPERATION)?.reshape(&shape).called(OPERATION)
    }

    #[track_caller]
    fn check_indices(&self, along: isize, indices: &Tensor) -> Result<usize> {
        let at = axis(OPERATION, along, self.layout.rank())?;
        check_index_type(OPERATION, self, indices)?;
        if indices.layout.rank() != 1 {
            return Err(Error::Shape {
                operation: OPERATION,
                reason: format!(
                    "the indices have shape {:?}, not one dimension",
                    indices.layout.shape
                ),
            })
            .located();
        }
        Ok(at)
    }
}

/// Returns an error for indices that are not whole words, or that belong to another `Gpu`.
#[track_caller]
pub(super) fn check_index_type(
    operation: &'static str,
    x: &Tensor,
    indices: &Tensor,
) -> Result<()> {
    x.same_engine(operation, indices)?;
    match indices.dtype {
        DType::U32 | DType::I32 => Ok(()),
        got => Err(Error::DType {
            operation,
            expected: "u32 or i32".into(),
            got,
            hint: "Cast the indices first",
            at: String::new(),
        })
        .located(),
    }
}

/// The dimensions before and after an axis, also if the axis is empty.
fn sides(layout: &Layout, at: usize) -> Option<[Side; 2]> {
    let side = |axes: std::ops::Range<usize>| {
        Side::new(
            layout.shape[axes.clone()].into(),
            layout.strides[axes].into(),
        )
    };
    Some([side(0..at)?, side(at + 1..layout.rank())?])
}

/// The WGSL of a variant.
fn text(variant: &Variant) -> Cow<'static, str> {
    let (before, after) = (variant.code & 15, variant.code >> 4 & 15);
    let fetch = match variant.code & VEC4S {
        0 => "elements",
        _ => "vec4s",
    };
    Text::new()
        .line(format_args!(
            "const BEFORE: u32 = {before}u;\nconst AFTER: u32 = {after}u;"
        ))
        .line(format_args!("alias T = {};", variant.dtypes[0].wgsl()))
        .sections(WGSL, &["params", fetch])
        .done()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::check::valid;

    #[test]
    fn every_type_and_rank_gives_a_valid_shader() {
        for dtype in DType::ALL {
            for index in [DType::U32, DType::I32] {
                for ranks in [0x11, 0x22, 0x44] {
                    valid(&INDEX_SELECT, ranks, &[dtype, index, dtype], 0b100);
                    valid(&INDEX_SELECT, ranks | VEC4S, &[dtype, index, dtype], 0b101);
                }
            }
        }
    }
}
