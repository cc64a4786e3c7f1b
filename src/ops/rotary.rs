//! Rotary position embedding.

mod gradient;
#[cfg(any(test, feature = "sim"))]
pub(super) mod reference;

use std::borrow::Cow;

use bytemuck::{Pod, Zeroable};

use super::launch::by_vec4s;
use super::normalize::check_float;
use super::text::Text;
use crate::tensor::Tensor;
use crate::tensor::called::Called;
use lapidary_core::internal::{BuiltInKernel, MadeFor, Operand, Variant};
use lapidary_core::{Error, Result};

const OPERATION: &str = "rotary";
const WGSL: &str = include_str!("../../shaders/rotary.wgsl");

/// `y` = `x` with its pairs rotated.
static ROTARY: BuiltInKernel = BuiltInKernel {
    name: "rotary",
    operands: &[
        Operand::read("x"),
        Operand::read("c"),
        Operand::read("s"),
        Operand::write("y"),
    ],
    text,
    reference: reference!(reference::run),
};

/// `struct Params` of `shaders/rotary.wgsl`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub(super) struct Params {
    pub(super) elements: u32,
    pub(super) width: u32,
    pub(super) positions: u32,
    pub(super) pairs: u32,
    pub(super) x_offset: u32,
    pub(super) c_offset: u32,
    pub(super) s_offset: u32,
}

/// Bit of a variant's code: the elements of a pair are neighbours.
const NEIGHBOURS: u64 = 1;

impl Tensor {
    /// Rotary position embedding (RoPE): rotates pairs of elements of the last axis. `cos` and
    /// `sin` hold the cosines and sines of the angles, both of shape `[positions, pairs]`. The
    /// positions are the axis before the last: `[.., positions, width]`.
    ///
    /// Pair `j` consists of the elements `j` and `j + pairs`, as in LLaMA and GPT-NeoX. If
    /// `interleaved`, these are `2j` and `2j + 1`, as in GPT-J. Elements after the pairs of a row
    /// stay unchanged. With `-sin` it is its own gradient. It takes floats; `cos` and `sin` may
    /// have another float type.
    ///
    /// ```
    /// # use lapidary::Tensor;
    /// # fn demo(queries: &Tensor, angles: &Tensor) -> lapidary::Result<()> {
    /// let turned = queries.rotary(&angles.cos()?, &angles.sin()?, false)?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::DType`] for integers and bools, [`Error::Shape`] unless the shapes match,
    /// [`Error::Foreign`] for tensors of several `Gpu`s, [`Error::NeverFits`] if the operands are
    /// too large.
    #[track_caller]
    pub fn rotary(&self, cos: &Tensor, sin: &Tensor, interleaved: bool) -> Result<Tensor> {
        let _method = MadeFor::method("rotary");
        check_float(OPERATION, self)?;
        for angle in [cos, sin] {
            self.same_engine(OPERATION, angle)?;
            check_float(OPERATION, angle)?;
        }
        let shapes = (&self.layout.shape[..], &cos.layout.shape[..]);
        let (([.., positions, width], &[lines, pairs]), true) =
            (shapes, cos.layout.shape == sin.layout.shape)
        else {
            return Err(self.refuse_angles(cos, sin)).located();
        };
        if lines != *positions || pairs > width / 2 {
            return Err(self.refuse_angles(cos, sin)).located();
        }
        if [self, cos, sin].into_iter().any(Tensor::is_tracked) {
            return self.rotary_recorded(cos, sin, interleaved);
        }
        let (x, cos, sin) = (self.contiguous()?, cos.contiguous()?, sin.contiguous()?);
        let result = Tensor::output(&self.engine, &self.layout.shape, self.dtype)?;
        let elements = result.layout.len();
        if elements == 0 {
            return Ok(result);
        }
        let params = Params {
            elements: elements as u32,
            width: *width as u32,
            positions: *positions as u32,
            pairs: pairs as u32,
            x_offset: x.layout.offset as u32,
            c_offset: cos.layout.offset as u32,
            s_offset: sin.layout.offset as u32,
        };
        let code = if interleaved { NEIGHBOURS } else { 0 };
        by_vec4s(&ROTARY, code, [&x, &cos, &sin], &result, &params)?;
        Ok(result)
    }

    fn refuse_angles(&self, cos: &Tensor, sin: &Tensor) -> Error {
        Error::Shape {
            operation: OPERATION,
            reason: format!(
                "cosines {:?} and sines {:?} must have the positions and at most half the width \
                 of {:?}",
                cos.shape(),
                sin.shape(),
                self.shape()
            ),
        }
    }
}

/// The WGSL of a variant.
fn text(variant: &Variant) -> Cow<'static, str> {
    let pairs = match are_neighbours(variant.code) {
        true => "neighbours",
        false => "halves",
    };
    Text::new().sections(WGSL, &["params", pairs]).done()
}

/// Whether the elements of a pair are neighbours.
pub(super) fn are_neighbours(code: u64) -> bool {
    code & NEIGHBOURS != 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::check::valid;
    use lapidary_core::DType;

    #[test]
    fn every_type_gives_a_valid_shader() {
        for x in [DType::F32, DType::F16, DType::Bf16] {
            for angle in [DType::F32, DType::F16] {
                for code in [0, NEIGHBOURS] {
                    valid(&ROTARY, code, &[x, angle, angle, x], 0b1000);
                }
            }
        }
    }
}
