//! Running sums, products and extremes along an axis.
//!
//! Few long rows are cut into parts. The parts are folded as in [`reduce`](super::reduce), and
//! their results are scanned. Then each part is scanned from there. `log_sum` has running
//! logarithms of sums.

mod gradient;
mod log_sum;
#[cfg(any(test, feature = "sim"))]
pub(super) mod reference;

use std::borrow::Cow;

use super::elementwise::arg;
use super::fill::{arange, full};
use super::long::MOST_TESTS;
use super::reduce::{self, Fold, Op, Plan, least_parts};
use super::rows::{self, Axes, Rows};
use super::text::{bounds, nan_key};
use crate::tensor::Tensor;
use crate::tensor::layout::{Dims, Layout, axis};
use lapidary_core::internal::{BuiltInKernel, Launch, MadeFor, Operand, Variant};
use lapidary_core::{DType, Result};

const WGSL: &str = include_str!("../../shaders/scan.wgsl");

/// Scans whole rows.
static SCAN: BuiltInKernel = BuiltInKernel {
    name: "scan",
    operands: &[Operand::read("x"), Operand::write("y")],
    text,
    reference: reference!(reference::run),
};

/// Scans rows in parts. `c` holds the scanned folds of the parts.
static SCAN_PARTS: BuiltInKernel = BuiltInKernel {
    name: "scan_parts",
    operands: &[Operand::read("x"), Operand::read("c"), Operand::write("y")],
    text,
    reference: reference!(reference::run),
};

/// Bits of a variant's code; two of them encode the [`Fold`].
const PARTS: u64 = 1 << 8;
const FOLD_SHIFT: u32 = 9;

impl Tensor {
    /// The running sum along `axis`: element `k` is the sum of elements 0 to `k`.
    ///
    /// Types are as in [`sum`](Tensor::sum): f16 and bf16 are accumulated in f32, integers wrap
    /// around, `u8` and `bool` give `u32`, `i8` gives `i32`. Long axes are summed in blocks to keep
    /// the error small.
    ///
    /// ```
    /// # fn demo(counts: &lapidary::Tensor) -> lapidary::Result<()> {
    /// let ends = counts.cumsum(0)?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Axis`](crate::Error::Axis) if there is no such axis.
    #[track_caller]
    pub fn cumsum(&self, axis: isize) -> Result<Tensor> {
        let _method = MadeFor::method("cumsum");
        running(self, "cumsum", axis, Op::SUM)
    }

    /// The running product along `axis`: element `k` is the product of elements 0 to `k`. Types are
    /// as in [`sum`](Tensor::sum).
    ///
    /// # Errors
    ///
    /// [`Error::Axis`](crate::Error::Axis) if there is no such axis.
    #[track_caller]
    pub fn cumprod(&self, axis: isize) -> Result<Tensor> {
        let _method = MadeFor::method("cumprod");
        running(self, "cumprod", axis, Op::PROD)
    }

    /// The running maximum along `axis`, and its index as `u32`: element `k` is the largest of
    /// elements 0 to `k`, in the tensor's type.
    ///
    /// As in PyTorch, the last of equal elements is named, and from the first NaN on all are NaN.
    ///
    /// ```
    /// # fn demo(prices: &lapidary::Tensor) -> lapidary::Result<()> {
    /// let (highest, days) = prices.cummax(0)?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Axis`](crate::Error::Axis) if there is no such axis.
    #[track_caller]
    pub fn cummax(&self, axis: isize) -> Result<(Tensor, Tensor)> {
        let _method = MadeFor::method("cummax");
        running_extreme(self, "cummax", axis, Op::MAX)
    }

    /// The running minimum along `axis`, and its index. See [`cummax`](Tensor::cummax).
    ///
    /// # Errors
    ///
    /// [`Error::Axis`](crate::Error::Axis) if there is no such axis.
    #[track_caller]
    pub fn cummin(&self, axis: isize) -> Result<(Tensor, Tensor)> {
        let _method = MadeFor::method("cummin");
        running_extreme(self, "cummin", axis, Op::MIN)
    }
}

