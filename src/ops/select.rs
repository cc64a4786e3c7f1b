//! Selects one of two elements by a third; one of the two may be a scalar.

mod gradient;
#[cfg(any(test, feature = "sim"))]
pub(super) mod reference;

use std::borrow::Cow;

use super::elementwise::element::Element;
use super::elementwise::{self, Input};
use super::fill;
use super::operation::{Takes, kernels, same_dtype};
use super::scalar::{Scalar, TensorOrNumber};
use crate::tensor::Tensor;
use crate::tensor::called::Called;
use crate::tensor::layout::broadcast_shapes;
use lapidary_core::internal::{BuiltInKernel, MadeFor, Operand, Variant};
use lapidary_core::{DType, Result};

const WGSL: &str = include_str!("../../shaders/select.wgsl");
const OPERATION: &str = "where";
const MASKED: &str = "masked_fill";

kernels! {
    select:
    /// `y = c ? a : b`.
    SELECT "select"
        [Operand::read("c"), Operand::read("a"), Operand::read("b"), Operand::write("y")];
    /// The same, but `y` is a part of its storage.
    SELECT_INTO "select_into"
        [Operand::read("c"), Operand::read("a"), Operand::read("b"), Operand::update("y")];
    /// `y = c ? scalar : b`.
    MASKED_FILL "masked_fill" [Operand::read("c"), Operand::read("b"), Operand::write("y")];
    /// The same, but `y` is a part of its storage.
    MASKED_FILL_INTO "masked_fill_into"
        [Operand::read("c"), Operand::read("b"), Operand::update("y")];
}

pub(super) static ELEMENT: Element = Element {
    fresh: &SELECT,
    into: &SELECT_INTO,
    names: &["c", "a", "b"],
    main: 1,
    file: WGSL,
    section: |_| OPERATION,
};

pub(super) static ELEMENT_SCALAR: Element = Element {
    fresh: &MASKED_FILL,
    into: &MASKED_FILL_INTO,
    ..ELEMENT
};

fn text(variant: &Variant) -> Cow<'static, str> {
    elementwise::text(variant, &ELEMENT)
}

