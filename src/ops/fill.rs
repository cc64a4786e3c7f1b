//! New tensors without inputs: one value, a range, an identity matrix.

#[cfg(any(test, feature = "sim"))]
pub(super) mod reference;

use std::borrow::Cow;

use super::elementwise::element::Element;
use super::elementwise::{self, Code};
use super::operation::{Takes, kernels, operations};
use super::scalar::Scalar;
use crate::tensor::Tensor;
use crate::tensor::called::Called;
use crate::tensor::layout::{Layout, checked};
use lapidary_core::internal::{BuiltInKernel, Engine, Handle, MadeFor, Operand, Variant};
use lapidary_core::{DType, Error, Result};

const WGSL: &str = include_str!("../../shaders/fill.wgsl");

operations! {
    /// How an element is computed.
    FillOp {
        Full full All Same,
        Arange arange Numbers Same,
        Eye eye All Same,
    }
}

kernels! {
    fill:
    /// `y = op(number of the element)`.
    FILL "fill" [Operand::write("y")];
    /// The same, but `y` is a part of its storage.
    FILL_INTO "fill_into" [Operand::update("y")];
}

/// The family as fusion sees it.
pub(super) static ELEMENT: Element = Element {
    fresh: &FILL,
    into: &FILL_INTO,
    names: &[],
    main: 0,
    file: WGSL,
    section: |variant| FillOp::from_code(Code(variant.code)).name(),
};

fn text(variant: &Variant) -> Cow<'static, str> {
    elementwise::text(variant, &ELEMENT)
}

#[track_caller]
fn make(
    engine: &Handle<Engine>,
    op: FillOp,
    shape: &[usize],
    dtype: DType,
    scalars: [u32; 2],
) -> Result<Tensor> {
    op.takes().check(op.name(), dtype)?;
    let call = ELEMENT.call(op as u8, &[], &scalars);
    call.output(engine, shape, op.gives().dtype(dtype))
}

/// 0 in a type.
pub(crate) fn zero_of(dtype: DType) -> Scalar {
    match dtype {
        DType::Bool => Scalar::Bool(false),
        _ => Scalar::Int(0),
    }
}

/// 1 in a type.
pub(crate) fn one_of(dtype: DType) -> Scalar {
    match dtype {
        DType::Bool => Scalar::Bool(true),
        _ => Scalar::Int(1),
    }
}

/// An uninitialized tensor. No command writes it, and it gets memory when a command first needs it.
#[track_caller]
pub(crate) fn empty(engine: &Handle<Engine>, shape: &[usize], dtype: DType) -> Result<Tensor> {
    match dtype {
        DType::Bool => full(engine, shape, false.into(), dtype),
        _ => Tensor::output(engine, shape, dtype),
    }
}

/// A tensor of one value.
#[track_caller]
pub(crate) fn full(
    engine: &Handle<Engine>,
    shape: &[usize],
    value: Scalar,
    dtype: DType,
) -> Result<Tensor> {
    let word = value.word("full", dtype)?;
    if word == 0 {
        return Tensor::zeroed(engine, shape, dtype);
    }
    let made = Tensor::output(engine, shape, dtype)?;
    // For every type, the storage consists of equal words, and is padded to whole ones.
    let words = Tensor {
        layout: Layout::contiguous(&[made.size_bytes().div_ceil(4) as usize]),
        dtype: match dtype.size_bytes() {
            4 => dtype,
            _ => DType::U32,
        },
        ..made.clone()
    };
    (ELEMENT.call(FillOp::Full as u8, &[], &[word, 0])).write_new(&words)?;
    Ok(made)
}

