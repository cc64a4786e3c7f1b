//! Operations on pairs of elements, from two tensors or from a tensor and a scalar.

mod gradient;
#[cfg(any(test, feature = "sim"))]
pub(super) mod reference;
mod row;
mod rules;
mod table;

pub use row::BinaryRow;
pub use table::BINARY_ROWS;
pub(super) use table::BinaryOp;
pub(crate) use table::binary_table;

use std::borrow::Cow;

use super::elementwise::element::Element;
use super::elementwise::{self, Code, Fetch, Input};
use super::operation::{as_float, kernels, same_dtype};
use super::scalar::{Scalar, TensorOrNumber};
use crate::ops::unary::UnaryOp;
use crate::tensor::Tensor;
use crate::tensor::called::Called;
use crate::tensor::layout::broadcast_shapes;
use lapidary_core::Result;
use lapidary_core::internal::{BuiltInKernel, MadeFor, Operand, Variant};

const WGSL: &str = include_str!("../../shaders/binary.wgsl");

impl BinaryOp {
    fn row(self) -> &'static BinaryRow {
        &BINARY_ROWS[self as usize]
    }
}

kernels! {
    binary:
    /// `y = op(a, b)`.
    BINARY "binary" [Operand::read("a"), Operand::read("b"), Operand::write("y")];
    /// The same, but `y` is a part of its storage.
    BINARY_INTO "binary_into" [Operand::read("a"), Operand::read("b"), Operand::update("y")];
    /// `y = op(a, scalar)`.
    SCALAR "scalar" [Operand::read("a"), Operand::write("y")];
    /// The same, but `y` is a part of its storage.
    SCALAR_INTO "scalar_into" [Operand::read("a"), Operand::update("y")];
    /// `y = op(scalar, b)`.
    SCALAR_FIRST "scalar_first" [Operand::read("b"), Operand::write("y")];
    /// The same, but `y` is a part of its storage.
    SCALAR_FIRST_INTO "scalar_first_into" [Operand::read("b"), Operand::update("y")];
}

pub(super) static ELEMENT: Element = Element {
    fresh: &BINARY,
    into: &BINARY_INTO,
    names: &["a", "b"],
    main: 0,
    file: WGSL,
    section,
};

pub(super) static ELEMENT_SCALAR: Element = Element {
    fresh: &SCALAR,
    into: &SCALAR_INTO,
    ..ELEMENT
};

pub(super) static ELEMENT_SCALAR_FIRST: Element = Element {
    fresh: &SCALAR_FIRST,
    into: &SCALAR_FIRST_INTO,
    ..ELEMENT
};

fn section(variant: &Variant) -> &'static str {
    BinaryOp::from_code(Code(variant.code)).name()
}

fn text(variant: &Variant) -> Cow<'static, str> {
    let code = Code(variant.code);
    debug_assert!(code.fetch(0) != Fetch::Param || code.fetch(1) != Fetch::Param);
    elementwise::text(variant, &ELEMENT)
}

impl Tensor {
    #[track_caller]
    pub(super) fn binary(&self, op: BinaryOp, other: &Tensor) -> Result<Tensor> {
        self.binary_with(op, other, &[])
    }

    /// Whether bit `other` of the element is set, for bits 0 to 31.
    #[track_caller]
    pub(super) fn bit(&self, other: &Tensor) -> Result<Tensor> {
        self.binary(BinaryOp::Bit, other)
    }

    /// The same for an operation that reads scalars.
    #[track_caller]
    pub(super) fn binary_with(
        &self,
        op: BinaryOp,
        other: &Tensor,
        scalars: &[u32],
    ) -> Result<Tensor> {
        self.same_engine(op.name(), other)?;
        same_dtype(op.name(), self.dtype, other.dtype)?;
        if let (Some(a), Some(b)) = (as_float(op.gives(), self)?, as_float(op.gives(), other)?) {
            return a.binary_with(op, &b, scalars);
        }
        self.check_pair(op, other)?;
        if self.is_tracked() || other.is_tracked() {
            return self.binary_recorded(op, other, scalars);
        }
        let shape = broadcast_shapes(op.name(), &self.layout.shape, &other.layout.shape)?;
        let inputs = [self, other].map(Input::Tensor);
        let call = ELEMENT.call(op as u8, &inputs, scalars);
        let made = call.output(&self.engine, &shape, op.gives().dtype(self.dtype));
        made.called(op.name())
    }

