//! Sums, means, maxima and minima over any set of axes: the kernel, its forms, and the choice.
//!
//! | form | who folds | for |
//! | --- | --- | --- |
//! | `Along` | one invocation four rows, one after the other | rows that are contiguous |
//! | `Tree` | 64 invocations a row, joined in workgroup memory | the same on a GPU, if they are long |
//! | `Across` | one invocation four rows, side by side | rows whose elements lie apart |
//!
//! Few long rows are cut into parts, and a second launch folds the parts. The methods of
//! [`Tensor`](crate::Tensor) are in `reduce/methods.rs`.

mod methods;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::fmt::Write;

use super::elementwise::arg;
use super::functions::push_functions;
use super::rows::{self, Axes, Rows, Side};
use super::text::push_sections;
use crate::driver::Caps;
use crate::dtype::DType;
use crate::engine::{Arg, Kernel, Launch, Operand, Variant};
use crate::error::{Error, Result};
use crate::tensor::Tensor;

const WGSL: &str = include_str!("../../shaders/reduce.wgsl");

/// `y[r]` = fold of row `r` of `x`.
pub(super) static REDUCE: Kernel = Kernel {
    name: "reduce",
    operands: &[Operand::read("x"), Operand::write("y")],
    text,
    #[cfg(any(test, feature = "sim"))]
    twin: super::twin::reduce::run,
};

/// The same of what `lift` makes of `x` and of the row's `m[r]`.
pub(super) static REDUCE_AROUND: Kernel = Kernel {
    name: "reduce_around",
    operands: &[Operand::read("x"), Operand::read("m"), Operand::write("y")],
    text,
    #[cfg(any(test, feature = "sim"))]
    twin: super::twin::reduce::run,
};

/// What a row is folded to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Op {
    Sum,
    Mean,
    Max,
    Min,
    /// Of `exp(x − m)`.
    SumExp,
    /// Of `(x − m)²`.
    SumSquares,
}

impl Op {
    const ALL: [Op; 6] = [
        Op::Sum,
        Op::Mean,
        Op::Max,
        Op::Min,
        Op::SumExp,
        Op::SumSquares,
    ];

    pub(super) fn from_code(code: u64) -> Op {
        Op::ALL[(code >> 8 & 15) as usize]
    }

    /// Folds the parts of a row, where a second launch divides.
    fn of_part(self) -> Op {
        match self {
            Op::Mean => Op::Sum,
            op => op,
        }
    }

    /// Folds what [`of_part`](Op::of_part) made of the parts.
    fn of_parts(self) -> Op {
        match self {
            Op::SumExp | Op::SumSquares => Op::Sum,
            op => op,
        }
    }

    fn needs_middle(self) -> bool {
        matches!(self, Op::SumExp | Op::SumSquares)
    }
}

/// What a variant computes.
pub(super) fn name_of(code: u64) -> &'static str {
    match Op::from_code(code) {
        Op::Sum => "sum",
        Op::Mean => "mean",
        Op::Max => "max",
        Op::Min => "min",
        Op::SumExp => "sum_exp",
        Op::SumSquares => "sum_squares",
    }
}

/// Which kernel folds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Along,
    Across,
    /// `Across` where one load fetches an element of each of the four rows.
    AcrossQuads,
    Tree,
}

impl Form {
    const ALL: [Form; 4] = [Form::Along, Form::Across, Form::AcrossQuads, Form::Tree];

    pub(super) fn from_code(code: u64) -> Form {
        Form::ALL[(code >> 12 & 3) as usize]
    }

    /// May it be used on these rows?
    fn fits(self, rows: &Rows) -> bool {
        match self {
            Form::Across => true,
            Form::AcrossQuads => rows.neighbours_are_quads(),
            Form::Along | Form::Tree => rows.inner.strides[0] == 1,
        }
    }