/// `start`, `start + step`, … before `end`, in one dimension. Integer types take integers. For
/// floats each of the first 2²⁴ elements is rounded once. (To add a product with the low bits of a
/// place apart does not help: compilers of shaders put both together again.)
#[track_caller]
pub(crate) fn arange(
    engine: &Handle<Engine>,
    start: Scalar,
    end: Scalar,
    step: Scalar,
    dtype: DType,
) -> Result<Tensor> {
    const OPERATION: &str = "arange";
    let steps = (end.as_f64() - start.as_f64()) / step.as_f64();
    if !steps.is_finite() {
        return Err(Error::Shape {
            operation: OPERATION,
            reason: format!("from {start:?} to {end:?} in steps of {step:?} has no length"),
        })
        .located();
    }
    // Elements of 16 bits are computed in f32, and rounded once.
    let computed = if dtype.is_float() { DType::F32 } else { dtype };
    // A step may be negative and wider than the elements of any type, because integers wrap.
    let step = match (step, dtype) {
        (Scalar::Int(step), DType::U32 | DType::U8 | DType::I8) if i32::try_from(step).is_ok() => {
            step as u32
        }
        _ => step.bits(OPERATION, computed)?,
    };
    // The conversion saturates at usize, and the shape is then refused.
    let len = steps.max(0.0).ceil() as usize;
    let start = start.bits(OPERATION, computed)?;
    make(engine, FillOp::Arange, &[len], dtype, [start, step])
}

/// 0, 1, … as `u32`.
#[track_caller]
pub(crate) fn counting(engine: &Handle<Engine>, count: usize) -> Result<Tensor> {
    make(engine, FillOp::Arange, &[count], DType::U32, [0, 1])
}

/// `steps` floats from `start` to `end`. Each half counts from its own end, so that both ends are
/// exact.
#[track_caller]
pub(crate) fn linspace(
    engine: &Handle<Engine>,
    start: f32,
    end: f32,
    steps: usize,
    dtype: DType,
) -> Result<Tensor> {
    const OPERATION: &str = "linspace";
    Takes::Floats.check(OPERATION, dtype)?;
    checked(&[steps], dtype)?;
    if steps < 2 {
        return full(engine, &[steps], start.into(), dtype);
    }
    let gaps = (steps - 1) as f32;
    let step = ((f64::from(end) - f64::from(start)) / f64::from(gaps)) as f32;
    let from_start = make(
        engine,
        FillOp::Arange,
        &[steps],
        DType::F32,
        [0.0_f32.to_bits(), 1.0_f32.to_bits()],
    )?;
    let from_end = (gaps - &from_start)?;
    let is_first_half = from_start.lt(0.5 * gaps)?;
    let ahead = ((&from_start * step)? + start)?;
    let back = (end - (from_end * step)?)?;
    is_first_half.where_(&ahead, &back)?.cast(dtype)
}

/// A matrix of these rows and columns, with ones on the diagonal.
#[track_caller]
pub(crate) fn eye(engine: &Handle<Engine>, shape: [usize; 2], dtype: DType) -> Result<Tensor> {
    make(engine, FillOp::Eye, &shape, dtype, [shape[1] as u32, 0])
}

impl Tensor {
    /// Writes one value through `self`.
    ///
    /// ```
    /// # fn demo(x: &lapidary::Tensor) -> lapidary::Result<()> {
    /// x.narrow(0, 0, 1)?.fill_(1.0)?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::DType`] if the tensor's type cannot hold the value, [`Error::Shape`] if several
    /// indices of `self` name one element.
    #[track_caller]
    pub fn fill_(&self, value: impl Into<Scalar>) -> Result<()> {
        const OPERATION: &str = "fill_";
        let _method = MadeFor::method(OPERATION);
        let value = value.into();
        let bits = value.bits(OPERATION, self.dtype)?;
        Takes::All.check(OPERATION, self.dtype)?;
        self.check_writable(OPERATION)?;
        if self.is_tracked() {
            return self.assign(OPERATION, &full(&self.engine, &[], value, self.dtype)?);
        }
        if !self.layout.is_vec4_aligned() {
            return self.copy_(&full(&self.engine, &[], value, self.dtype)?);
        }
        let full = FillOp::Full as u8;
        ELEMENT.call(full, &[], &[bits]).write_to(self)
    }
}
