//! The shared parts of softmax and layer normalization: two numbers for each row, then every
//! element.
//!
//! Rows without gaps take one launch, with one invocation or one workgroup for each row. They must
//! consist of whole vec4s, or have results that are words. All others (inner axes, ragged rows of
//! 16-bit floats, few and very long rows) take two reductions. A last launch applies the two
//! numbers.

#[cfg(any(test, feature = "sim"))]
pub(super) mod reference;

use crate::tensor::Tensor;
use crate::tensor::called::Called;
use lapidary_core::internal::Variant;
use lapidary_core::{DType, Error, Result};

use super::rows::{self, RowParams, Rows};
use super::text::Text;

/// Most elements of a row for one invocation.
const LONGEST_ROW: u32 = 64 << 10;

/// Bit of a variant's code: rows do not consist of whole vec4s.
pub(super) const RAGGED: u64 = 1 << 18;

/// How the elements are normalized.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// One invocation a row.
    Thread,
    /// 64 invocations a row.
    Group,
    /// 256 invocations a row.
    LargeGroup,
    /// Two reductions come first.
    Apply,
    /// The same for a view that starts at a vec4.
    ApplyVec4s,
}

impl Form {
    pub(super) const ALL: [Form; 5] = [
        Form::Thread,
        Form::Group,
        Form::LargeGroup,
        Form::Apply,
        Form::ApplyVec4s,
    ];

    pub(super) fn from_code(code: u64) -> Form {
        Form::ALL[(code >> 12 & 7) as usize]
    }

    /// Whether two reductions come first.
    pub(super) fn applies(self) -> bool {
        matches!(self, Form::Apply | Form::ApplyVec4s)
    }

    /// The best form for this adapter and results of type `y`. `rows` is `None` if a single launch
    /// cannot find them.
    pub(super) fn choose(x: &Tensor, y: DType, rows: Option<&Rows>) -> Form {
        let Some(rows) = rows.filter(|rows| takes(rows, y)) else {
            return Form::applied_to(x);
        };
        let small = u64::from(rows.rows) * u64::from(rows.length) <= 32 << 10;
        let ragged = !rows.are_vec4s();
        match rows::is_gpu(x.engine.caps()) {
            // Most lanes would be idle.
            true if ragged && rows.length < 64 => Form::applied_to(x),
            true if rows.length <= 1 << 10 => Form::Group,
            true => Form::LargeGroup,
            // The last launch loads and stores vec4s even for ragged rows.
            false if small || rows.rows >= 64 && !ragged => Form::Thread,
            false => Form::applied_to(x),
        }
    }

    /// The form for any contiguous tensor.
    pub(super) fn applied_to(x: &Tensor) -> Form {
        match x.layout.offset % 4 {
            0 => Form::ApplyVec4s,
            _ => Form::Apply,
        }
    }

    pub(super) fn groups(self, x: &Tensor, params: &RowParams) -> [u32; 3] {
        let caps = x.engine.caps();
        match self {
            Form::Thread => rows::groups(caps, params.rows.into(), 32),
            Form::Group | Form::LargeGroup => rows::groups(caps, params.rows.into(), 1),
            Form::Apply | Form::ApplyVec4s => {
                let elements = u64::from(params.rows) * u64::from(params.length);
                rows::groups(caps, elements.div_ceil(4), 64)
            }
        }
    }
}

/// Whether one launch can take these rows, for results of type `y`.
fn takes(rows: &Rows, y: DType) -> bool {
    let is_ragged = rows.lie_whole() && y.size_bytes() == 4;
    (rows.are_vec4s() || is_ragged) && rows.length <= LONGEST_ROW
}

/// The code of a single launch, by which it finds its rows.
pub(super) fn code_of(form: Form, rows: &Rows) -> u64 {
    let ragged = if rows.are_vec4s() { 0 } else { RAGGED };
    rows::rank_bits(rows) | (form as u64) << 12 | ragged
}

/// Whether a variant reads and writes vec4s. Only then can it be fused with expressions.
pub(super) fn is_by_vec4s(code: u64) -> bool {
    code & RAGGED == 0
}

/// The parameters of the last launch: rows of `length` elements with the stride `step`, of a
/// contiguous tensor.
pub(super) fn apply_params(x: &Tensor, length: usize, step: usize) -> RowParams {
    let elements = x.layout.len();
    RowParams {
        offset: x.layout.offset as u32,
        rows: (elements / length.max(1)) as u32,
        length: length as u32,
        chunk: step as u32,
        parts: 1,
        ..bytemuck::Zeroable::zeroed()
    }
}

/// The code of the last launch, by which a vec4 of the result finds its rows.
pub(super) fn apply_code(form: Form, params: &RowParams) -> u64 {
    let row = match (params.chunk, params.length) {
        (1, 4..) => 1,
        (step, _) if step % 4 == 0 => 2,
        _ => 0,
    };
    0x11 | (form as u64) << 12 | row << 16
}

/// Returns an error unless `x` is a float.
#[track_caller]
pub(super) fn check_float(operation: &'static str, x: &Tensor) -> Result<()> {
    match x.dtype.is_float() {
        true => Ok(()),
        false => Err(Error::DType {
            operation,
            expected: "f32, f16 or bf16".into(),
            got: x.dtype,
            hint: "Cast it to f32 first",
            at: String::new(),
        })
        .located(),
    }
}

/// The parts of the WGSL that do not depend on the operation. `origin` is the section that says
/// what a row is measured from.
pub(super) fn text(variant: &Variant, origin: &'static str) -> Text {
    let form = Form::from_code(variant.code);
    let row = match variant.code >> 16 & 3 {
        0 => "row_any",
        1 => "row_last",
        _ => "row_vec4s",
    };
    let parts = match is_by_vec4s(variant.code) {
        true => "vec4s",
        false => "ragged",
    };
    let (lanes, names): (_, &[&str]) = match form {
        Form::Thread => (None, &[parts, "normalize_thread"]),
        Form::Group => (Some(64), &[parts, "normalize_group"]),
        Form::LargeGroup => (Some(256), &[parts, "normalize_group"]),
        Form::Apply => (None, &["load_apart", "normalize_apply", row]),
        Form::ApplyVec4s => (None, &["load_aligned", "normalize_apply", row]),
    };
    // The last launch does not need the rank constants, but the section of the parameters does.
    let mut text = rows::rank_constants(variant.code).line("alias T = f32;");
    if let Some(lanes) = lanes {
        text = text.line(format_args!("const LANES: u32 = {lanes}u;"));
    }
    let text = text.sections(rows::WGSL, &["params", "normalize_sum", origin]);
    text.sections(rows::WGSL, names)
}
