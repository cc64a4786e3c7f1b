//! Writes or folds elements in place. Only the elements that indices name are read and written, and
//! others in the same word.

#[cfg(any(test, feature = "sim"))]
pub(super) mod reference;

use std::borrow::Cow;

use super::elementwise::arg;
use super::rows;
use super::scatter::{self, How, LONGEST_RUN_ON_CPU, Params, Settle};
use super::sort::sorted;
use crate::tensor::Tensor;
use lapidary_core::internal::{BuiltInKernel, Launch, Operand, Variant};
use lapidary_core::{DType, Result, adapter::AdapterKind};

const WGSL: &str = include_str!("../../shaders/scatter_into.wgsl");

/// `y` with elements of `s` at the keys `k`, whose places are `o`.
static SCATTER_INTO: BuiltInKernel = BuiltInKernel {
    name: "scatter_indexed_into",
    operands: &[
        Operand::read("k"),
        Operand::read("o"),
        Operand::read("s"),
        Operand::update("y"),
    ],
    text,
    reference: reference!(reference::run),
};

/// Bit of a variant's code: elements share words, so an invocation takes four.
const VEC4S: u64 = 1 << 9;

/// The operands of a write or fold at indices along an axis, in place.
#[derive(Clone, Copy, Debug)]
pub(super) struct InPlace<'a> {
    pub(super) x: &'a Tensor,
    pub(super) at: usize,
    /// As large as `src`; or one dimension, the same for every line.
    pub(super) indices: &'a Tensor,
    pub(super) src: &'a Tensor,
    pub(super) settle: Settle,
}

impl InPlace<'_> {
    /// Whether only one invocation writes each word, no operand shares the memory, and folded
    /// values are rounded once.
    pub(super) fn suits(&self) -> bool {
        let InPlace { x, src, .. } = *self;
        let is_apart = |other: &Tensor| !x.shares_storage_with(other);
        let operands = [x, self.indices, src];
        let are_words = x.dtype.size_bytes() == 4;
        let are_vec4s = self.after().is_multiple_of(4)
            && x.layout.offset.is_multiple_of(4)
            && (self.is_shared() || self.count() == 1);
        let at_once = self.settle.how == How::Write || !self.is_long();
        let in_parts = are_words && self.settle == Settle::ADD;
        x.layout.is_contiguous()
            && is_apart(self.indices)
            && is_apart(src)
            && operands.iter().all(|operand| !operand.is_empty())
            && (are_words || are_vec4s)
            && (at_once || in_parts)
    }

    /// Whether all lines have the same indices.
    fn is_shared(&self) -> bool {
        self.indices.layout.rank() != self.x.layout.rank() || self.x.layout.rank() == 1
    }

    /// The axis of the indices themselves.
    fn along(&self) -> usize {
        if self.is_shared() { 0 } else { self.at }
    }

    fn count(&self) -> usize {
        self.indices.layout.shape[self.along()]
    }

    fn after(&self) -> usize {
        self.x.layout.shape[self.at + 1..].iter().product()
    }

    /// Whether there are more indices than an invocation may fold.
    fn is_long(&self) -> bool {
        self.x.engine.caps().kind == AdapterKind::Cpu && self.count() > LONGEST_RUN_ON_CPU
    }

    /// Writes or folds. The operands must pass [`suits`](Self::suits).
    #[track_caller]
    pub(super) fn run(&self) -> Result<()> {
        if self.settle.how != How::Write && self.is_long() {
            for start in (0..self.count()).step_by(LONGEST_RUN_ON_CPU) {
                let len = LONGEST_RUN_ON_CPU.min(self.count() - start);
                let indices = &self.indices.narrow(self.along() as isize, start, len)?;
                let src = &self.src.narrow(self.at as isize, start, len)?;
                InPlace {
                    indices,
                    src,
                    ..*self
                }
                .at_once()?;
            }
            return Ok(());
        }
        self.at_once()
    }

    #[track_caller]
    fn at_once(&self) -> Result<()> {
        let (x, engine) = (self.x, &self.x.engine);
        let (keys, order) = sorted(self.indices, self.along(), false, self.count())?;
        let src = self.src.contiguous()?;
        let elements = src.layout.len();
        let params = Params {
            elements: elements as u32,
            size: x.layout.shape[self.at] as u32,
            after: self.after() as u32,
            indices: self.count() as u32,
            x_offset: x.layout.offset as u32,
            s_offset: src.layout.offset as u32,
            shared_indices: u32::from(self.is_shared()),
            sign: u32::from(self.indices.dtype == DType::I32) << 31,
        };
        let (vec4s, each) = match x.dtype.size_bytes() {
            4 => (0, 1),
            _ => (VEC4S, 4),
        };
        let [k, o, s] = [&keys, &order, &src].map(|operand| arg(operand, false));
        let args = [k, o, s, arg(x, vec4s != 0)];
        let groups = rows::groups(engine.caps(), elements as u64 / each, 64);
        let code = self.settle.code() | vec4s;
        engine.launch(Launch::new(&SCATTER_INTO, code, args, &params, groups))
    }
}

/// The WGSL of a variant.
fn text(variant: &Variant) -> Cow<'static, str> {
    let settle = Settle::from_code(variant.code);
    let chosen = match settle.how {
        How::Write => "write",
        _ => "fold",
    };
    let main = match variant.code & VEC4S {
        0 => "words",
        _ => "vec4s",
    };
    let text = scatter::fold_of(settle, variant.dtypes[3]);
    text.sections(WGSL, &["place", main, chosen]).done()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::check::valid;

    #[test]
    fn every_type_gives_a_valid_shader() {
        for x in DType::ALL {
            let vec4s = if x.size_bytes() == 4 { 0 } else { VEC4S };
            let hows = [How::Sum, How::Product, How::Max, How::Min, How::Mean];
            let folds = hows.map(|how| [false, true].map(|is_alone| Settle { how, is_alone }));
            for settle in folds.as_flattened().iter().chain(&[Settle::WRITE]) {
                let dtypes = [DType::U32, DType::U32, x, x];
                let by_vec4s = if vec4s == 0 { 0 } else { 0b1000 };
                valid(&SCATTER_INTO, settle.code() | vec4s, &dtypes, by_vec4s);
            }
        }
    }
}
