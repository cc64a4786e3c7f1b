//! Operations on three elements, from three tensors.

mod gradient;
#[cfg(any(test, feature = "sim"))]
pub(super) mod reference;

use std::borrow::Cow;

use super::binary::BinaryOp;
use super::elementwise::element::Element;
use super::elementwise::{self, Code, Input};
use super::operation::{kernels, operations, same_dtype};
use super::scalar::{Scalar, TensorOrNumber};
use crate::tensor::Tensor;
use crate::tensor::called::Called;
use crate::tensor::layout::broadcast_shapes;
use lapidary_core::internal::{BuiltInKernel, MadeFor, Operand, Variant};
use lapidary_core::{DType, Result};

const WGSL: &str = include_str!("../../shaders/ternary.wgsl");

operations! {
    /// A ternary operation.
    TernaryOp {
        Lerp lerp Floats Same,
        Addcmul addcmul Numbers Same,
        Addcdiv addcdiv Floats Same,
    }
}

kernels! {
    ternary:
    /// `y = op(a, b, c)`.
    TERNARY "ternary"
        [Operand::read("a"), Operand::read("b"), Operand::read("c"), Operand::write("y")];
    /// The same, but `y` is a part of its storage.
    TERNARY_INTO "ternary_into"
        [Operand::read("a"), Operand::read("b"), Operand::read("c"), Operand::update("y")];
}

pub(super) static ELEMENT: Element = Element {
    fresh: &TERNARY,
    into: &TERNARY_INTO,
    names: &["a", "b", "c"],
    main: 0,
    file: WGSL,
    section,
};

fn section(variant: &Variant) -> &'static str {
    TernaryOp::from_code(Code(variant.code)).name()
}

fn text(variant: &Variant) -> Cow<'static, str> {
    elementwise::text(variant, &ELEMENT)
}

