//! Random tensors. The same seed gives the same numbers on every adapter, but for the last bits
//! of what is made of them.

use std::borrow::Cow;
use std::sync::Arc;

use super::elementwise::{self, Call, Code, Family};
use super::operation::operations;
use crate::tensor::Tensor;
use lapidary_core::internal::{Engine, Kernel, Operand, Variant};
use lapidary_core::{DType, Error, Result};

const WGSL: &str = include_str!("../../shaders/random.wgsl");

operations! {
    /// How the numbers are spread.
    RandomOp {
        Uniform "uniform" Floats Same,
        Normal "normal" Floats Same,
    }
}

/// `y = op(what is drawn for the vec4)`.
pub(super) static RANDOM: Kernel = Kernel {
    name: "random",
    operands: &[Operand::write("y")],
    text,
    reference: reference!(super::reference::random::run),
};

/// There is no form in place, nor in parts.
const FAMILY: Family = Family {
    fresh: &RANDOM,
    into: &RANDOM,
};

fn text(variant: &Variant) -> Cow<'static, str> {
    let op = RandomOp::of(Code(variant.code));
    let text = elementwise::text(variant, &[], 0, WGSL, op.name());
    Cow::Owned(format!("{text}{}", philox()))
}

/// The generator, which takes its key from the first two scalars.
pub(super) fn philox() -> &'static str {
    lapidary_core::internal::sections::section_for(WGSL, "philox", "")
}

#[track_caller]
fn draw(
    engine: &Arc<Engine>,
    op: RandomOp,
    shape: &[usize],
    dtype: DType,
    seed: u64,
    numbers: [f32; 3],
) -> Result<Tensor> {
    op.takes().check(op.name(), dtype)?;
    let [a, b, c] = numbers.map(f32::to_bits);
    let call = Call {
        family: FAMILY,
        op: op as u8,
        inputs: &[],
        scalars: &[seed as u32, (seed >> 32) as u32, a, b, c],
    };
    call.output(engine, shape, op.gives().dtype(dtype))
}

/// Evenly between `low` and `high`, which is not drawn itself (what is narrower than f32 may be
/// rounded up to it).
#[track_caller]
pub(crate) fn rand_uniform(
    engine: &Arc<Engine>,
    shape: &[usize],
    low: f32,
    high: f32,
    seed: u64,
    dtype: DType,
) -> Result<Tensor> {
    let width = high - low;
    if !(width.is_finite() && width > 0.0) {
        return Err(Error::Option {
            option: "high",
            reason: format!("no numbers can be drawn between {low:?} and {high:?}"),
        });
    }
    draw(
        engine,
        RandomOp::Uniform,
        shape,
        dtype,
        seed,
        [low, width, high],
    )
}

/// From the normal distribution with this mean and standard deviation.
#[track_caller]
pub(crate) fn rand_normal(
    engine: &Arc<Engine>,
    shape: &[usize],
    mean: f32,
    std: f32,
    seed: u64,
    dtype: DType,
) -> Result<Tensor> {
    if !(mean.is_finite() && std.is_finite() && std >= 0.0) {
        return Err(Error::Option {
            option: "std",
            reason: format!("no numbers can be drawn around {mean:?}, {std:?} wide"),
        });
    }
    draw(
        engine,
        RandomOp::Normal,
        shape,
        dtype,
        seed,
        [mean, std, 0.0],
    )
}
