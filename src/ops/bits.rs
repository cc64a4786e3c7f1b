//! Masks as bits: what backwards keep of bools.
//!
//! A bool tensor has a byte for each element, and its bits take an eighth of that. A kernel packs
//! them. An elementwise operation reads them (`bit` of `binary`), so fusion includes it in the
//! launch that needs the mask.

#[cfg(any(test, feature = "sim"))]
pub(super) mod reference;

use std::borrow::Cow;
use std::sync::Arc;

use bytemuck::{Pod, Zeroable};

use super::elementwise::{arg, groups, is_wide};
use super::fill;
use super::text::Text;
use crate::tensor::Tensor;
use crate::tensor::history::{Backward, LEAST_BYTES, MakeLesser, Save, grads};
use crate::tensor::layout::Dims;
use lapidary_core::internal::{BuiltInKernel, Launch, MaybeShared, Operand, Variant};
use lapidary_core::{DType, Result};

const WGSL: &str = include_str!("../../shaders/bits.wgsl");

/// `y` has a bit for each element of `x`.
static PACK: BuiltInKernel = BuiltInKernel {
    name: "pack",
    operands: &[Operand::read("x"), Operand::write("y")],
    text,
    reference: reference!(reference::run),
};

/// `struct Params` of `shaders/bits.wgsl`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub(super) struct Params {
    pub(super) elements: u32,
    pub(super) words: u32,
    pub(super) x_offset: u32,
}

/// Bits of a word.
const BITS: usize = u32::BITS as usize;

/// What a backward keeps of a mask: its bits, or the mask itself if it is small.
pub(super) struct KeptMask {
    kept: Tensor,
    shape: Dims,
}

/// How the mask is read in the backward.
#[derive(Clone)]
pub(super) struct MaskShape(Dims);

impl KeptMask {
    /// Of a mask that was made for this operation alone.
    #[track_caller]
    pub(super) fn new(mask: &Tensor) -> Result<KeptMask> {
        let is_large = mask.len() as u64 >= LEAST_BYTES;
        let bytes = (mask.len() as u64).div_ceil(8);
        let kept = match is_large && !is_wide(&mask.engine, [mask].into_iter(), bytes) {
            true => mask.bits()?,
            false => mask.clone(),
        };
        Ok(KeptMask {
            kept,
            shape: mask.layout.shape.clone(),
        })
    }

    /// Of a mask of the app, for a result of `len` elements. One that broadcasts is kept as it is:
    /// it is small beside the result, and other operations share it.
    #[track_caller]
    pub(super) fn of_app(mask: &Tensor, len: usize) -> Result<KeptMask> {
        match mask.len() == len {
            true => KeptMask::new(mask),
            false => Ok(KeptMask {
                kept: mask.clone(),
                shape: mask.layout.shape.clone(),
            }),
        }
    }

    pub(super) fn save(&self) -> Save<'_> {
        Save::Other(&self.kept)
    }

    pub(super) fn shape(&self) -> MaskShape {
        MaskShape(self.shape.clone())
    }
}

impl MaskShape {
    /// The mask, of what was kept.
    #[track_caller]
    pub(super) fn mask(&self, kept: &Tensor) -> Result<Tensor> {
        match kept.dtype {
            DType::Bool => Ok(kept.clone()),
            _ => kept.bools(&self.0),
        }
    }
}

impl Tensor {
    /// Attaches to this result of an operation on `x` that the gradient is 0 where `mask` of the
    /// result is true, and passes elsewhere. The result is kept, or the mask if nothing else needs
    /// the result.
    #[track_caller]
    pub(super) fn recorded_by_mask(
        self,
        operation: &'static str,
        x: &Tensor,
        mask: impl Fn(&Tensor) -> Result<Tensor> + Clone + MaybeShared + 'static,
    ) -> Tensor {
        let shape = MaskShape(self.layout.shape.clone());
        let of_result = mask.clone();
        let reduce: Arc<MakeLesser> =
            Arc::new(move |y: &Tensor| Ok(KeptMask::new(&mask(y)?)?.kept));
        let rule = move |b: &Backward| {
            let kept = &b.saved[0];
            let mask = match kept.dtype.is_float() {
                true => of_result(kept)?,
                false => shape.mask(kept)?,
            };
            grads![b; b.grad.masked_fill(&mask, 0.0)?]
        };
        self.recorded_as(operation, &[x], &[Save::Lesser(&reduce)], rule)
    }

    /// Its bools as bits: `u32` words, the first element in the lowest bit.
    #[track_caller]
    pub(super) fn bits(&self) -> Result<Tensor> {
        debug_assert_eq!(self.dtype, DType::Bool);
        let words = self.len().div_ceil(BITS);
        let y = Tensor::output(&self.engine, &[words], DType::U32)?;
        if words == 0 {
            return Ok(y);
        }
        let x = self.at_a_vec4()?;
        let params = Params {
            elements: self.len() as u32,
            words: words as u32,
            x_offset: x.layout.offset as u32,
        };
        let args = [arg(&x, true), arg(&y, true)];
        let groups = groups(y.engine.caps(), words.div_ceil(4) as u64);
        y.engine
            .launch(Launch::new(&PACK, 0, args, &params, groups))?;
        Ok(y)
    }

    /// The bools of such bits, in this shape.
    #[track_caller]
    pub(super) fn bools(&self, shape: &[usize]) -> Result<Tensor> {
        let len = shape.iter().product();
        let lanes = fill::counting(&self.engine, BITS)?;
        let words = self.untracked().unsqueeze(1)?;
        let bools = words.bit(&lanes)?;
        let flat = bools.reshape(&[self.len() * BITS])?;
        flat.narrow(0, 0, len)?.reshape(shape)
    }
}

fn text(_: &Variant) -> Cow<'static, str> {
    Text::new().sections(WGSL, &["pack"]).done()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::check::valid;

    #[test]
    fn the_shader_is_valid() {
        valid(&PACK, 0, &[DType::Bool, DType::U32], 0b11);
    }
}
