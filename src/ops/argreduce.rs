//! The position of the largest or smallest element. The forms are those of
//! [`reduce`](super::reduce). If rows are searched in parts, a second launch compares the elements
//! that the parts found.

mod gradient;
#[cfg(test)]
mod tests;

#[cfg(any(test, feature = "sim"))]
pub(super) mod reference;

use std::borrow::Cow;

use super::elementwise::arg;
use super::long::MOST_TESTS;
use super::reduce::{Form, Plan, least_parts, refuse_empty};
use super::rows::{self, Axes, Rows};
use super::text::{Text, key_section};
use crate::tensor::Tensor;
use crate::tensor::called::Called;
use crate::tensor::layout::Layout;
use lapidary_core::internal::{BuiltInKernel, Launch, MadeFor, Operand, Variant};
use lapidary_core::{DType, Result};

const WGSL: &str = include_str!("../../shaders/argreduce.wgsl");

/// `y[r]` = the position of the extreme in row `r` of `x`.
pub(super) static ARGREDUCE: BuiltInKernel = BuiltInKernel {
    name: "argreduce",
    operands: &[Operand::read("x"), Operand::write("y")],
    text,
    reference: reference!(reference::run),
};

/// `y[r]` = the best of the positions in row `r` of `x` that `c` holds.
static ARGREDUCE_PICK: BuiltInKernel = BuiltInKernel {
    name: "argreduce_pick",
    operands: &[Operand::read("x"), Operand::read("c"), Operand::write("y")],
    text: pick_text,
    reference: reference!(reference::pick),
};

/// Bit of a variant's code: searches for the smallest element.
const LEAST: u64 = 1 << 8;

impl Tensor {
    /// The index of the largest element along `axis`, as `u32`. The axis is removed.
    ///
    /// The first of equal elements wins, and −0 equals 0. NaN counts as the largest, as in PyTorch.
    ///
    /// ```
    /// # fn demo(scores: &lapidary::Tensor) -> lapidary::Result<()> {
    /// let classes = scores.argmax(-1)?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Axis`](crate::Error::Axis) if there is no such axis,
    /// [`Error::Shape`](crate::Error::Shape) if it has size 0.
    #[track_caller]
    pub fn argmax(&self, axis: isize) -> Result<Tensor> {
        let _method = MadeFor::method("argmax");
        arg_extreme(self, "argmax", axis, false)
    }

    /// The index of the smallest element along `axis`, as `u32`. The axis is removed.
    ///
    /// The first of equal elements wins, and −0 equals 0. NaN counts as the smallest, as in
    /// PyTorch.
    ///
    /// # Errors
    ///
    /// Those of [`argmax`](Tensor::argmax).
    #[track_caller]
    pub fn argmin(&self, axis: isize) -> Result<Tensor> {
        let _method = MadeFor::method("argmin");
        arg_extreme(self, "argmin", axis, true)
    }

    /// As [`argmax`](Tensor::argmax), but the axis stays with size 1.
    ///
    /// # Errors
    ///
    /// Those of [`argmax`](Tensor::argmax).
    #[track_caller]
    pub fn argmax_keepdim(&self, axis: isize) -> Result<Tensor> {
        let _method = MadeFor::method("argmax_keepdim");
        let folded = self.argmax(axis).called("argmax_keepdim")?;
        folded.with_axis_of(self, axis)
    }

    /// As [`argmin`](Tensor::argmin), but the axis stays with size 1.
    ///
    /// # Errors
    ///
    /// Those of [`argmax`](Tensor::argmax).
    #[track_caller]
    pub fn argmin_keepdim(&self, axis: isize) -> Result<Tensor> {
        let _method = MadeFor::method("argmin_keepdim");
        let folded = self.argmin(axis).called("argmin_keepdim")?;
        folded.with_axis_of(self, axis)
    }

    /// The index of the largest of all elements in row-major order, as `u32` with shape `[]`.
    ///
    /// ```
    /// # fn demo(scores: &lapidary::Tensor) -> lapidary::Result<()> {
    /// let best = scores.flatten()?.index_select(0, &scores.argmax_all()?.reshape(&[1])?)?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Shape`](crate::Error::Shape) if there are no elements.
    #[track_caller]
    pub fn argmax_all(&self) -> Result<Tensor> {
        let _method = MadeFor::method("argmax_all");
        self.flatten()?.argmax(0).called("argmax_all")
    }

