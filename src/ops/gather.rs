//! Picks one element for every index. The indices have as many dimensions as the tensor.

mod gradient;
#[cfg(any(test, feature = "sim"))]
pub(super) mod reference;

use std::borrow::Cow;

use super::elementwise::{self, Code, MAP, Plan, arg, head, index, launch_of};
use super::index_select::check_index_type;
use super::text::Text;
use crate::tensor::Tensor;
use crate::tensor::called::Called;
use crate::tensor::layout::{Dims, Layout, axis, axis_or_number, broadcast_shapes};
use lapidary_core::internal::{BuiltInKernel, MadeFor, Operand, Variant};
use lapidary_core::{Error, Result};

const WGSL: &str = include_str!("../../shaders/gather.wgsl");

/// `y[c]` = `x[c]`, with `i[c]` in place of one coordinate.
static GATHER: BuiltInKernel = BuiltInKernel {
    name: "gather",
    operands: &[Operand::read("i"), Operand::read("x"), Operand::write("y")],
    text,
    reference: reference!(reference::run),
};

impl Tensor {
    /// The elements that `indices` names along `axis`, as PyTorch's `gather`: for `axis` 1,
    /// `y[a, b, c] = x[a, indices[a, b, c], c]`. `indices` are `u32` or `i32` and have as many
    /// dimensions as `self`. Each dimension is at most that of `self`, except along `axis`. The
    /// result has the shape of `indices`. A 0-d tensor counts as one of shape `[1]`. Without an
    /// index, all shapes fit.
    ///
    /// The device cannot report an index outside of the axis, and never reads outside of the
    /// tensor. Such an index gives 0. So does every negative index, which does not count from the
    /// end.
    ///
    /// ```
    /// # use lapidary::Tensor;
    /// # fn demo(logits: &Tensor, classes: &Tensor) -> lapidary::Result<()> {
    /// let chosen = logits.gather(-1, &classes.unsqueeze(-1)?)?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Axis`] if there is no such axis. [`Error::Shape`] unless the dimensions match.
    /// [`Error::DType`] unless the indices are `u32` or `i32`. [`Error::Foreign`] if they belong to
    /// another `Gpu`. [`Error::NeverFits`] if the operands are too large.
    #[track_caller]
    pub fn gather(&self, axis: isize, indices: &Tensor) -> Result<Tensor> {
        const OPERATION: &str = "gather";
        let _method = MadeFor::method(OPERATION);
        if let Some([x, lined]) = Tensor::as_axes([self, indices]) {
            return Ok(x.gather(axis, &lined)?.with_rank_of(indices));
        }
        if indices.layout.len() == 0 {
            let at = axis_or_number(OPERATION, axis, self.layout.rank())?;
            check_index_type(OPERATION, self, indices)?;
            return pick(self, at, indices);
        }
        let at = check(OPERATION, self, axis, indices)?;
        fits_within(OPERATION, &indices.layout.shape, &self.layout.shape, at)?;
        pick(self, at, indices)
    }

    /// As [`gather`](Tensor::gather), but all dimensions except `axis` broadcast: NumPy's
    /// `take_along_axis`.
    ///
    /// # Errors
    ///
    /// Those of [`gather`](Tensor::gather).
    #[track_caller]
    pub fn take_along(&self, axis: isize, indices: &Tensor) -> Result<Tensor> {
        const OPERATION: &str = "take_along";
        let _method = MadeFor::method(OPERATION);
        if let Some([x, lined]) = Tensor::as_axes([self, indices]) {
            return Ok(x.take_along(axis, &lined)?.with_rank_of(indices));
        }
        let at = check(OPERATION, self, axis, indices)?;
        // The axis itself does not broadcast.
        let (mut a, mut b) = (self.layout.shape.clone(), indices.layout.shape.clone());
        (a[at], b[at]) = (1, 1);
        let mut shape = broadcast_shapes(OPERATION, &a, &b)?;
        shape[at] = self.layout.shape[at];
        let x = self.broadcast_to(&shape).called(OPERATION)?;
        shape[at] = indices.layout.shape[at];
        pick(&x, at, &indices.broadcast_to(&shape).called(OPERATION)?)
    }
}

/// The axis, after the types and ranks are checked.
#[track_caller]
pub(super) fn check(
    operation: &'static str,
    x: &Tensor,
    along: isize,
    indices: &Tensor,
) -> Result<usize> {
    let at = axis(operation, along, x.layout.rank())?;
    check_index_type(operation, x, indices)?;
    match indices.layout.rank() == x.layout.rank() {
        true => Ok(at),
        false => Err(Error::Shape {
            operation,
            reason: format!(
                "the indices have shape {:?}, not as many dimensions as {:?}",
                indices.layout.shape, x.layout.shape
            ),
        })
        .located(),
    }
}

/// Returns an error if a dimension is larger than another shape's, except along `at`.
#[track_caller]
pub(super) fn fits_within(
    operation: &'static str,
    shape: &Dims,
    other: &Dims,
    at: usize,
) -> Result<()> {
    let is_larger = |axis: &usize| *axis != at && shape[*axis] > other[*axis];
    match (0..shape.len()).find(is_larger) {
        None => Ok(()),
        Some(axis) => Err(Error::Shape {
            operation,
            reason: format!("the indices {shape:?} are larger than {other:?} along axis {axis}"),
        })
        .located(),
    }
}

/// The elements of `x` at the indices. `x` is at least as large as the indices, except along the
/// axis.
#[track_caller]
pub(super) fn pick(x: &Tensor, at: usize, indices: &Tensor) -> Result<Tensor> {
    if x.is_tracked() {
        return gradient::pick_recorded(x, at, indices);
    }
    let engine = &x.engine;
    let shape = &indices.layout.shape;
    let result = Tensor::output(engine, shape, x.dtype)?;
    let elements = result.layout.len();
    if elements == 0 {
        return Ok(result);
    }
    let (size, step) = (x.layout.shape[at], x.layout.strides[at]);
    // The index replaces the coordinate along the axis, so its stride here is 0.
    let mut base = Layout {
        shape: shape.clone(),
        ..x.layout.clone()
    };
    base.strides[at] = 0;
    let layouts = [&indices.layout, &base];
    let mut plan = Plan::new(shape, &layouts, &[false; 2])
        .expect("two maps of eight dimensions fit the parameters");
    plan.set_scalars(&[size as u32, step as u32]);
    let args = [arg(indices, false), arg(x, false), arg(&result, true)];
    let groups = elementwise::groups(engine.caps(), (elements as u64).div_ceil(4));
    engine.launch(launch_of(&GATHER, plan.code.0, args, &plan.words, groups))?;
    Ok(result)
}

/// The WGSL of a variant.
fn text(variant: &Variant) -> Cow<'static, str> {
    let rank = Code(variant.code).rank();
    let mut out = String::with_capacity(4 << 10);
    let words = MAP + 2 * (1 + rank) + rank;
    head(&mut out, words, variant.dtypes[1], variant.dtypes[2]);
    index(&mut out, 2, rank);
    Text::from(out).sections(WGSL, &["main"]).done()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::check::valid;
    use lapidary_core::DType;

    #[test]
    fn every_type_and_rank_gives_a_valid_shader() {
        for dtype in DType::ALL {
            for index in [DType::U32, DType::I32] {
                for rank in [1, 3, 8] {
                    valid(&GATHER, rank << 8 | 2 << 24, &[index, dtype, dtype], 0b100);
                }
            }
        }
    }
}
