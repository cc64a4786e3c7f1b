//! Running sums and products along an axis.
//!
//! Few long rows are cut into parts: the parts are folded as in [`reduce`](super::reduce), what
//! they fold to is scanned in turn, and from that every part goes on.

use std::borrow::Cow;
use std::fmt::Write;

use super::elementwise::arg;
use super::reduce::{self, Fold, Op, Plan};
use super::rows::{self, Axes, Rows};
use super::text::push_sections;
use crate::dtype::DType;
use crate::engine::{Kernel, Launch, Operand, Variant};
use crate::error::Result;
use crate::tensor::Tensor;
use crate::tensor::layout::{Layout, axis};

const WGSL: &str = include_str!("../../shaders/scan.wgsl");

/// Rows in one piece.
static SCAN: Kernel = Kernel {
    name: "scan",
    operands: &[Operand::read("x"), Operand::write("y")],
    text,
    #[cfg(any(test, feature = "sim"))]
    twin: super::twin::scan::run,
};

/// Rows in parts, of which `c` holds what they fold to.
static SCAN_PARTS: Kernel = Kernel {
    name: "scan_parts",
    operands: &[Operand::read("x"), Operand::read("c"), Operand::write("y")],
    text,
    #[cfg(any(test, feature = "sim"))]
    twin: super::twin::scan::run,
};

/// Bits of a variant's code.
const PRODUCT: u64 = 1 << 8;
const PARTS: u64 = 1 << 9;

impl Tensor {
    /// The running sum along `axis`: element `k` is the sum of elements 0 to `k`.
    ///
    /// Types as in [`sum`](Tensor::sum): f16 and bf16 are accumulated in f32, integers wrap around, `u8` and
    /// `bool` give `u32`, `i8` gives `i32`. Long axes are summed in blocks, so that the error stays small.
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
        running(self, "cumsum", axis, Op::SUM)
    }

    /// The running product along `axis`: element `k` is the product of elements 0 to `k`. Types as
    /// in [`sum`](Tensor::sum).
    ///
    /// # Errors
    ///
    /// [`Error::Axis`](crate::Error::Axis) if there is no such axis.
    #[track_caller]
    pub fn cumprod(&self, axis: isize) -> Result<Tensor> {
        running(self, "cumprod", axis, Op::PROD)
    }
}

#[track_caller]
fn running(x: &Tensor, operation: &'static str, along: isize, op: Op) -> Result<Tensor> {
    if let Some(x) = x.as_axis() {
        return Ok(running(&x, operation, along, op)?.into_number());
    }
    let at = axis(operation, along, x.layout.rank())?;
    let made = scan(x, at, op, None)?;
    match x.dtype {
        DType::F16 | DType::Bf16 => made.cast(x.dtype),
        _ => Ok(made),
    }
}

/// Scans along an axis, into 4 bytes an element; in so many parts, or as many as are good.
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
    let plan = Plan::cut(form, rows, parts.unwrap_or_else(|| good_parts(x, rows)));
    let mut params = rows.params();
    params.parts = plan.parts;
    params.chunk = plan.chunk;
    params.second = x.layout.shape[at + 1..].iter().product::<usize>() as u32;
    let mut code = rows::rank_bits(rows);
    if op.fold == Fold::Product {
        code |= PRODUCT;
    }
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

/// As many parts as keep the adapter busy, but worth the two launches more.
fn good_parts(x: &Tensor, rows: &Rows) -> u64 {
    let (busy, least_chunk) = match rows::is_gpu(x.engine.caps()) {
        true => (32 << 10, 64),
        false => (256, 2 << 10),
    };
    let wanted = busy / u64::from(rows.rows.max(1));
    wanted.min(u64::from(rows.length) / least_chunk)
}

/// What every part of every row folds to, as a view of shape `[rows, parts]`.
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
    let mut out = String::with_capacity(4 << 10);
    rows::rank_constants(&mut out, variant.code);
    // Writing to a String cannot fail.
    let _ = writeln!(out, "alias T = {};", variant.dtypes[0].wgsl());
    let fold = match variant.code & PRODUCT {
        0 => "sum",
        _ => "product",
    };
    let before = match variant.code & PARTS {
        0 => "whole",
        _ => "parts",
    };
    push_sections(&mut out, rows::WGSL, &["params"]);
    push_sections(&mut out, WGSL, &[fold, before, "main"]);
    Cow::Owned(out)
}

/// Of a variant: does it multiply, and is it in parts?
#[cfg(any(test, feature = "sim"))]
pub(super) fn kind(code: u64) -> (bool, bool) {
    (code & PRODUCT != 0, code & PARTS != 0)
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
            for code in [0x11, 0x12, 0x14].iter().flat_map(|c| [*c, c | PRODUCT]) {
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
                for op in [Op::SUM, Op::PROD] {
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