    pub(super) fn is_across(self) -> bool {
        matches!(self, Form::Across | Form::AcrossQuads)
    }

    /// Elements of y, in which the parts of a row follow each other, or the rows of a part.
    pub(super) fn outputs(self, rows: u32, parts: u32) -> u64 {
        match self.is_across() {
            true => u64::from(rows).next_multiple_of(4) * u64::from(parts),
            false => u64::from(rows) * u64::from(parts),
        }
    }

    pub(super) fn groups(self, caps: &Caps, rows: u32, parts: u32) -> [u32; 3] {
        let quads = self.outputs(rows, parts).div_ceil(4);
        match self {
            Form::Tree => rows::groups(caps, quads, 1),
            _ => rows::groups(caps, quads, 32),
        }
    }
}

/// How rows are folded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) form: Form,
    /// Pieces that a row is cut into.
    pub(super) parts: u32,
    /// Elements of a piece.
    pub(super) chunk: u32,
}

impl Plan {
    /// The best for this adapter: the forms by measurement on llvmpipe, and for GPUs by
    /// coalescing.
    pub(super) fn choose(caps: &Caps, rows: &Rows) -> Plan {
        let gpu = rows::is_gpu(caps);
        let contiguous = Form::Along.fits(rows) && (rows.inner.dims[0] >= 8 || rows.are_quads());
        let form = match contiguous {
            true if gpu && rows.length >= 256 => Form::Tree,
            true => Form::Along,
            false if Form::AcrossQuads.fits(rows) => Form::AcrossQuads,
            false => Form::Across,
        };
        // As many quads of results as keep the adapter busy, but pieces worth a launch.
        let (busy_quads, least_chunk) = match (gpu, form.is_across()) {
            (true, true) => (16 << 10, 128),
            (true, false) => (1 << 10, 4 << 10),
            (false, true) => (16 << 10, 128),
            (false, false) => (512, 4 << 10),
        };
        let quads = u64::from(rows.rows).div_ceil(4).max(1);
        let wanted = match form.is_across() {
            true => busy_quads / quads,
            false => 4 * busy_quads / u64::from(rows.rows.max(1)),
        };
        let affordable = u64::from(rows.length) / least_chunk;
        Plan::cut(form, rows, wanted.min(affordable))
    }