/// Values and indices. The index is that of the last element so far that was the extreme there.
#[track_caller]
fn running_extreme(
    x: &Tensor,
    operation: &'static str,
    along: isize,
    op: Op,
) -> Result<(Tensor, Tensor)> {
    if let Some(x) = x.as_axis() {
        let (values, places) = running_extreme(&x, operation, along, op)?;
        return Ok((values.into_number(), places.into_number()));
    }
    let at = axis(operation, along, x.layout.rank())?;
    if x.is_tracked() {
        return gradient::running_extreme_recorded(x, operation, at, op);
    }
    let values = scan(x, at, op, None)?.cast(x.dtype)?;
    let mut is_extreme = x.eq(&values)?;
    if x.dtype.is_float() {
        is_extreme = is_extreme.logical_or(&x.is_nan()?)?;
    }
    let size = x.layout.shape[at];
    let mut line: Dims = x.layout.shape.iter().map(|_| 1).collect();
    line[at] = size;
    let places = arange(
        &x.engine,
        0.into(),
        (size as f64).into(),
        1.into(),
        DType::U32,
    )?;
    let none = full(&x.engine, &[], 0.into(), DType::U32)?;
    let places = is_extreme.where_(&places.reshape(&line)?, &none)?;
    Ok((values, scan(&places, at, Op::MAX, None)?))
}

#[track_caller]
fn running(x: &Tensor, operation: &'static str, along: isize, op: Op) -> Result<Tensor> {
    if let Some(x) = x.as_axis() {
        return Ok(running(&x, operation, along, op)?.into_number());
    }
    let at = axis(operation, along, x.layout.rank())?;
    if x.is_tracked() {
        return gradient::running_recorded(x, operation, at, op);
    }
    let made = scan(x, at, op, None)?;
    match x.dtype {
        DType::F16 | DType::Bf16 => made.cast(x.dtype),
        _ => Ok(made),
    }
}

/// Scans along an axis, into elements of 4 bytes. `parts` is the number of parts; `None` chooses
/// it.
#[track_caller]
fn scan(x: &Tensor, at: usize, op: Op, parts: Option<u64>) -> Result<Tensor> {
    let engine = &x.engine;
    let result = Tensor::output(engine, &x.layout.shape, op.partial(x.dtype))?;
    if x.layout.len() == 0 {
        return Ok(result);
    }
    let folded = Axes::from(at, at + 1);
    let (x, rows) = &Rows::along(x, folded)?;
    let form = Plan::choose(engine.caps(), rows).form;
    // As of blocks, the product of a part may overflow.
    let may_cut = op.fold != Fold::Product || !x.dtype.is_float();
    let plan = Plan::cut(
        form,
        rows,
        parts.unwrap_or_else(|| good_parts(x, rows, may_cut)),
    );
    let mut params = rows.params();
    params.parts = plan.parts;
    params.chunk = plan.chunk;
    params.second = x.layout.shape[at + 1..].iter().product::<usize>() as u32;
    let code = rows::rank_bits(rows) | (op.fold as u64) << FOLD_SHIFT;
    let groups = u64::from(rows.rows) * u64::from(plan.parts);
    let groups = rows::groups(engine.caps(), groups, 32);
    let (from, to) = (arg(x, false), arg(&result, false));
    let launch = match plan.parts {
        1 => Launch::new(&SCAN, code, [from, to], &params, groups),
        _ => {
            let ends = scan(&ends_of_parts(x, op, rows, plan)?, 1, op, None)?;
            let args = [from, arg(&ends, false), to];
            Launch::new(&SCAN_PARTS, code | PARTS, args, &params, groups)
        }
    };
    engine.launch(launch)?;
    Ok(result)
}

/// Enough parts to keep the adapter busy, if they are worth two more launches.
fn good_parts(x: &Tensor, rows: &Rows, may_cut: bool) -> u64 {
    let (busy, least_chunk) = match rows::is_gpu(x.engine.caps()) {
        true => (32 << 10, 64),
        false => (256, 2 << 10),
    };
    let wanted = if may_cut {
        busy / u64::from(rows.rows.max(1))
    } else {
        1
    };
    let least = least_parts(x.engine.caps(), rows, MOST_TESTS);
    let affordable = u64::from(rows.length) / least_chunk;
    wanted.min(affordable).max(least)
}