/// Operations on the elements of three tensors of one type, whose shapes broadcast.
///
/// ```
/// # use lapidary::Tensor;
/// # fn demo(x: &Tensor, mean: &Tensor, variance: &Tensor, by_x: &Tensor) -> lapidary::Result<()> {
/// // A step of Adam, in place.
/// mean.lerp_(by_x, 0.1)?;
/// variance.mul_(0.999)?;
/// variance.addcmul_(by_x, by_x, 0.001)?;
/// x.addcdiv_(mean, &(variance.sqrt()? + 1e-8)?, -1e-3)?;
/// # Ok(()) }
/// ```
///
/// # Errors
///
/// All of them: [`Error::DType`](crate::Error::DType) for other types, or for different ones;
/// [`Error::Shape`](crate::Error::Shape) if the shapes do not broadcast;
/// [`Error::Foreign`](crate::Error::Foreign). Operations in place also give
/// [`Error::Shape`](crate::Error::Shape) if several indices of `self` name one element.
impl Tensor {
    /// `self + weight * (end - self)`, for floats. A weight of 0 gives `self`, a weight of 1 gives
    /// `end`. Weights outside of 0 to 1 extrapolate. NaN if `end - self` is infinite and its weight
    /// is 0 or 1. A weight that is a number stays an f32 if the tensors hold f16 or bf16.
    ///
    /// # Errors
    ///
    /// Those of all operations on three tensors.
    #[track_caller]
    pub fn lerp<'a>(&self, end: &Tensor, weight: impl Into<TensorOrNumber<'a>>) -> Result<Tensor> {
        let _method = MadeFor::method("lerp");
        match weight.into() {
            TensorOrNumber::Tensor(weight) => self.ternary(TernaryOp::Lerp, [end, weight], 0),
            TensorOrNumber::Number(weight) => self.lerp_by(end, weight.bits("lerp", DType::F32)?),
        }
    }

    #[track_caller]
    fn lerp_by(&self, end: &Tensor, weight: u32) -> Result<Tensor> {
        if self.is_tracked() || end.is_tracked() {
            return self.lerp_by_recorded(end, weight);
        }
        self.binary_with(BinaryOp::Lerp, end, &[weight])
    }

    /// `self + value * b * c`, for all numbers. For f16 and bf16 everything, including the value,
    /// is computed in f32 and rounded once.
    ///
    /// # Errors
    ///
    /// Those of all operations on three tensors. [`Error::DType`](crate::Error::DType) also if the
    /// tensor's type cannot hold the value.
    #[track_caller]
    pub fn addcmul(&self, b: &Tensor, c: &Tensor, value: impl Into<Scalar>) -> Result<Tensor> {
        let _method = MadeFor::method("addcmul");
        let value = self.value_of(TernaryOp::Addcmul, value.into())?;
        self.ternary(TernaryOp::Addcmul, [b, c], value)
    }

    /// `self + value * b / c`, for floats, rounded once as in [`addcmul`](Tensor::addcmul).
    ///
    /// # Errors
    ///
    /// Those of [`addcmul`](Tensor::addcmul).
    #[track_caller]
    pub fn addcdiv(&self, b: &Tensor, c: &Tensor, value: impl Into<Scalar>) -> Result<Tensor> {
        let _method = MadeFor::method("addcdiv");
        let value = self.value_of(TernaryOp::Addcdiv, value.into())?;
        self.ternary(TernaryOp::Addcdiv, [b, c], value)
    }

    /// [`lerp`](Tensor::lerp) in place. The other operands broadcast to the shape of `self`.
    ///
    /// # Errors
    ///
    /// Those of [`lerp`](Tensor::lerp).
    #[track_caller]
    pub fn lerp_<'a>(&self, end: &Tensor, weight: impl Into<TensorOrNumber<'a>>) -> Result<()> {
        let _method = MadeFor::method("lerp_");
        let written = match weight.into() {
            TensorOrNumber::Tensor(weight) => {
                self.ternary_in_place(TernaryOp::Lerp, [end, weight], 0)
            }
            TensorOrNumber::Number(weight) => self.lerp_by_in_place(end, weight),
        };
        written.called("lerp_")
    }

    #[track_caller]
    fn lerp_by_in_place(&self, end: &Tensor, weight: Scalar) -> Result<()> {
        let weight = weight.bits("lerp_", DType::F32)?;
        if self.records_write(&[end]) {
            let made = self.elements_before("lerp_")?.lerp_by(end, weight)?;
            return self.assign("lerp_", &made);
        }
        self.binary_in_place(BinaryOp::Lerp, end, &[weight])
    }

    /// [`addcmul`](Tensor::addcmul) in place. The other operands broadcast to the shape of `self`.
    ///
    /// # Errors
    ///
    /// Those of [`addcmul`](Tensor::addcmul).
    #[track_caller]
    pub fn addcmul_(&self, b: &Tensor, c: &Tensor, value: impl Into<Scalar>) -> Result<()> {
        let _method = MadeFor::method("addcmul_");
        let value = (self.value_of(TernaryOp::Addcmul, value.into())).called("addcmul_")?;
        (self.ternary_in_place(TernaryOp::Addcmul, [b, c], value)).called("addcmul_")
    }

    /// [`addcdiv`](Tensor::addcdiv) in place. The other operands broadcast to the shape of `self`.
    ///
    /// # Errors
    ///
    /// Those of [`addcmul`](Tensor::addcmul).
    #[track_caller]
    pub fn addcdiv_(&self, b: &Tensor, c: &Tensor, value: impl Into<Scalar>) -> Result<()> {
        let _method = MadeFor::method("addcdiv_");
        let value = (self.value_of(TernaryOp::Addcdiv, value.into())).called("addcdiv_")?;
        (self.ternary_in_place(TernaryOp::Addcdiv, [b, c], value)).called("addcdiv_")
    }

    #[track_caller]
    fn value_of(&self, op: TernaryOp, value: Scalar) -> Result<u32> {
        op.takes().check(op.name(), self.dtype)?;
        match self.dtype.is_float() {
            // The type that kernels compute in.
            true => value.bits(op.name(), DType::F32),
            false => value.bits(op.name(), self.dtype),
        }
    }

    #[track_caller]
    fn ternary(&self, op: TernaryOp, others: [&Tensor; 2], value: u32) -> Result<Tensor> {
        if self.is_tracked() || others.iter().any(|other| other.is_tracked()) {
            return self.ternary_recorded(op, others, value);
        }
        self.check_three(op, others)?;
        let mut shape = self.layout.shape.clone();
        for other in others {
            shape = broadcast_shapes(op.name(), &shape, &other.layout.shape)?;
        }
        let inputs = [self, others[0], others[1]].map(Input::Tensor);
        let scalars = [value];
        let call = ELEMENT.call(op as u8, &inputs, &scalars);
        let made = call.output(&self.engine, &shape, op.gives().dtype(self.dtype));
        made.called(op.name())
    }

    #[track_caller]
    fn ternary_in_place(&self, op: TernaryOp, others: [&Tensor; 2], value: u32) -> Result<()> {
        if self.records_write(&others) {
            let old = &self.elements_before(op.name())?;
            let made = old.ternary(op, others, value)?;
            return self.assign(op.name(), &made);
        }
        self.check_three(op, others)?;
        let inputs = [self, others[0], others[1]].map(Input::Tensor);
        self.write_through(op.name(), &ELEMENT.call(op as u8, &inputs, &[value]))
    }

    #[track_caller]
    fn check_three(&self, op: TernaryOp, others: [&Tensor; 2]) -> Result<()> {
        op.takes().check(op.name(), self.dtype)?;
        for other in others {
            self.same_engine(op.name(), other)?;
            same_dtype(op.name(), self.dtype, other.dtype)?;
        }
        Ok(())
    }
}