    #[track_caller]
    pub(super) fn binary_in_place(
        &self,
        op: BinaryOp,
        other: &Tensor,
        scalars: &[u32],
    ) -> Result<()> {
        self.check_pair(op, other)?;
        if self.records_write(&[other]) {
            let old = &self.elements_before(op.name())?;
            let made = old.binary_with(op, other, scalars)?;
            return self.assign(op.name(), &made);
        }
        let inputs = [self, other].map(Input::Tensor);
        self.write_through(op.name(), &ELEMENT.call(op as u8, &inputs, scalars))
    }

    #[track_caller]
    fn check_pair(&self, op: BinaryOp, other: &Tensor) -> Result<()> {
        self.same_engine(op.name(), other)?;
        op.takes().check(op.name(), self.dtype)?;
        same_dtype(op.name(), self.dtype, other.dtype)
    }

    #[track_caller]
    pub(super) fn with_scalar(&self, op: BinaryOp, value: Scalar) -> Result<Tensor> {
        if let Some(x) = as_float(op.gives(), self)? {
            return x.with_scalar(op, value);
        }
        if self.is_tracked() {
            let _line = MadeFor::caller();
            return self.with_scalar_recorded(op, value);
        }
        let scalars = self.scalar_of(op, value)?;
        let inputs = [Input::Tensor(self), Input::Scalar];
        let call = ELEMENT_SCALAR.call(op as u8, &inputs, &scalars);
        call.output(
            &self.engine,
            &self.layout.shape,
            op.gives().dtype(self.dtype),
        )
    }

    /// `value op self`.
    #[track_caller]
    pub(super) fn scalar_first(&self, op: BinaryOp, value: Scalar) -> Result<Tensor> {
        if let Some(x) = as_float(op.gives(), self)? {
            return x.scalar_first(op, value);
        }
        if self.is_tracked() {
            return self.scalar_first_recorded(op, value);
        }
        let scalars = self.scalar_of(op, value)?;
        let inputs = [Input::Scalar, Input::Tensor(self)];
        let call = ELEMENT_SCALAR_FIRST.call(op as u8, &inputs, &scalars);
        call.output(
            &self.engine,
            &self.layout.shape,
            op.gives().dtype(self.dtype),
        )
    }

    #[track_caller]
    fn scalar_in_place(&self, op: BinaryOp, value: Scalar) -> Result<()> {
        if self.is_tracked() {
            let old = &self.elements_before(op.name())?;
            let made = old.with_scalar(op, value)?;
            return self.assign(op.name(), &made);
        }
        let scalars = self.scalar_of(op, value)?;
        let inputs = [Input::Tensor(self), Input::Scalar];
        self.write_through(op.name(), &ELEMENT_SCALAR.call(op as u8, &inputs, &scalars))
    }

    /// The number's bits in the kernel's type, if the operation takes elements of this type.
    #[inline]
    #[track_caller]
    fn scalar_of(&self, op: BinaryOp, value: Scalar) -> Result<[u32; 1]> {
        op.takes().check(op.name(), self.dtype)?;
        Ok([value.bits(op.name(), self.dtype)?])
    }

    /// The operation with a tensor or a number on the right.
    #[track_caller]
    fn binary_of(&self, op: BinaryOp, other: TensorOrNumber<'_>) -> Result<Tensor> {
        match other {
            TensorOrNumber::Tensor(other) => self.binary(op, other),
            TensorOrNumber::Number(value) => match self.power(op, value) {
                Some(op) => self.unary(op),
                None => self.with_scalar(op, value),
            },
        }
    }

    #[track_caller]
    fn binary_in_place_of(&self, op: BinaryOp, other: TensorOrNumber<'_>) -> Result<()> {
        match other {
            TensorOrNumber::Tensor(other) => self.binary_in_place(op, other, &[]),
            TensorOrNumber::Number(value) => match self.power(op, value) {
                Some(op) => self.unary_in_place(op, [0, 0]),
                None => self.scalar_in_place(op, value),
            },
        }
    }

    /// The operation that is a power of floats by this number, and more exact.
    fn power(&self, op: BinaryOp, exponent: Scalar) -> Option<UnaryOp> {
        match exponent.as_f64() {
            _ if op != BinaryOp::Pow || !self.dtype.is_float() => None,
            _ if matches!(exponent, Scalar::Bool(_)) => None,
            2.0 => Some(UnaryOp::Square),
            0.5 => Some(UnaryOp::Sqrt),
            -0.5 => Some(UnaryOp::Rsqrt),
            -1.0 => Some(UnaryOp::Recip),
            _ => None,
        }
    }
}
