//! One of two elements, as a third says; one of the two may be a scalar.

use std::borrow::Cow;

use super::elementwise::element::Element;
use super::elementwise::{self, Call, Family, Input};
use super::operation::{Takes, kernels, same_dtype};
use super::scalar::Scalar;
use crate::engine::{Kernel, Operand, Variant};
use crate::error::Result;
use crate::tensor::Tensor;
use crate::tensor::layout::broadcast_shapes;

const WGSL: &str = include_str!("../../shaders/select.wgsl");
const OPERATION: &str = "where";
const MASKED: &str = "masked_fill";

kernels! {
    select:
    /// `y = c ? a : b`.
    SELECT "select"
        [Operand::read("c"), Operand::read("a"), Operand::read("b"), Operand::write("y")];
    /// The same, where `y` is a part of its storage.
    SELECT_INTO "select_into"
        [Operand::read("c"), Operand::read("a"), Operand::read("b"), Operand::update("y")];
    /// `y = c ? scalar : b`.
    MASKED_FILL "masked_fill" [Operand::read("c"), Operand::read("b"), Operand::write("y")];
    /// The same, where `y` is a part of its storage.
    MASKED_FILL_INTO "masked_fill_into"
        [Operand::read("c"), Operand::read("b"), Operand::update("y")];
}

const FAMILY: Family = Family {
    fresh: &SELECT,
    into: &SELECT_INTO,
};

const WITH_SCALAR: Family = Family {
    fresh: &MASKED_FILL,
    into: &MASKED_FILL_INTO,
};

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
    elementwise::text(variant, &["c", "a", "b"], 1, WGSL, OPERATION)
}

impl Tensor {
    /// Where `self`, a bool tensor, is true, the element of `a`, else that of `b`. The three
    /// shapes broadcast; `a` and `b` have one type, which is the result's. (`where` is a word of
    /// Rust: here the underscore does not say that anything is done in place.)
    ///
    /// ```
    /// # fn demo(x: &lapidary::Tensor) -> lapidary::Result<()> {
    /// let leaky = x.gt_scalar(0)?.where_(x, &(x * 0.01)?)?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::DType`](crate::Error::DType) if `self` holds no bools, or `a` and `b` differ in
    /// type; [`Error::Shape`](crate::Error::Shape) if the shapes do not broadcast;
    /// [`Error::Foreign`](crate::Error::Foreign).
    #[track_caller]
    pub fn where_(&self, a: &Tensor, b: &Tensor) -> Result<Tensor> {
        self.same_engine(OPERATION, a)?;
        self.same_engine(OPERATION, b)?;
        Takes::Bools.check(OPERATION, self.dtype)?;
        same_dtype(OPERATION, a.dtype, b.dtype)?;
        let shape = broadcast_shapes(OPERATION, &a.layout.shape, &b.layout.shape)?;
        let shape = broadcast_shapes(OPERATION, &self.layout.shape, &shape)?;
        let call = Call {
            family: FAMILY,
            op: 0,
            inputs: &[self, a, b].map(Input::Tensor),
            scalars: &[],
        };
        call.output(&self.engine, &shape, a.dtype)
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
    /// [`Error::DType`](crate::Error::DType) if the mask holds no bools, or `self` does not hold
    /// `value`; [`Error::Shape`](crate::Error::Shape) if the shapes do not broadcast;
    /// [`Error::Foreign`](crate::Error::Foreign).
    #[track_caller]
    pub fn masked_fill(&self, mask: &Tensor, value: impl Into<Scalar>) -> Result<Tensor> {
        let scalars = self.check_mask(mask, value.into())?;
        let shape = broadcast_shapes(MASKED, &mask.layout.shape, &self.layout.shape)?;
        let call = Call {
            family: WITH_SCALAR,
            op: 0,
            inputs: &[Input::Tensor(mask), Input::Scalar, Input::Tensor(self)],
            scalars: &scalars,
        };
        call.output(&self.engine, &shape, self.dtype)
    }

    /// [`masked_fill`](Tensor::masked_fill) in place: the mask broadcasts to the shape of `self`.
    ///
    /// # Errors
    ///
    /// Those of [`masked_fill`](Tensor::masked_fill) and of [`add_`](Tensor::add_).
    #[track_caller]
    pub fn masked_fill_(&self, mask: &Tensor, value: impl Into<Scalar>) -> Result<()> {
        let scalars = self.check_mask(mask, value.into())?;
        self.write_through(
            MASKED,
            &Call {
                family: WITH_SCALAR,
                op: 0,
                inputs: &[Input::Tensor(mask), Input::Scalar, Input::Tensor(self)],
                scalars: &scalars,
            },
        )
    }

    fn check_mask(&self, mask: &Tensor, value: Scalar) -> Result<[u32; 1]> {
        self.same_engine(MASKED, mask)?;
        Takes::Bools.check(MASKED, mask.dtype)?;
        Ok([value.bits(MASKED, self.dtype)?])
    }
}
