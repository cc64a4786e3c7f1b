//! Operations on single elements.

mod gradient;
#[cfg(any(test, feature = "sim"))]
pub(super) mod reference;
mod row;
mod rules;
mod table;

use row::OfIntegers;
pub use row::UnaryRow;
pub use table::UNARY_ROWS;
pub(super) use table::UnaryOp;
pub(crate) use table::unary_table;

use std::borrow::Cow;

use super::elementwise::element::Element;
use super::elementwise::{self, Code, Input};
use super::fill;
use super::operation::{as_float, kernels};
use super::scalar::Scalar;
use crate::tensor::Tensor;
use crate::tensor::called::Called;
use lapidary_core::internal::sections::section_for;
use lapidary_core::internal::{BuiltInKernel, MadeFor, Operand, Variant};
use lapidary_core::{DType, Result};

const WGSL: &str = include_str!("../../shaders/unary.wgsl");

impl UnaryOp {
    pub(super) fn row(self) -> &'static UnaryRow {
        &UNARY_ROWS[self as usize]
    }
}

kernels! {
    unary:
    /// `y = op(x)`.
    UNARY "unary" [Operand::read("x"), Operand::write("y")];
    /// The same, but `y` is a part of its storage.
    UNARY_INTO "unary_into" [Operand::read("x"), Operand::update("y")];
}

/// The text `fn op(x: A) -> Y` of an operation, for inputs that are computed as `kind`.
pub(super) fn text_of(op: UnaryOp, kind: &str) -> &'static str {
    section_for(WGSL, op.name(), kind)
}

pub(super) static ELEMENT: Element = Element {
    fresh: &UNARY,
    into: &UNARY_INTO,
    names: &["x"],
    main: 0,
    file: WGSL,
    section,
};

fn section(variant: &Variant) -> &'static str {
    UnaryOp::from_code(Code(variant.code)).name()
}

fn text(variant: &Variant) -> Cow<'static, str> {
    elementwise::text(variant, &ELEMENT)
}

/// Operations on each element. They take any view and give a new, row-major tensor.
///
/// f16 and bf16 are computed in f32 and rounded once. The exponential, the logarithm and the roots
/// of ordinary numbers are the adapter's own; WGSL requires a few units in the last place. The
/// library computes everything else itself, so that adapters agree. NaN gives NaN. Integers wrap.
/// Functions of real numbers, such as [`exp`](Tensor::exp), give f32 for integers and bools, but
/// their in-place forms refuse them.
///
/// ```
/// # fn demo(x: &lapidary::Tensor) -> lapidary::Result<()> {
/// let y = x.clamp(-1.0, 1.0)?.tanh()?;
/// let norm = x.square()?.sum_all()?.sqrt()?;
/// # Ok(()) }
/// ```
///
/// # Errors
///
/// All of them: [`Error::DType`](crate::Error::DType) for a type that the operation does not take,
/// and the errors of creating a tensor.
impl Tensor {
    #[track_caller]
    pub(super) fn unary(&self, op: UnaryOp) -> Result<Tensor> {
        self.unary_with(op, [0, 0])
    }

    #[track_caller]
    fn unary_with(&self, op: UnaryOp, scalars: [u32; 2]) -> Result<Tensor> {
        if let Some(x) = as_float(op.gives(), self)? {
            return x.unary_with(op, scalars);
        }
        if self.is_tracked() {
            return self.unary_recorded(op, scalars);
        }
        match op.row().of_integers(self.dtype) {
            Some(OfIntegers::Themselves) => return self.copy(),
            Some(OfIntegers::All(truth)) => {
                let (engine, shape) = (&self.engine, &self.layout.shape);
                return fill::full(engine, shape, truth.into(), DType::Bool);
            }
            None => {}
        }
        op.takes().check(op.name(), self.dtype)?;
        let inputs = [Input::Tensor(self)];
        let call = ELEMENT.call(op as u8, &inputs, &scalars);
        call.output(
            &self.engine,
            &self.layout.shape,
            op.gives().dtype(self.dtype),
        )
    }

    #[track_caller]
    pub(super) fn unary_in_place(&self, op: UnaryOp, scalars: [u32; 2]) -> Result<()> {
        if op.row().of_integers(self.dtype) == Some(OfIntegers::Themselves) {
            return self.check_writable(op.name());
        }
        op.takes().check(op.name(), self.dtype)?;
        if self.is_tracked() {
            let old = &self.elements_before(op.name())?;
            let made = old.unary_with(op, scalars)?;
            return self.assign(op.name(), &made);
        }
        let inputs = [Input::Tensor(self)];
        self.write_through(op.name(), &ELEMENT.call(op as u8, &inputs, &scalars))
    }