    /// The index of the smallest of all elements in row-major order, as `u32` with shape `[]`.
    ///
    /// # Errors
    ///
    /// Those of [`argmax_all`](Tensor::argmax_all).
    #[track_caller]
    pub fn argmin_all(&self) -> Result<Tensor> {
        let _method = MadeFor::method("argmin_all");
        self.flatten()?.argmin(0).called("argmin_all")
    }

    /// The largest elements along `axis` and their indices, as [`argmax`](Tensor::argmax) gives
    /// them: PyTorch's `max(dim)`. The axis is removed.
    ///
    /// ```
    /// # fn demo(scores: &lapidary::Tensor) -> lapidary::Result<()> {
    /// let (best, classes) = scores.max_with_indices(-1)?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`argmax`](Tensor::argmax).
    #[track_caller]
    pub fn max_with_indices(&self, axis: isize) -> Result<(Tensor, Tensor)> {
        let _method = MadeFor::method("max_with_indices");
        let indices = self.argmax(axis).called("max_with_indices")?;
        extreme_at(self, "max_with_indices", axis, indices)
    }

    /// The smallest elements along `axis` and their indices, as [`argmin`](Tensor::argmin) gives
    /// them: PyTorch's `min(dim)`. The axis is removed.
    ///
    /// # Errors
    ///
    /// Those of [`argmin`](Tensor::argmin).
    #[track_caller]
    pub fn min_with_indices(&self, axis: isize) -> Result<(Tensor, Tensor)> {
        let _method = MadeFor::method("min_with_indices");
        let indices = self.argmin(axis).called("min_with_indices")?;
        extreme_at(self, "min_with_indices", axis, indices)
    }

    /// As [`max_with_indices`](Tensor::max_with_indices), but the axis stays with size 1.
    ///
    /// # Errors
    ///
    /// Those of [`argmax`](Tensor::argmax).
    #[track_caller]
    pub fn max_with_indices_keepdim(&self, axis: isize) -> Result<(Tensor, Tensor)> {
        let _method = MadeFor::method("max_with_indices_keepdim");
        let made = self.max_with_indices(axis);
        let (values, indices) = made.called("max_with_indices_keepdim")?;
        Ok((
            values.with_axis_of(self, axis)?,
            indices.with_axis_of(self, axis)?,
        ))
    }

    /// As [`min_with_indices`](Tensor::min_with_indices), but the axis stays with size 1.
    ///
    /// # Errors
    ///
    /// Those of [`argmax`](Tensor::argmax).
    #[track_caller]
    pub fn min_with_indices_keepdim(&self, axis: isize) -> Result<(Tensor, Tensor)> {
        let _method = MadeFor::method("min_with_indices_keepdim");
        let made = self.min_with_indices(axis);
        let (values, indices) = made.called("min_with_indices_keepdim")?;
        Ok((
            values.with_axis_of(self, axis)?,
            indices.with_axis_of(self, axis)?,
        ))
    }

    /// The largest of all elements and its index in row-major order, each with shape `[]`.
    ///
    /// ```
    /// # fn demo(scores: &lapidary::Tensor) -> lapidary::Result<()> {
    /// let (best, place) = scores.max_with_indices_all()?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`argmax_all`](Tensor::argmax_all).
    #[track_caller]
    pub fn max_with_indices_all(&self) -> Result<(Tensor, Tensor)> {
        let _method = MadeFor::method("max_with_indices_all");
        let made = self.flatten()?.max_with_indices(0);
        made.called("max_with_indices_all")
    }

    /// The smallest of all elements and its index in row-major order, each with shape `[]`.
    ///
    /// # Errors
    ///
    /// Those of [`argmax_all`](Tensor::argmax_all).
    #[track_caller]
    pub fn min_with_indices_all(&self) -> Result<(Tensor, Tensor)> {
        let _method = MadeFor::method("min_with_indices_all");
        let made = self.flatten()?.min_with_indices(0);
        made.called("min_with_indices_all")
    }

    /// The result of a reduction of `folded` along `axis`, with that axis. A 0-d tensor has none.
    #[track_caller]
    fn with_axis_of(self, folded: &Tensor, axis: isize) -> Result<Tensor> {
        match folded.rank() {
            0 => Ok(self),
            _ => self.unsqueeze(axis),
        }
    }
}

