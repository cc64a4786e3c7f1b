//! Random tensors. The same seed draws the same numbers on every adapter. The results may differ in
//! the last bits.

#[cfg(any(test, feature = "sim"))]
pub(super) mod reference;

use std::borrow::Cow;

use super::elementwise::element::Element;
use super::elementwise::{self, Code};
use super::operation::{kernels, operations};
use crate::tensor::Tensor;
use lapidary_core::internal::{BuiltInKernel, Engine, Handle, Operand, Variant};
use lapidary_core::{DType, Error, Result};

const WGSL: &str = include_str!("../../shaders/random.wgsl");

operations! {
    /// The distribution of the numbers.
    RandomOp {
        Uniform uniform Floats Same,
        Normal normal Floats Same,
    }
}

kernels! {
    random:
    /// `y = op(random bits of the vec4)`.
    RANDOM "random" [Operand::write("y")];
}

/// As for masks, there is no form in place or in parts.
static ELEMENT: Element = Element {
    fresh: &RANDOM,
    into: &RANDOM,
    names: &[],
    main: 0,
    file: WGSL,
    section: |variant| RandomOp::from_code(Code(variant.code)).name(),
};

fn text(variant: &Variant) -> Cow<'static, str> {
    let text = elementwise::text(variant, &ELEMENT);
    Cow::Owned(format!("{text}{}", philox()))
}

/// The generator. Its key is the first two scalars.
pub(super) fn philox() -> &'static str {
    lapidary_core::internal::sections::section_for(WGSL, "philox", "")
}

#[track_caller]
fn draw(
    engine: &Handle<Engine>,
    op: RandomOp,
    shape: &[usize],
    dtype: DType,
    seed: u64,
    numbers: [f32; 3],
) -> Result<Tensor> {
    op.takes().check(op.name(), dtype)?;
    let [a, b, c] = numbers.map(f32::to_bits);
    let scalars = [seed as u32, (seed >> 32) as u32, a, b, c];
    let call = ELEMENT.call(op as u8, &[], &scalars);
    call.output(engine, shape, op.gives().dtype(dtype))
}

/// Uniform between `low` and `high`, without `high`. Rounding to a type narrower than f32 may give
/// it.
#[track_caller]
pub(crate) fn rand_uniform(
    engine: &Handle<Engine>,
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

/// Normally distributed with this mean and standard deviation.
#[track_caller]
pub(crate) fn rand_normal(
    engine: &Handle<Engine>,
    shape: &[usize],
    mean: f32,
    std: f32,
    seed: u64,
    dtype: DType,
) -> Result<Tensor> {
    if !(mean.is_finite() && std.is_finite() && std >= 0.0) {
        return Err(Error::Option {
            option: "std",
            reason: format!("no numbers can be drawn with mean {mean:?} and deviation {std:?}"),
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