    /// Raises every element to at least `min`, then lowers it to at most `max`, for all numbers. A
    /// NaN as a bound makes everything NaN.
    ///
    /// # Errors
    ///
    /// [`Error::DType`](crate::Error::DType) for a bool tensor, or if the tensor's type cannot hold
    /// a bound.
    #[track_caller]
    pub fn clamp(&self, min: impl Into<Scalar>, max: impl Into<Scalar>) -> Result<Tensor> {
        let _method = MadeFor::method("clamp");
        let bounds = self.bounds(min.into(), max.into())?;
        self.unary_with(UnaryOp::Clamp, bounds)
    }

    /// [`clamp`](Tensor::clamp) in place.
    ///
    /// # Errors
    ///
    /// Those of [`clamp`](Tensor::clamp) and of [`add_`](Tensor::add_).
    #[track_caller]
    pub fn clamp_(&self, min: impl Into<Scalar>, max: impl Into<Scalar>) -> Result<()> {
        let _method = MadeFor::method("clamp_");
        let bounds = self.bounds(min.into(), max.into()).called("clamp_")?;
        (self.unary_in_place(UnaryOp::Clamp, bounds)).called("clamp_")
    }

    /// `x`, or `slope * x` below 0, for floats.
    ///
    /// # Errors
    ///
    /// [`Error::DType`](crate::Error::DType) for other types.
    #[track_caller]
    pub fn leaky_relu(&self, slope: f32) -> Result<Tensor> {
        let _method = MadeFor::method("leaky_relu");
        self.unary_with(UnaryOp::LeakyRelu, [slope.to_bits(), 0])
    }

    /// `x`, or `alpha * (exp(x) - 1)` below 0, for floats.
    ///
    /// # Errors
    ///
    /// [`Error::DType`](crate::Error::DType) for other types.
    #[track_caller]
    pub fn elu(&self, alpha: f32) -> Result<Tensor> {
        let _method = MadeFor::method("elu");
        self.unary_with(UnaryOp::Elu, [alpha.to_bits(), 1_f32.to_bits()])
    }

    /// [`elu`](Tensor::elu) with the two constants that keep activations normalized (Klambauer and
    /// others, 2017), for floats.
    ///
    /// # Errors
    ///
    /// [`Error::DType`](crate::Error::DType) for other types.
    #[track_caller]
    pub fn selu(&self) -> Result<Tensor> {
        let _method = MadeFor::method("selu");
        let [alpha, scale] = [1.673_263_2_f32, 1.050_701];
        let made = self.unary_with(UnaryOp::Elu, [alpha.to_bits(), scale.to_bits()]);
        made.called("selu")
    }

    /// `x`, or `alpha * (exp(x / alpha) - 1)` below 0, for floats. Its slope is continuous at 0
    /// (Barron, 2017).
    ///
    /// ```
    /// # fn demo(x: &lapidary::Tensor) -> lapidary::Result<()> {
    /// let y = x.celu(1.0)?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::DType`](crate::Error::DType) for other types.
    #[track_caller]
    pub fn celu(&self, alpha: f32) -> Result<Tensor> {
        let _method = MadeFor::method("celu");
        self.unary_with(UnaryOp::Celu, [alpha.to_bits(), 0])
    }

    /// Inverts every bit, for `i32`, `u32`, `u8` and `i8`. For bools it is
    /// [`logical_not`](Tensor::logical_not).
    ///
    /// # Errors
    ///
    /// [`Error::DType`](crate::Error::DType) for floats.
    #[track_caller]
    pub fn bitwise_not(&self) -> Result<Tensor> {
        let _method = MadeFor::method("bitwise_not");
        match self.dtype {
            DType::Bool => self.unary(UnaryOp::LogicalNot),
            _ => self.unary(UnaryOp::BitwiseNot),
        }
    }

    #[track_caller]
    fn bounds(&self, min: Scalar, max: Scalar) -> Result<[u32; 2]> {
        UnaryOp::Clamp.takes().check("clamp", self.dtype)?;
        Ok([
            min.bits("clamp", self.dtype)?,
            max.bits("clamp", self.dtype)?,
        ])
    }
}
