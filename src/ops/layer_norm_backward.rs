//! The gradient of the input of layer and RMS normalization, in one launch.

#[cfg(any(test, feature = "sim"))]
pub(super) mod reference;

use std::borrow::Cow;

use bytemuck::{Pod, Zeroable};

use super::elementwise::arg;
use super::rows;
use super::text::Text;
use crate::tensor::Tensor;
use lapidary_core::internal::{BuiltInKernel, Launch, Operand, Variant};
use lapidary_core::{DType, Result};

const WGSL: &str = include_str!("../../shaders/layer_norm_backward.wgsl");

/// `y` is the gradient of `x` by the gradient `g` of the result. `s` gets the mean of each row from
/// its first element, and `t` the reciprocal of its deviation. A missing weight `w` is replaced by
/// `x`.
static BACKWARD: BuiltInKernel = BuiltInKernel {
    name: "layer_norm_backward",
    operands: &[
        Operand::read("x"),
        Operand::read("g"),
        Operand::read("w"),
        Operand::write("y"),
        Operand::write("s"),
        Operand::write("t"),
    ],
    text,
    reference: reference!(reference::run),
};

/// Bits of a variant's code, whose lowest bits are a [`Form`].
const HAS_WEIGHT: u64 = 1 << 8;
const RMS: u64 = 1 << 9;

/// Most elements of a row: four loops over its vec4s have at most
/// [`MOST_TESTS`](super::long::MOST_TESTS) together.
const LONGEST_ROW: usize = 60 << 10;

/// With fewer rows a software adapter would leave cores idle.
const LEAST_ROWS_ON_CPU: usize = 64;

/// Who takes a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// One invocation.
    Thread,
    /// 64 invocations.
    Group,
    /// 256 invocations.
    LargeGroup,
}

impl Form {
    #[cfg(test)]
    pub(super) const ALL: [Form; 3] = [Form::Thread, Form::Group, Form::LargeGroup];

    fn choose(x: &Tensor, length: usize) -> Form {
        let caps = x.engine.caps();
        match rows::is_gpu(caps) {
            false => Form::Thread,
            true if length <= 1 << 10 || caps.max_invocations < 256 => Form::Group,
            true => Form::LargeGroup,
        }
    }
}

/// `struct Params` of the shader.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct Params {
    x: u32,
    g: u32,
    w: u32,
    rows: u32,
    length: u32,
    eps: f32,
}

/// A normalization in f32, of rows of `length` elements.
#[derive(Clone, Copy)]
pub(super) struct Problem<'a> {
    pub(super) x: &'a Tensor,
    pub(super) weight: Option<&'a Tensor>,
    pub(super) length: usize,
    /// Is the mean subtracted?
    pub(super) is_centred: bool,
    pub(super) eps: f32,
}

/// What the launch writes.
#[derive(Debug)]
pub(super) struct Slopes {
    /// The gradient of the input, in its shape.
    pub(super) by_input: Tensor,
    /// One number a row: its mean from its first element, and the reciprocal of its deviation.
    pub(super) mean: Tensor,
    pub(super) scale: Tensor,
}

impl Problem<'_> {
    /// The gradients, if one launch suits the operands. `g` is the gradient of the result.
    #[track_caller]
    pub(super) fn slopes(&self, g: &Tensor) -> Result<Option<Slopes>> {
        let (x, length) = (self.x, self.length);
        let rows = x.layout.len() / length.max(1);
        let is_short = length > 0 && length.is_multiple_of(4) && length <= LONGEST_ROW;
        let are_enough = rows >= LEAST_ROWS_ON_CPU || rows > 0 && rows::is_gpu(x.engine.caps());
        let operands = [Some(x), Some(g), self.weight];
        let mut operands = operands.into_iter().flatten();
        let fit =
            operands.all(|tensor| tensor.dtype == DType::F32 && tensor.layout.is_vec4_aligned());
        // That of a group's channels does not follow the rows, even if it is as long.
        let follows = self.weight.is_none_or(|weight| {
            weight.layout.len() == length && x.layout.shape.ends_with(&weight.layout.shape)
        });
        match is_short && are_enough && fit && follows {
            true => self.slopes_as(g, Form::choose(x, length)).map(Some),
            false => Ok(None),
        }
    }

    /// The gradients by one launch of this form.
    #[track_caller]
    pub(super) fn slopes_as(&self, g: &Tensor, form: Form) -> Result<Slopes> {
        let (x, engine) = (self.x, &self.x.engine);
        let rows = x.layout.len() / self.length;
        let slopes = Slopes {
            by_input: Tensor::output(engine, &x.layout.shape, DType::F32)?,
            mean: Tensor::output(engine, &[rows], DType::F32)?,
            scale: Tensor::output(engine, &[rows], DType::F32)?,
        };
        let start = |tensor: &Tensor| tensor.layout.offset as u32;
        let params = Params {
            x: start(x),
            g: start(g),
            w: self.weight.map_or(0, start),
            rows: rows as u32,
            length: self.length as u32,
            eps: self.eps,
        };
        let mut code = form as u64;
        code |= self.weight.map_or(0, |_| HAS_WEIGHT);
        code |= if self.is_centred { 0 } else { RMS };
        let args = [
            arg(x, true),
            arg(g, true),
            arg(self.weight.unwrap_or(x), true),
            arg(&slopes.by_input, true),
            arg(&slopes.mean, false),
            arg(&slopes.scale, false),
        ];
        let a_group = if form == Form::Thread { 32 } else { 1 };
        let groups = rows::groups(engine.caps(), rows as u64, a_group);
        engine.launch(Launch::new(&BACKWARD, code, args, &params, groups))?;
        Ok(slopes)
    }
}

/// The WGSL of a variant.
fn text(variant: &Variant) -> Cow<'static, str> {
    let mut text = Text::new().line(format_args!(
        "const CENTRED: bool = {};",
        variant.code & RMS == 0
    ));
    let form = match variant.code & 3 {
        0 => "thread",
        lanes => {
            let lanes = if lanes == 1 { 64 } else { 256 };
            text = text.line(format_args!("const LANES: u32 = {lanes}u;"));
            "group"
        }
    };
    let weight = match variant.code & HAS_WEIGHT {
        0 => "no_weight",
        _ => "weight",
    };
    text.sections(WGSL, &["params", form, "row", weight]).done()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::check::valid;

    #[test]
    fn every_form_gives_a_valid_shader() {
        for form in Form::ALL {
            for bits in [0, HAS_WEIGHT, RMS, RMS | HAS_WEIGHT] {
                valid(&BACKWARD, form as u64 | bits, &[DType::F32; 6], 0b001111);
            }
        }
    }
}