/// The folds of every row's parts, as a view of shape `[rows, parts]`.
#[track_caller]
fn ends_of_parts(x: &Tensor, op: Op, rows: &Rows, plan: Plan) -> Result<Tensor> {
    let parts = reduce::fold_parts(x, op, rows, plan)?;
    let (count, parts_of_row) = (rows.rows as usize, plan.parts as usize);
    let strides = match plan.form.is_across() {
        true => [1, count.next_multiple_of(4) as isize],
        false => [parts_of_row as isize, 1],
    };
    let mut layout = Layout::contiguous(&[count, parts_of_row]);
    layout.strides.copy_from_slice(&strides);
    Ok(parts.view(layout))
}

/// The WGSL of a variant.
fn text(variant: &Variant) -> Cow<'static, str> {
    let (fold, is_in_parts) = kind(variant.code);
    let from = variant.dtypes[0].wgsl();
    let is_extreme = matches!(fold, Fold::Max | Fold::Min);
    let (by, accumulator) = match from {
        "f32" if is_extreme => ("keys", "i32"),
        _ => ("plain", from),
    };
    let mut text = rows::rank_constants(variant.code)
        .line(format_args!("alias T = {from};\nalias A = {accumulator};"));
    if is_extreme {
        let (lowest, highest) = bounds(accumulator);
        text = text.line(format_args!(
            "const LOWEST: A = {lowest};\nconst HIGHEST: A = {highest};"
        ));
    }
    if by == "keys" {
        let key = nan_key(fold == Fold::Max);
        text = text.line(format_args!("const NAN_KEY: i32 = {key};"));
    }
    let before = if is_in_parts { "parts" } else { "whole" };
    text.sections(rows::WGSL, &["params"])
        .sections(WGSL, &[fold.section(), by, before, "main"])
        .done()
}

/// The fold of a variant, and whether it scans parts.
pub(super) fn kind(code: u64) -> (Fold, bool) {
    let fold = match code >> FOLD_SHIFT & 3 {
        0 => Fold::Sum,
        1 => Fold::Product,
        2 => Fold::Max,
        _ => Fold::Min,
    };
    (fold, code & PARTS != 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Gpu;
    use crate::ops::check::valid;

    #[test]
    fn every_type_and_rank_gives_a_valid_shader() {
        for x in DType::ALL {
            let y = Op::SUM.partial(x);
            let folds = [Fold::Sum, Fold::Product, Fold::Max, Fold::Min];
            let codes =
                folds.map(|fold| [0x11, 0x12, 0x14].map(|c| c | (fold as u64) << FOLD_SHIFT));
            for code in codes.concat() {
                valid(&SCAN, code, &[x, y], 0);
                valid(&SCAN_PARTS, code | PARTS, &[x, y, y], 0);
            }
        }
    }

    #[test]
    fn any_number_of_parts_gives_what_one_gives() {
        let mut gpus = vec![Gpu::open(Default::default()).unwrap()];
        #[cfg(feature = "sim")]
        gpus.push(Gpu::simulated(Default::default()).unwrap().0);
        gpus.truncate(2);
        for gpu in gpus {
            let numbers: Vec<i32> = (0..7 * 301 * 3).map(|at| at * 7919 % 13 - 4).collect();
            let x = gpu.tensor(&numbers, &[7, 301, 3]).unwrap();
            for (view, at) in [
                (x.clone(), 1),
                (x.transpose(1, 2).unwrap(), 2),
                (x.view_as(&[7 * 301, 3]).unwrap().t().unwrap(), 1),
                (x.flip(&[0]).unwrap(), 0),
            ] {
                for op in [Op::SUM, Op::PROD, Op::MAX, Op::MIN] {
                    let whole = scan(&view, at, op, Some(1)).unwrap();
                    for parts in [2, 3, 19, 1 << 20] {
                        let got = scan(&view, at, op, Some(parts)).unwrap();
                        let what = format!("{view} along {at} in {parts}");
                        let (got, whole) =
                            (got.to_vec::<i32>().unwrap(), whole.to_vec::<i32>().unwrap());
                        assert_eq!(got, whole, "{what}");
                    }
                }
            }
        }
    }
}
