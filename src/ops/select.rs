//! One of two elements, as a third says.

use std::borrow::Cow;

use super::elementwise::element::Element;
use super::elementwise::{self, Call, Family, Input};
use super::operation::{Takes, same_dtype};
use crate::engine::{Kernel, Operand, Variant};
use crate::error::Result;
use crate::tensor::Tensor;
use crate::tensor::layout::broadcast_shapes;

const WGSL: &str = include_str!("../../shaders/select.wgsl");
const OPERATION: &str = "where";

/// `y = c ? a : b`.
pub(super) static SELECT: Kernel = Kernel {
    name: "select",
    operands: &[
        Operand::read("c"),
        Operand::read("a"),
        Operand::read("b"),
        Operand::write("y"),
    ],
    text,
    #[cfg(any(test, feature = "sim"))]
    twin: super::twin::select::run,
};

/// The same, where `y` is a part of its storage.
pub(super) static SELECT_INTO: Kernel = Kernel {
    name: "select_into",
    operands: &[
        Operand::read("c"),
        Operand::read("a"),
        Operand::read("b"),
        Operand::update("y"),
    ],
    text,
    #[cfg(any(test, feature = "sim"))]
    twin: super::twin::select::run,
};

const FAMILY: Family = Family {
    fresh: &SELECT,
    into: &SELECT_INTO,
};

pub(super) static ELEMENT: Element = Element {
    fresh: &SELECT,
    into: &SELECT_INTO,
    names: &["c", "a", "b"],
    main: 1,
    file: WGSL,
    section: |_| OPERATION,
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
}
