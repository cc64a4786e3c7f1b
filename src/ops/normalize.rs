//! What softmax and layer normalization share: two numbers a row, then every element by them.
//!
//! Rows that are whole quads take one launch, by one invocation or one workgroup a row. All others
//! (odd lengths, inner axes, few and very long rows) take two reductions and a last launch that
//! applies the two numbers.

use crate::dtype::DType;
use crate::engine::Variant;
use crate::error::{Error, Result};
use crate::tensor::Tensor;

use super::reduce::{Op, fold};
use super::rows::{self, Axes, RowParams, Rows};
use super::text::push_sections;

/// How the elements are normalized.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// One invocation a row.
    Thread,
    /// 64 invocations a row.
    Group,
    /// 256 invocations a row.
    LargeGroup,
    /// After two reductions.
    Apply,
    /// The same, where the view starts at a quad.
    ApplyQuads,
}

impl Form {
    pub(super) const ALL: [Form; 5] = [
        Form::Thread,
        Form::Group,
        Form::LargeGroup,
        Form::Apply,
        Form::ApplyQuads,
    ];

    pub(super) fn from_code(code: u64) -> Form {
        Form::ALL[(code >> 12 & 7) as usize]
    }

    /// Do the reductions come first?
    pub(super) fn applies(self) -> bool {
        matches!(self, Form::Apply | Form::ApplyQuads)
    }

    /// The best for this adapter.
    pub(super) fn choose(x: &Tensor, rows: Option<&Rows>) -> Form {
        let gpu = rows::is_gpu(x.engine.caps());
        match rows {
            Some(rows) if rows.are_quads() && rows.length <= 64 << 10 => {
                let small = u64::from(rows.rows) * u64::from(rows.length) <= 32 << 10;
                match gpu {
                    true if rows.length <= 1 << 10 => Form::Group,
                    true => Form::LargeGroup,
                    false if rows.rows >= 64 || small => Form::Thread,
                    false => Form::applied_to(x),
                }
            }
            _ => Form::applied_to(x),
        }
    }

    /// The form that takes any contiguous tensor.
    pub(super) fn applied_to(x: &Tensor) -> Form {
        match x.layout.offset % 4 {
            0 => Form::ApplyQuads,
            _ => Form::Apply,
        }
    }

    pub(super) fn groups(self, x: &Tensor, params: &RowParams) -> [u32; 3] {
        let caps = x.engine.caps();
        match self {
            Form::Thread => rows::groups(caps, params.rows.into(), 32),
            Form::Group | Form::LargeGroup => rows::groups(caps, params.rows.into(), 1),
            Form::Apply | Form::ApplyQuads => {
                let elements = u64::from(params.rows) * u64::from(params.length);
                rows::groups(caps, elements.div_ceil(4), 64)
            }
        }
    }
}

/// The two numbers of every row, for the forms that apply them: `first` of the row, then `second`
/// of the row around it.
#[track_caller]
pub(super) fn stats(x: &Tensor, folded: Axes, first: Op, second: Op) -> Result<[Tensor; 2]> {
    let s = fold(x, None, first, folded, DType::F32)?;
    let t = fold(x, Some(&s), second, folded, DType::F32)?;
    Ok([s, t])
}

/// The parameters for applying: rows of `length` elements, `step` apart, of a contiguous tensor.
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

/// The code of an application: how a quad of the result finds its rows.
pub(super) fn apply_code(form: Form, params: &RowParams) -> u64 {
    let row = match (params.chunk, params.length) {
        (1, 4..) => 1,
        (step, _) if step % 4 == 0 => 2,
        _ => 0,
    };
    0x11 | (form as u64) << 12 | row << 16
}

/// Refuses what is not a float.
pub(super) fn check_float(operation: &'static str, x: &Tensor) -> Result<()> {
    match x.dtype.is_float() {
        true => Ok(()),
        false => Err(Error::DType {
            operation,
            expected: "f32, f16 or bf16".into(),
            got: x.dtype,
            hint: "Cast it to f32 first",
        }),
    }
}

/// The parts of the WGSL that do not depend on what is computed.
pub(super) fn text(variant: &Variant) -> String {
    let form = Form::from_code(variant.code);
    let row = match variant.code >> 16 & 3 {
        0 => "row_any",
        1 => "row_last",
        _ => "row_quads",
    };
    let mut out = String::with_capacity(8 << 10);
    // Applying does not walk rows, but the parameters come with the function that does.
    rows::rank_constants(&mut out, variant.code);
    out.push_str("alias T = f32;\n");
    let names: &[&str] = match form {
        Form::Thread => &["normalize_thread"],
        Form::Group => {
            out.push_str("const LANES: u32 = 64u;\n");
            &["normalize_group"]
        }
        Form::LargeGroup => {
            out.push_str("const LANES: u32 = 256u;\n");
            &["normalize_group"]
        }
        Form::Apply => &["load_apart", "normalize_apply", row],
        Form::ApplyQuads => &["load_aligned", "normalize_apply", row],
    };
    push_sections(
        &mut out,
        rows::WGSL,
        &[&["params", "normalize_sum"], names].concat(),
    );
    out
}
