//! Sums, products, extremes, norms and variances over any set of axes: the kernel, its forms, and
//! the choice between them.
//!
//! | form | how it folds | for |
//! | --- | --- | --- |
//! | `Along` | one invocation folds four rows, one after the other | rows that are contiguous |
//! | `Tree` | 64 invocations fold a row and join in workgroup memory | the same on a GPU, if rows are long |
//! | `Across` | one invocation folds four rows, side by side | rows with strided elements |
//!
//! Few long rows are cut into parts, and a second launch folds the parts. An [`Op`] says how rows
//! are folded. The methods of [`Tensor`](crate::Tensor) are in `reduce/methods.rs` and
//! `reduce/moments.rs`.

mod gradient;
mod methods;
mod moments;
mod op;
#[cfg(test)]
mod tests;

#[cfg(any(test, feature = "sim"))]
pub(super) mod reference;

use std::borrow::Cow;

use super::elementwise::arg;
use super::long::MOST_TESTS;
use super::rows::{self, Axes, Rows, Side};
use crate::tensor::Tensor;
use crate::tensor::called::Called;
use lapidary_core::internal::{Arg, BuiltInKernel, Launch, Operand, Variant};
use lapidary_core::{Caps, DType, Error, Result};

pub(super) use op::{Fold, Lift, Lower, Op, name_of};

const WGSL: &str = include_str!("../../shaders/reduce.wgsl");

/// Least elements of a row for which a GPU folds it by many invocations.
const LEAST_TREE_LENGTH: u32 = 256;

/// The same where rows are too few to give every core one invocation each.
const LEAST_TREE_LENGTH_OF_FEW: u32 = 32;

/// Most rows that are few.
const FEW_ROWS: u32 = 1 << 16;

/// Least elements of a column that a GPU cuts into many short parts. Of shorter ones the second
/// launch would take more time than it saves.
const LONG_COLUMN: u32 = 512;

/// `y[r]` = the fold of row `r` of `x`.
pub(super) static REDUCE: BuiltInKernel = BuiltInKernel {
    name: "reduce",
    operands: &[Operand::read("x"), Operand::write("y")],
    text,
    reference: reference!(reference::run),
};

/// `y[r]` = the fold of row `r` of `x` after `lift`, which also takes `m[r]`.
pub(super) static REDUCE_AROUND: BuiltInKernel = BuiltInKernel {
    name: "reduce_around",
    operands: &[Operand::read("x"), Operand::read("m"), Operand::write("y")],
    text,
    reference: reference!(reference::run),
};

/// The form of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Along,
    Across,
    /// `Across`, if one load fetches an element of each of the four rows.
    AcrossVec4s,
    Tree,
}

impl Form {
    const ALL: [Form; 4] = [Form::Along, Form::Across, Form::AcrossVec4s, Form::Tree];

    pub(super) fn from_code(code: u64) -> Form {
        Form::ALL[(code >> 12 & 3) as usize]
    }

    /// Whether it can fold these rows.
    fn fits(self, rows: &Rows) -> bool {
        match self {
            Form::Across => true,
            Form::AcrossVec4s => rows.neighbours_are_vec4s(),
            Form::Along | Form::Tree => rows.inner.strides[0] == 1,
        }
    }

    pub(super) fn is_across(self) -> bool {
        matches!(self, Form::Across | Form::AcrossVec4s)
    }

    /// Elements of y. In it, the parts of a row are contiguous, or the rows of a part.
    pub(super) fn outputs(self, rows: u32, parts: u32) -> u64 {
        match self.is_across() {
            true => u64::from(rows).next_multiple_of(4) * u64::from(parts),
            false => u64::from(rows) * u64::from(parts),
        }
    }

    /// Most elements that an invocation folds in [`MOST_TESTS`] tests of its loops. Each contiguous
    /// run of a row begins and ends in short loops of up to 16 tests, and every 32nd block of a run
    /// ends in another one.
    fn longest_chunk(self, rows: &Rows) -> u64 {
        let (rows_each, block) = match self {
            Form::Along => (4, 16),
            Form::Across | Form::AcrossVec4s => (1, 4),
            Form::Tree => (1, 256),
        };
        let run = u64::from(rows.inner.dims[0].max(1));
        // The first and the last run of a chunk may be parts of runs.
        let tests = MOST_TESTS / rows_each - 2 * 16;
        tests * (32 * block * run) / (32 * block * 16 + 33 * run)
    }