impl Tensor {
    /// The element of `a` where `self`, a bool tensor, is true, else that of `b`. Either may be a
    /// number. The shapes broadcast. `a` and `b` have one type, which is the result's. Two numbers
    /// give `f32` if one is a float, else `i32`; two bools give bools. The name has an underscore
    /// because `where` is a keyword of Rust; the method does not work in place.
    ///
    /// ```
    /// # fn demo(x: &lapidary::Tensor) -> lapidary::Result<()> {
    /// let is_positive = x.gt(0)?;
    /// let leaky = is_positive.where_(x, &(x * 0.01)?)?;
    /// let step = is_positive.where_(1.0, 0.0)?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::DType`](crate::Error::DType) if `self` holds no bools, if `a` and `b` differ in
    /// type, or if the other's type cannot hold a number. [`Error::Shape`](crate::Error::Shape) if
    /// the shapes do not broadcast. [`Error::Foreign`](crate::Error::Foreign).
    #[track_caller]
    pub fn where_<'a>(
        &self,
        a: impl Into<TensorOrNumber<'a>>,
        b: impl Into<TensorOrNumber<'a>>,
    ) -> Result<Tensor> {
        let _method = MadeFor::method("where_");
        self.chosen(a.into(), b.into()).called("where_")
    }

    #[track_caller]
    fn chosen(&self, a: TensorOrNumber<'_>, b: TensorOrNumber<'_>) -> Result<Tensor> {
        Takes::Bools.check(OPERATION, self.dtype)?;
        match (a, b) {
            (TensorOrNumber::Tensor(a), TensorOrNumber::Tensor(b)) => self.where_tensors(a, b),
            (TensorOrNumber::Number(a), TensorOrNumber::Tensor(b)) => b.filled(OPERATION, self, a),
            (TensorOrNumber::Tensor(a), TensorOrNumber::Number(b)) => {
                self.same_engine(OPERATION, a)?;
                a.filled(OPERATION, &self.logical_not()?, b)
            }
            (TensorOrNumber::Number(a), TensorOrNumber::Number(b)) => {
                let dtype = match (a, b) {
                    (Scalar::Float(_), _) | (_, Scalar::Float(_)) => DType::F32,
                    (Scalar::Bool(_), Scalar::Bool(_)) => DType::Bool,
                    _ => DType::I32,
                };
                let b = fill::full(&self.engine, &[], b, dtype)?;
                b.filled(OPERATION, self, a)
            }
        }
    }

    #[track_caller]
    fn where_tensors(&self, a: &Tensor, b: &Tensor) -> Result<Tensor> {
        if a.is_tracked() || b.is_tracked() {
            return self.where_recorded(a, b);
        }
        self.same_engine(OPERATION, a)?;
        self.same_engine(OPERATION, b)?;
        same_dtype(OPERATION, a.dtype, b.dtype)?;
        let shape = broadcast_shapes(OPERATION, &a.layout.shape, &b.layout.shape)?;
        let shape = broadcast_shapes(OPERATION, &self.layout.shape, &shape)?;
        let inputs = [self, a, b].map(Input::Tensor);
        let call = ELEMENT.call(0, &inputs, &[]);
        call.output(&self.engine, &shape, a.dtype).called(OPERATION)
    }

    /// `value` where `mask`, a bool tensor, is true, else the element of `self`. The two shapes
    /// broadcast.
    ///
    /// ```
    /// # fn demo(scores: &lapidary::Tensor, padding: &lapidary::Tensor) -> lapidary::Result<()> {
    /// let weights = scores.masked_fill(padding, f32::NEG_INFINITY)?.softmax(-1)?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::DType`](crate::Error::DType) if the mask holds no bools, or if the type of `self`
    /// cannot hold `value`; [`Error::Shape`](crate::Error::Shape) if the shapes do not broadcast;
    /// [`Error::Foreign`](crate::Error::Foreign).
    #[track_caller]
    pub fn masked_fill(&self, mask: &Tensor, value: impl Into<Scalar>) -> Result<Tensor> {
        let _method = MadeFor::method("masked_fill");
        self.filled(MASKED, mask, value.into())
    }

    #[track_caller]
    fn filled(&self, operation: &'static str, mask: &Tensor, value: Scalar) -> Result<Tensor> {
        if self.is_tracked() {
            return self.filled_recorded(operation, mask, value);
        }
        let scalars = self.check_mask(operation, mask, value)?;
        let shape = broadcast_shapes(operation, &mask.layout.shape, &self.layout.shape)?;
        let inputs = [Input::Tensor(mask), Input::Scalar, Input::Tensor(self)];
        let call = ELEMENT_SCALAR.call(0, &inputs, &scalars);
        call.output(&self.engine, &shape, self.dtype)
            .called(operation)
    }

    /// [`masked_fill`](Tensor::masked_fill) in place. The mask broadcasts to the shape of `self`.
    ///
    /// # Errors
    ///
    /// Those of [`masked_fill`](Tensor::masked_fill) and of [`add_`](Tensor::add_).
    #[track_caller]
    pub fn masked_fill_(&self, mask: &Tensor, value: impl Into<Scalar>) -> Result<()> {
        let _method = MadeFor::method("masked_fill_");
        let value = value.into();
        let scalars = self.check_mask("masked_fill_", mask, value)?;
        if self.is_tracked() {
            let old = &self.elements_before("masked_fill_")?;
            let made = old.filled("masked_fill_", mask, value)?;
            return self.assign("masked_fill_", &made);
        }
        let inputs = [Input::Tensor(mask), Input::Scalar, Input::Tensor(self)];
        let written = self.write_through(MASKED, &ELEMENT_SCALAR.call(0, &inputs, &scalars));
        written.called("masked_fill_")
    }

    #[track_caller]
    fn check_mask(
        &self,
        operation: &'static str,
        mask: &Tensor,
        value: Scalar,
    ) -> Result<[u32; 1]> {
        self.same_engine(operation, mask)?;
        Takes::Bools.check(operation, mask.dtype)?;
        Ok([value.bits(operation, self.dtype)?])
    }
}
