//! The gradient of the cross-entropy of logits, in one launch.

use std::borrow::Cow;

use bytemuck::{Pod, Zeroable};

use super::WGSL;
use crate::ops::elementwise::{arg, groups};
use crate::ops::rows;
use crate::ops::text::Text;
use crate::tensor::Tensor;
use lapidary_core::Result;
#[cfg(any(test, feature = "sim"))]
use lapidary_core::internal::ReferenceCall;
use lapidary_core::internal::{BuiltInKernel, Launch, Operand, Variant};

/// `y` is the gradient of logits `x`. It is the softmax of a row minus 1 at its target `i`, times
/// the gradient `g` of the row's loss. `m` holds the logarithm of the sum of a row's exponentials.
static SLOPES: BuiltInKernel = BuiltInKernel {
    name: "loss_of_logits_backward",
    operands: &[
        Operand::read("x"),
        Operand::read("i"),
        Operand::read("m"),
        Operand::read("g"),
        Operand::write("y"),
    ],
    text,
    reference: reference!(reference),
};

/// Bits of a variant's code: `x` starts at a vec4, and a vec4 lies in one row.
const ALIGNED: u64 = 1;
const WHOLE: u64 = 2;

/// `struct Params` of the shader.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct Params {
    /// The start of `x`.
    offset: u32,
    /// Elements of `x`.
    elements: u32,
    /// Classes.
    length: u32,
    /// The stride of the classes.
    step: u32,
    /// The start of the targets.
    targets: u32,
    /// The start of the gradients, and their stride.
    grads: u32,
    grads_step: u32,
    /// Whether targets equal to `ignored` have no gradient.
    ignores: u32,
    ignored: u32,
}

/// What a loss was computed from.
pub(super) struct Loss<'a> {
    pub(super) x: &'a Tensor,
    /// The axis of the classes.
    pub(super) axis: usize,
    pub(super) targets: &'a Tensor,
    /// The ignored target as a word.
    pub(super) ignore: Option<u32>,
    /// The logarithms of the sums of exponentials, one for each target, as the loss made them.
    pub(super) totals: &'a Tensor,
}

impl Loss<'_> {
    /// The gradient of `x`, in its shape and type. `grad` is that of each loss, in f32.
    #[track_caller]
    pub(super) fn slopes(&self, grad: &Tensor) -> Result<Tensor> {
        let (x, targets) = (self.x.contiguous()?, self.targets.contiguous()?);
        // The gradient of a mean is one number for all rows.
        let is_one = grad.layout.strides.iter().all(|&stride| stride == 0);
        let grad = if is_one {
            grad.clone()
        } else {
            grad.contiguous()?
        };
        let shape = &x.layout.shape;
        let y = Tensor::output(&x.engine, shape, x.dtype)?;
        let (length, elements) = (shape[self.axis], x.layout.len());
        let step: usize = shape[self.axis + 1..].iter().product();
        let params = Params {
            offset: x.layout.offset as u32,
            elements: elements as u32,
            length: length as u32,
            step: step as u32,
            targets: targets.layout.offset as u32,
            grads: grad.layout.offset as u32,
            grads_step: u32::from(!is_one),
            ignores: u32::from(self.ignore.is_some()),
            ignored: self.ignore.unwrap_or(0),
        };
        let is_aligned = x.layout.offset.is_multiple_of(4);
        let is_whole = step == 1 && length.is_multiple_of(4);
        let bit = |is_set, bit| if is_set { bit } else { 0 };
        let code = bit(is_aligned, ALIGNED) | bit(is_whole, WHOLE);
        let args = [
            arg(&x, is_aligned),
            arg(&targets, false),
            arg(self.totals, false),
            arg(&grad, false),
            arg(&y, true),
        ];
        let groups = groups(x.engine.caps(), (elements as u64).div_ceil(4));
        (x.engine).launch(Launch::new(&SLOPES, code, args, &params, groups))?;
        Ok(y)
    }
}

/// The WGSL of a variant.
fn text(variant: &Variant) -> Cow<'static, str> {
    let load = match variant.code & ALIGNED {
        0 => "load_apart",
        _ => "load_aligned",
    };
    let row = match variant.code & WHOLE {
        0 => "slopes_of_rows",
        _ => "slopes_of_row",
    };
    Text::new()
        .line("alias T = f32;")
        .sections(rows::WGSL, &[load])
        .sections(WGSL, &["slopes", row])
        .done()
}

#[cfg(any(test, feature = "sim"))]
fn reference(call: &mut ReferenceCall) {
    let p: Params = call.params();
    for e in 0..p.elements {
        let row = e / (p.step * p.length) * p.step + e % p.step;
        let class = call.int(1, (p.targets + row) as usize);
        let g = match class {
            class if p.ignores == 1 && class == p.ignored => 0.0,
            class if class >= p.length => f32::NAN,
            _ => call.f32(3, (p.grads + row * p.grads_step) as usize),
        };
        let probability = (call.f32(0, (p.offset + e) as usize) - call.f32(2, row as usize)).exp();
        let is_target = f32::from(class == e / p.step % p.length);
        call.put_f32(4, e as usize, (probability - is_target) * g);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::check::valid;
    use lapidary_core::DType;

    #[test]
    fn every_type_and_form_gives_a_valid_shader() {
        for x in [DType::F32, DType::F16, DType::Bf16] {
            for index in [DType::U32, DType::I32] {
                for code in 0..4 {
                    let dtypes = [x, index, DType::F32, DType::F32, x];
                    let vec4s = if code & ALIGNED == 0 {
                        0b10000
                    } else {
                        0b10001
                    };
                    valid(&SLOPES, code, &dtypes, vec4s);
                }
            }
        }
    }
}