    /// About `parts` pieces, of whole quads each.
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

/// Folds the rows that are left when `folded` goes away, into a tensor with one dimension.
/// `middle` holds a float a row, for the operations that need it.
#[track_caller]
pub(super) fn fold(
    x: &Tensor,
    middle: Option<&Tensor>,
    op: Op,
    folded: Axes,
    out: DType,
) -> Result<Tensor> {
    let copy;
    let (x, rows) = match Rows::of(&x.layout, folded, true) {
        Some(rows) => (x, rows),
        None => {
            copy = x.contiguous()?;
            let rows = Rows::of(&copy.layout, folded, true)
                .expect("eight contiguous axes collapse to four runs on either side");
            (&copy, rows)
        }
    };
    let plan = Plan::choose(x.engine.caps(), &rows);
    fold_as(x, middle, op, &rows, plan, out)
}

/// Folds as planned.
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
    let partial = match x.dtype {
        DType::F32 | DType::F16 => DType::F32,
        DType::I32 => DType::I32,
        DType::U32 | DType::U8 | DType::Bool => DType::U32,
    };
    let parts = launch(x, middle, op.of_part(), rows, plan, rows.length, partial)?;
    let of_parts = rows_of_parts(rows, plan);
    let form = match plan.form {
        Form::Across | Form::AcrossQuads => Form::AcrossQuads,
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

/// The results of a first launch as the rows of a second.
fn rows_of_parts(rows: &Rows, plan: Plan) -> Rows {
    let padded = rows.rows.next_multiple_of(4);
    let (outer, inner, count) = match plan.form.is_across() {
        // The first dimension's size is used for nothing but to see that quads of rows are whole.
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

/// Refuses to look for the extreme of nothing.
pub(super) fn refuse_empty(operation: &'static str, shape: &[usize], folded: Axes) -> Result<()> {
    match (0..shape.len()).find(|&axis| folded.contains(axis) && shape[axis] == 0) {
        None => Ok(()),
        Some(axis) => Err(Error::Shape {
            operation,
            reason: format!("axis {axis} of {shape:?} has no elements, and so no extreme"),
        }),
    }
}

#[track_caller]
fn launch(
    x: &Tensor,
    middle: Option<&Tensor>,
    op: Op,
    rows: &Rows,
    plan: Plan,
    divisor: u32,
    out: DType,
) -> Result<Tensor> {
    let engine = &x.engine;
    let outputs = plan.form.outputs(rows.rows, plan.parts);
    let result = Tensor::output(engine, &[outputs as usize], out)?;
    if rows.rows == 0 {
        return Ok(result);
    }
    let mut params = rows.params();
    params.parts = plan.parts;
    params.chunk = plan.chunk;
    // Nothing has no mean: what the sum of nothing is divided by is not a number.
    params.scalar = if divisor == 0 {
        f32::NAN
    } else {
        divisor as f32
    };
    let code = rows::rank_bits(rows) | (op as u64) << 8 | (plan.form as u64) << 12;
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
    let (op, form) = (Op::from_code(variant.code), Form::from_code(variant.code));
    let result = if op.needs_middle() { 2 } else { 1 };
    let (from, to) = (variant.dtypes[0], variant.dtypes[result]);
    let is_extreme = matches!(op, Op::Max | Op::Min);
    let compares_keys = is_extreme && from.is_float();
    let accumulator = if compares_keys { "i32" } else { from.wgsl() };
    let (lowest, highest) = match accumulator {
        "i32" => ("-2147483647i - 1i", "2147483647i"),
        _ => ("0u", "0xffffffffu"),
    };
    let mut out = String::with_capacity(8 << 10);
    rows::rank_constants(&mut out, variant.code);
    // Writing to a String cannot fail.
    let _ = writeln!(
        out,
        "alias T = {};\nalias A = {accumulator};\nalias R = {};",
        from.wgsl(),
        to.wgsl()
    );
    if is_extreme {
        let nan_key = if op == Op::Max { "0x7fc00000i" } else { lowest };
        let _ = writeln!(out, "const LOWEST = {lowest};\nconst HIGHEST = {highest};");
        let _ = writeln!(
            out,
            "const NAN_KEY: i32 = {};",
            if compares_keys { nan_key } else { "0" }
        );
    }
    push_sections(&mut out, rows::WGSL, &["params", "runs"]);
    let fold = match op {
        Op::Max => "max",
        Op::Min => "min",
        _ => "sum",
    };
    let ends: &[&str] = match op {
        _ if compares_keys => &["keys"],
        Op::Sum | Op::Max | Op::Min => &["lift", "lower"],
        Op::Mean => &["lift", "lower_mean"],
        Op::SumExp => &["lift_exp", "lower"],
        Op::SumSquares => &["lift_square", "lower"],
    };
    let middle = if op.needs_middle() {
        "middle"
    } else {
        "no_middle"
    };
    match form {
        Form::Across => push_sections(&mut out, rows::WGSL, &["load_apart"]),
        Form::AcrossQuads => push_sections(&mut out, rows::WGSL, &["load_aligned"]),
        Form::Along | Form::Tree => push_sections(&mut out, WGSL, &["lanes"]),
    }
    let form = match form {
        Form::Along => "along",
        Form::Tree => "tree",
        Form::Across | Form::AcrossQuads => "across",
    };
    push_sections(&mut out, WGSL, &[&[fold, middle], ends].concat());
    push_sections(&mut out, WGSL, &[form]);
    push_functions(&mut out);
    Cow::Owned(out)
}