    pub(super) fn groups(self, caps: &Caps, rows: u32, parts: u32) -> [u32; 3] {
        let vec4s = self.outputs(rows, parts).div_ceil(4);
        match self {
            Form::Tree => rows::groups(caps, vec4s, 1),
            _ => rows::groups(caps, vec4s, 32),
        }
    }
}

/// How rows are folded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) form: Form,
    /// The number of parts of a row.
    pub(super) parts: u32,
    /// Elements of a part.
    pub(super) chunk: u32,
}

impl Plan {
    /// The best plan for this adapter: by measurements on llvmpipe, and by coalescing on GPUs.
    pub(super) fn choose(caps: &Caps, rows: &Rows) -> Plan {
        let gpu = rows::is_gpu(caps);
        let contiguous = Form::Along.fits(rows) && (rows.inner.dims[0] >= 8 || rows.are_vec4s());
        let least_tree_length = match rows.rows <= FEW_ROWS {
            true => LEAST_TREE_LENGTH_OF_FEW,
            false => LEAST_TREE_LENGTH,
        };
        let form = match contiguous {
            true if gpu && rows.length >= least_tree_length => Form::Tree,
            true => Form::Along,
            false if Form::AcrossVec4s.fits(rows) => Form::AcrossVec4s,
            false => Form::Across,
        };
        Plan::of_form(caps, rows, form)
    }

    /// The best parts for a form.
    fn of_form(caps: &Caps, rows: &Rows, form: Form) -> Plan {
        let gpu = rows::is_gpu(caps);
        // Enough vec4s of results to keep the adapter busy, but parts that are worth a launch.
        let (busy_vec4s, least_chunk) = match (gpu, form.is_across()) {
            (true, true) if rows.length >= LONG_COLUMN => (16 << 10, 32),
            (true, true) => (16 << 10, 128),
            (true, false) => (1 << 10, 4 << 10),
            (false, true) => (16 << 10, 128),
            (false, false) => (512, 4 << 10),
        };
        let vec4s = u64::from(rows.rows).div_ceil(4).max(1);
        let wanted = match form.is_across() {
            true => busy_vec4s / vec4s,
            false => 4 * busy_vec4s / u64::from(rows.rows.max(1)),
        };
        let affordable = u64::from(rows.length) / least_chunk;
        let least = least_parts(caps, rows, form.longest_chunk(rows));
        Plan::cut(form, rows, wanted.min(affordable).max(least))
    }

    /// A plan with about `parts` parts of whole vec4s.
    pub(super) fn cut(form: Form, rows: &Rows, parts: u64) -> Plan {
        let length = u64::from(rows.length);
        let chunk = match parts {
            0 | 1 => length,
            parts => length.div_ceil(parts).next_multiple_of(16).min(length),
        };
        Plan {
            form,
            parts: length.div_ceil(chunk.max(1)).max(1) as u32,
            chunk: chunk as u32,
        }
    }
}

/// The least number of parts of a row, if an invocation finishes at most `longest` elements of it
/// on a software adapter.
pub(super) fn least_parts(caps: &Caps, rows: &Rows, longest: u64) -> u64 {
    match rows::is_gpu(caps) {
        true => 1,
        false => u64::from(rows.length).div_ceil(longest),
    }
}

/// Folds the axes `folded` of `x` into a tensor with one dimension. `middle` holds a float for each
/// row, for operations that need it.
#[track_caller]
pub(super) fn fold(
    x: &Tensor,
    middle: Option<&Tensor>,
    op: Op,
    folded: Axes,
    out: DType,
) -> Result<Tensor> {
    let copy;
    let (x, rows) = match Rows::new(&x.layout, folded, true) {
        Some(rows) => (x, rows),
        None => {
            copy = x.contiguous()?;
            let rows = Rows::new(&copy.layout, folded, true)
                .expect("eight contiguous axes collapse to four runs on either side");
            (&copy, rows)
        }
    };
    let plan = Plan::choose(x.engine.caps(), &rows);
    fold_as(x, middle, op, &rows, plan, out)
}

/// The mean of every row from its first element, and the fold `spread` of the distances from the
/// mean. Rows must not be empty.
#[track_caller]
pub(super) fn mean_and_spread(
    x: &Tensor,
    spread: Op,
    folded: Axes,
    out: DType,
) -> Result<[Tensor; 2]> {
    let mean = fold(x, None, Op::MEAN_FROM_FIRST, folded, DType::F32)?;
    let spread = fold(x, Some(&mean), spread, folded, out)?;
    Ok([mean, spread])
}

