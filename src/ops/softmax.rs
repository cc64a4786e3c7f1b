//! Softmax and its logarithm along any axis.

mod gradient;
#[cfg(any(test, feature = "sim"))]
pub(super) mod reference;

use std::borrow::Cow;

use super::elementwise::arg;
use super::normalize::{self, Form};
use super::reduce::{Op, fold};
use super::rows::{Axes, Rows};
use crate::tensor::Tensor;
use crate::tensor::layout::axis;
use lapidary_core::internal::{Arg, BuiltInKernel, Launch, MadeFor, Operand, Variant};
use lapidary_core::{DType, Result};

const WGSL: &str = include_str!("../../shaders/softmax.wgsl");

/// Normalizes whole rows in one launch.
pub(super) static SOFTMAX: BuiltInKernel = BuiltInKernel {
    name: "softmax",
    operands: &[Operand::read("x"), Operand::write("y")],
    text,
    reference: reference!(reference::run),
};

/// Applies the maximum `s` and the sum `t` of every row.
static SOFTMAX_APPLY: BuiltInKernel = BuiltInKernel {
    name: "softmax_apply",
    operands: &[
        Operand::read("x"),
        Operand::read("s"),
        Operand::read("t"),
        Operand::write("y"),
    ],
    text,
    reference: reference!(reference::apply),
};

/// Bit of a variant's code: the logarithm.
const LOG: u64 = 1 << 8;

impl Tensor {
    /// `exp(x) / Σ exp(x)` along `axis`, without intermediate overflow. A row with NaN or +∞, or
    /// with nothing but −∞, becomes NaN.
    ///
    /// ```
    /// # fn demo(logits: &lapidary::Tensor) -> lapidary::Result<()> {
    /// let probabilities = logits.softmax(-1)?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::DType`](crate::Error::DType) unless it is `f32`, `f16` or `bf16`,
    /// [`Error::Axis`](crate::Error::Axis) if there is no such axis.
    #[track_caller]
    pub fn softmax(&self, axis: isize) -> Result<Tensor> {
        let _method = MadeFor::method("softmax");
        along(self, "softmax", axis, 0)
    }

    /// `x − log Σ exp(x)` along `axis`: the logarithm of [`softmax`](Tensor::softmax). It is
    /// accurate even where that is too small to be told from 0.
    ///
    /// # Errors
    ///
    /// Those of [`softmax`](Tensor::softmax).
    #[track_caller]
    pub fn log_softmax(&self, axis: isize) -> Result<Tensor> {
        let _method = MadeFor::method("log_softmax");
        along(self, "log_softmax", axis, LOG)
    }
}

#[track_caller]
fn along(x: &Tensor, operation: &'static str, along: isize, log: u64) -> Result<Tensor> {
    normalize::check_float(operation, x)?;
    if x.is_tracked() {
        return gradient::along_recorded(x, operation, along, log);
    }
    if let Some(x) = x.as_axis() {
        return Ok(self::along(&x, operation, along, log)?.into_number());
    }
    let at = axis(operation, along, x.layout.rank())?;
    let rows = Rows::new(&x.layout, Axes::from(at, at + 1), false);
    // The results are contiguous, so they have rows only if the axis is the last.
    let is_last = x.layout.shape[at + 1..].iter().all(|&dim| dim == 1);
    let rows = rows.filter(|_| is_last);
    let rows = rows.as_ref();
    let form = Form::choose(x, x.dtype, rows);
    along_as(x, at, rows, form, log)
}

/// Normalizes by a form that suits the rows.
#[track_caller]
pub(super) fn along_as(
    x: &Tensor,
    axis: usize,
    rows: Option<&Rows>,
    form: Form,
    log: u64,
) -> Result<Tensor> {
    let engine = &x.engine;
    let shape = &x.layout.shape;
    let result = Tensor::output(engine, &x.layout.shape, x.dtype)?;
    if x.layout.len() == 0 {
        return Ok(result);
    }
    if let (Some(rows), false) = (rows, form.applies()) {
        let params = rows.params();
        let code = normalize::code_of(form, rows) | log;
        let args = [x, &result].map(|operand| arg(operand, rows.are_vec4s()));
        let groups = form.groups(x, &params);
        engine.launch(Launch::new(&SOFTMAX, code, args, &params, groups))?;
        return Ok(result);
    }
    let copy;
    let (x, form) = match x.layout.is_contiguous() {
        true => (x, Form::applied_to(x)),
        false => {
            copy = x.contiguous()?;
            (&copy, Form::applied_to(&copy))
        }
    };
    let folded = Axes::from(axis, axis + 1);
    let s = fold(x, None, Op::MAX, folded, DType::F32)?;
    let t = fold(x, Some(&s), Op::SUM_EXP, folded, DType::F32)?;
    let step = shape[axis + 1..].iter().product();
    let params = normalize::apply_params(x, shape[axis], step);
    let args: [Arg; 4] = [
        arg(x, form == Form::ApplyVec4s),
        arg(&s, false),
        arg(&t, false),
        arg(&result, true),
    ];
    let code = normalize::apply_code(form, &params) | log;
    let groups = form.groups(x, &params);
    engine.launch(Launch::new(&SOFTMAX_APPLY, code, args, &params, groups))?;
    Ok(result)
}

/// The name of what a variant computes.
pub(super) fn name_of(code: u64) -> &'static str {
    match code & LOG {
        0 => "softmax",
        _ => "log_softmax",
    }
}

/// The WGSL of a variant.
fn text(variant: &Variant) -> Cow<'static, str> {
    let sections = ["stats", name_of(variant.code)];
    normalize::text(variant, "from_zero")
        .sections(WGSL, &sections)
        .done()
}

/// Whether the variant computes the logarithm.
#[cfg(any(test, feature = "sim"))]
pub(super) fn is_log(code: u64) -> bool {
    code & LOG != 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::check::valid;

    #[test]
    fn every_form_gives_a_valid_shader() {
        for dtype in [DType::F32, DType::F16, DType::Bf16] {
            for (form, row) in Form::ALL
                .into_iter()
                .flat_map(|form| [0, 1, 2].map(|r| (form, r)))
            {
                for log in [0, LOG] {
                    let code = 0x12 | log | (form as u64) << 12 | row << 16;
                    match form.applies() {
                        true => {
                            let dtypes = [dtype, DType::F32, DType::F32, dtype];
                            valid(&SOFTMAX_APPLY, code, &dtypes, 0b1001);
                        }
                        false => {
                            valid(&SOFTMAX, code, &[dtype, dtype], 0b11);
                            if dtype == DType::F32 {
                                valid(&SOFTMAX, code | normalize::RAGGED, &[dtype, dtype], 0);
                            }
                        }
                    }
                }
            }
        }
    }
}