#[track_caller]
fn extreme_at(
    x: &Tensor,
    operation: &'static str,
    axis: isize,
    indices: Tensor,
) -> Result<(Tensor, Tensor)> {
    if let (Some(x), Some(indices)) = (x.as_axis(), indices.as_axis()) {
        return Ok((x.gather(0, &indices)?.into_number(), indices.into_number()));
    }
    if x.is_tracked() {
        return gradient::extreme_at_recorded(x, operation, axis, indices);
    }
    let values = x.gather(axis, &indices.unsqueeze(axis)?)?;
    Ok((values.squeeze_axis(axis)?, indices))
}

#[track_caller]
fn arg_extreme(x: &Tensor, operation: &'static str, along: isize, least: bool) -> Result<Tensor> {
    let rank = x.layout.rank();
    let folded = Axes::named(operation, &[along], rank)?;
    let shape = folded.fold_shape(&x.layout.shape, false);
    refuse_empty(operation, &x.layout.shape, folded)?;
    let (x, rows) = &Rows::along(x, folded)?;
    let plan = Plan::choose(x.engine.caps(), rows);
    // One invocation compares all parts of a row, and searches one in about a test an element.
    let parts = u64::from(plan.parts.min(128));
    let finishing = least_parts(x.engine.caps(), rows, MOST_TESTS);
    let plan = Plan::cut(plan.form, rows, parts.max(finishing));
    let mut result = search_as(x, rows, plan, least)?;
    result.layout = Layout::contiguous(&shape);
    Ok(result)
}

/// Searches by this plan.
#[track_caller]
pub(super) fn search_as(x: &Tensor, rows: &Rows, plan: Plan, least: bool) -> Result<Tensor> {
    let engine = &x.engine;
    let outputs = plan.form.outputs(rows.rows, plan.parts);
    let found = Tensor::output(engine, &[outputs as usize], DType::U32)?;
    if rows.rows == 0 {
        return Ok(found);
    }
    let mut params = rows.params();
    params.parts = plan.parts;
    params.chunk = plan.chunk;
    let least = if least { LEAST } else { 0 };
    let code = rows::rank_bits(rows) | least;
    let args = [arg(x, plan.form != Form::Across), arg(&found, true)];
    let groups = plan.form.groups(engine.caps(), rows.rows, plan.parts);
    let form_code = code | (plan.form as u64) << 12;
    engine.launch(Launch::new(&ARGREDUCE, form_code, args, &params, groups))?;
    if plan.parts == 1 {
        return Ok(found);
    }
    (params.second, params.third) = match plan.form.is_across() {
        true => (1, rows.rows.next_multiple_of(4)),
        false => (plan.parts, 1),
    };
    let picked = Tensor::output(engine, &[rows.rows as usize], DType::U32)?;
    let groups = rows::groups(engine.caps(), u64::from(rows.rows).div_ceil(4), 32);
    let args = [arg(x, false), arg(&found, false), arg(&picked, true)];
    engine.launch(Launch::new(&ARGREDUCE_PICK, code, args, &params, groups))?;
    Ok(picked)
}

/// The WGSL of a search.
fn text(variant: &Variant) -> Cow<'static, str> {
    let (load, form): (&[&str], _) = match Form::from_code(variant.code) {
        Form::Along => (&[], "along"),
        Form::Tree => (&[], "tree"),
        Form::Across => (&["load_apart"], "across"),
        Form::AcrossVec4s => (&["load_aligned"], "across"),
    };
    let text = common(variant).sections(rows::WGSL, &["runs"]);
    text.sections(rows::WGSL, load)
        .sections(WGSL, &[form])
        .done()
}

/// The WGSL of the second launch.
fn pick_text(variant: &Variant) -> Cow<'static, str> {
    common(variant).sections(WGSL, &["pick"]).done()
}

fn common(variant: &Variant) -> Text {
    let (kind, least) = (variant.dtypes[0].wgsl(), variant.code & LEAST != 0);
    rows::rank_constants(variant.code)
        .line(format_args!(
            "alias T = {kind};\nconst LEAST: bool = {least};"
        ))
        .sections(rows::WGSL, &["params"])
        .sections(WGSL, &[key_section(kind), "best"])
}

/// Whether the variant searches for the smallest element.
#[cfg(any(test, feature = "sim"))]
pub(super) fn is_least(code: u64) -> bool {
    code & LEAST != 0
}
