//! Finds the positions of values among sorted elements.

#[cfg(any(test, feature = "sim"))]
pub(super) mod reference;

use std::borrow::Cow;

use bytemuck::{Pod, Zeroable};

use super::launch::by_vec4s;
use super::operation::{Takes, same_dtype};
use super::text::Text;
use crate::tensor::Tensor;
use crate::tensor::called::Called;
use lapidary_core::internal::{BuiltInKernel, MadeFor, Operand, Variant};
use lapidary_core::{DType, Error, Result};

const OPERATION: &str = "search_sorted";
const WGSL: &str = include_str!("../../shaders/search_sorted.wgsl");

/// `y[r, k]` = the number of elements of row `r` of `s` that come before `v[r, k]`.
static SEARCH_SORTED: BuiltInKernel = BuiltInKernel {
    name: "search_sorted",
    operands: &[Operand::read("s"), Operand::read("v"), Operand::write("y")],
    text,
    reference: reference!(reference::run),
};

/// `struct Params` of `shaders/search_sorted.wgsl`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub(super) struct Params {
    pub(super) elements: u32,
    pub(super) values: u32,
    pub(super) length: u32,
    pub(super) s_offset: u32,
    pub(super) v_offset: u32,
    pub(super) unused: [u32; 3],
}

/// Bit of a variant's code: equal elements come before the value too.
const RIGHT: u64 = 1;

impl Tensor {
    /// The position of each of `values` in the last axis of `self`, which must ascend. It is the
    /// number of elements below the value or, with `right`, not above it. The result is `u32`, in
    /// the shape of `values`.
    ///
    /// `self` has one dimension, or the dimensions of `values` except for the last. If elements do
    /// not ascend, or a value is NaN, the result is any position of the axis, or its length.
    ///
    /// ```
    /// # use lapidary::Tensor;
    /// # fn demo(edges: &Tensor, samples: &Tensor) -> lapidary::Result<()> {
    /// let bin = edges.search_sorted(samples, true)?; // PyTorch's bucketize
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::DType`] for bools or for two different types. [`Error::Shape`] unless the
    /// dimensions match. [`Error::Foreign`] for tensors of several `Gpu`s. [`Error::NeverFits`] if
    /// the operands are too large.
    #[doc(alias = "searchsorted")]
    #[doc(alias = "bucketize")]
    #[track_caller]
    pub fn search_sorted(&self, values: &Tensor, right: bool) -> Result<Tensor> {
        let _method = MadeFor::method("search_sorted");
        self.same_engine(OPERATION, values)?;
        Takes::Numbers.check(OPERATION, self.dtype)?;
        same_dtype(OPERATION, self.dtype, values.dtype)?;
        let per_row = values_of_a_row(self.shape(), values.shape())?;
        let engine = &self.engine;
        let result = Tensor::output(engine, values.shape(), DType::U32)?;
        if result.is_empty() {
            return Ok(result);
        }
        if self.is_empty() {
            return Tensor::zeroed(engine, values.shape(), DType::U32);
        }
        let (sorted, values) = (self.contiguous()?, values.contiguous()?);
        let params = Params {
            elements: result.len() as u32,
            values: per_row as u32,
            length: self.shape().last().copied().unwrap_or(1) as u32,
            s_offset: sorted.layout.offset as u32,
            v_offset: values.layout.offset as u32,
            unused: [0; 3],
        };
        let code = u64::from(right) * RIGHT;
        by_vec4s(&SEARCH_SORTED, code, [&sorted, &values], &result, &params)?;
        Ok(result)
    }
}

/// The number of values that are searched in one row of sorted elements.
#[track_caller]
fn values_of_a_row(sorted: &[usize], values: &[usize]) -> Result<usize> {
    match (sorted, values) {
        ([_], _) => Ok(values.iter().product()),
        ([rows @ .., _], [same @ .., count]) if rows == same => Ok(*count),
        _ => Err(Error::Shape {
            operation: OPERATION,
            reason: format!("values of shape {values:?} for sorted rows of shape {sorted:?}"),
        })
        .located(),
    }
}

/// Whether the variant counts equal elements too.
pub(super) fn is_right(code: u64) -> bool {
    code & RIGHT != 0
}

/// The WGSL of a variant.
fn text(variant: &Variant) -> Cow<'static, str> {
    let is_before = match is_right(variant.code) {
        true => "up_to",
        false => "below",
    };
    let text = Text::new().line(format_args!("alias T = {};", variant.dtypes[0].wgsl()));
    text.sections(WGSL, &["params", is_before]).done()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::check::valid;

    #[test]
    fn every_type_gives_a_valid_shader() {
        for dtype in DType::ALL.into_iter().filter(|&d| d != DType::Bool) {
            for code in [0, RIGHT] {
                valid(&SEARCH_SORTED, code, &[dtype, dtype, DType::U32], 0b100);
            }
        }
    }
}