/// Folds by this plan.
#[track_caller]
pub(super) fn fold_as(
    x: &Tensor,
    middle: Option<&Tensor>,
    op: Op,
    rows: &Rows,
    plan: Plan,
    out: DType,
) -> Result<Tensor> {
    debug_assert_eq!(middle.is_some(), op.needs_middle());
    if plan.parts == 1 {
        return launch(x, middle, op, rows, plan, rows.length, out);
    }
    let partial = op.partial(x.dtype);
    let parts = launch(x, middle, op.of_part(), rows, plan, rows.length, partial)?;
    let of_parts = rows_of_parts(rows, plan);
    let form = match plan.form {
        Form::Across | Form::AcrossVec4s => Form::AcrossVec4s,
        form => form,
    };
    let whole = Plan::cut(form, &of_parts, 1);
    launch(
        &parts,
        None,
        op.of_parts(),
        &of_parts,
        whole,
        rows.length,
        out,
    )
}

/// Folds the parts of rows, into the elements that [`Form::outputs`] describes.
#[track_caller]
pub(super) fn fold_parts(x: &Tensor, op: Op, rows: &Rows, plan: Plan) -> Result<Tensor> {
    launch(x, None, op, rows, plan, rows.length, op.partial(x.dtype))
}

/// The results of a first launch as the rows of a second.
fn rows_of_parts(rows: &Rows, plan: Plan) -> Rows {
    let padded = rows.rows.next_multiple_of(4);
    let (outer, inner, count) = match plan.form.is_across() {
        // The size of the first dimension is only tested for whole vec4s of rows.
        true => (1, padded, padded),
        false => (plan.parts, 1, rows.rows),
    };
    let side = |dim, stride| Side {
        rank: 1,
        dims: [dim, 1, 1, 1],
        strides: [stride, 0, 0, 0],
    };
    Rows {
        outer: side(count, outer),
        inner: side(plan.parts, inner),
        offset: 0,
        rows: rows.rows,
        length: plan.parts,
    }
}

/// Returns an error if an extreme of no elements is wanted.
#[track_caller]
pub(super) fn refuse_empty(operation: &'static str, shape: &[usize], folded: Axes) -> Result<()> {
    match (0..shape.len()).find(|&axis| folded.contains(axis) && shape[axis] == 0) {
        None => Ok(()),
        Some(axis) => Err(Error::Shape {
            operation,
            reason: format!("axis {axis} of {shape:?} has no elements, and so no extreme"),
        })
        .located(),
    }
}

#[track_caller]
fn launch(
    x: &Tensor,
    middle: Option<&Tensor>,
    op: Op,
    rows: &Rows,
    plan: Plan,
    length: u32,
    out: DType,
) -> Result<Tensor> {
    let engine = &x.engine;
    let outputs = plan.form.outputs(rows.rows, plan.parts);
    let result = Tensor::output(engine, &[outputs as usize], out)?;
    if rows.rows == 0 {
        return Ok(result);
    }
    if plan.form.is_across() {
        let padded = rows.rows.next_multiple_of(4);
        engine
            .here()
            .pads(&result.storage.here(), rows.rows as usize, padded as usize);
    }
    let mut params = rows.params();
    params.parts = plan.parts;
    params.chunk = plan.chunk;
    params.scalar = op.scalar(length);
    let code = rows::rank_bits(rows) | op.code() | (plan.form as u64) << 12;
    let (x, y) = (arg(x, plan.form != Form::Across), arg(&result, true));
    let (kernel, args): (_, Vec<Arg>) = match middle {
        Some(middle) => (&REDUCE_AROUND, vec![x, arg(middle, false), y]),
        None => (&REDUCE, vec![x, y]),
    };
    let groups = plan.form.groups(engine.caps(), rows.rows, plan.parts);
    engine.launch(Launch::new(kernel, code, args, &params, groups))?;
    Ok(result)
}

/// The WGSL of a variant.
fn text(variant: &Variant) -> Cow<'static, str> {
    let (file, load, form) = match Form::from_code(variant.code) {
        Form::Along => (WGSL, "lanes", "along"),
        Form::Tree => (WGSL, "lanes", "tree"),
        Form::Across => (rows::WGSL, "load_apart", "across"),
        Form::AcrossVec4s => (rows::WGSL, "load_aligned", "across"),
    };
    let (text, sections) = op::sections(rows::rank_constants(variant.code), variant);
    text.sections(rows::WGSL, &["params", "runs"])
        .sections(file, &[load])
        .sections(WGSL, &sections)
        .sections(WGSL, &[form])
        .done()
}
