//! Operations on single elements.

mod gradient;
#[cfg(any(test, feature = "sim"))]
pub(super) mod reference;

use std::borrow::Cow;

use super::elementwise::element::Element;
use super::elementwise::{self, Code, Input};
use super::fill;
use super::operation::{as_float, kernels, operations};
use super::scalar::Scalar;
use crate::tensor::Tensor;
use crate::tensor::called::Called;
use lapidary_core::internal::sections::section_for;
use lapidary_core::internal::{BuiltInKernel, MadeFor, Operand, Variant};
use lapidary_core::{DType, Result};

const WGSL: &str = include_str!("../../shaders/unary.wgsl");

operations! {
    /// A unary operation.
    UnaryOp {
        Neg "neg" Numbers Same,
        Abs "abs" Numbers Same,
        Sign "sign" Numbers Same,
        Square "square" Numbers Same,
        Relu "relu" Numbers Same,
        Exp "exp" Floats Float,
        Log "log" Floats Float,
        Sqrt "sqrt" Floats Float,
        Rsqrt "rsqrt" Floats Float,
        Recip "recip" Floats Float,
        Sin "sin" Floats Float,
        Cos "cos" Floats Float,
        Tanh "tanh" Floats Float,
        Erf "erf" Floats Float,
        Sigmoid "sigmoid" Floats Float,
        Silu "silu" Floats Same,
        Gelu "gelu" Floats Same,
        GeluTanh "gelu_tanh" Floats Same,
        Floor "floor" Floats Same,
        Ceil "ceil" Floats Same,
        Round "round" Floats Same,
        Trunc "trunc" Floats Same,
        LogicalNot "logical_not" All Bool,
        IsNan "is_nan" Floats Bool,
        IsFinite "is_finite" Floats Bool,
        Clamp "clamp" Numbers Same,
        Exp2 "exp2" Floats Float,
        Expm1 "expm1" Floats Float,
        Log2 "log2" Floats Float,
        Log10 "log10" Floats Float,
        Log1p "log1p" Floats Float,
        Frac "frac" Floats Same,
        Tan "tan" Floats Float,
        Asin "asin" Floats Float,
        Acos "acos" Floats Float,
        Atan "atan" Floats Float,
        Sinh "sinh" Floats Float,
        Cosh "cosh" Floats Float,
        Asinh "asinh" Floats Float,
        Acosh "acosh" Floats Float,
        Atanh "atanh" Floats Float,
        Softplus "softplus" Floats Same,
        LogSigmoid "log_sigmoid" Floats Same,
        Softsign "softsign" Floats Same,
        Mish "mish" Floats Same,
        Hardsigmoid "hardsigmoid" Floats Same,
        Hardswish "hardswish" Floats Same,
        LeakyRelu "leaky_relu" Floats Same,
        Elu "elu" Floats Same,
        BitwiseNot "bitwise_not" Whole Same,
        IsInf "is_inf" Floats Bool,
        Erfc "erfc" Floats Float,
        Erfinv "erfinv" Floats Float,
        Ndtr "ndtr" Floats Float,
        Sinc "sinc" Floats Float,
        Logit "logit" Floats Float,
        Celu "celu" Floats Same,
        Signbit "signbit" Numbers Bool,
        Tanhshrink "tanhshrink" Floats Same,
        Deg2rad "deg2rad" Floats Float,
        Rad2deg "rad2deg" Floats Float,
    }
}

/// What an operation gives for integers and bools, as far as it is known without computing.
#[derive(Clone, Copy, PartialEq, Eq)]
enum OfIntegers {
    /// The operand's elements.
    Themselves,
    /// One value for all elements.
    All(bool),
}

impl UnaryOp {
    /// Integers and bools are whole, and never NaN or infinite.
    fn of_integers(self, dtype: DType) -> Option<OfIntegers> {
        use OfIntegers::{All, Themselves};
        match self {
            _ if dtype.is_float() => None,
            UnaryOp::Floor | UnaryOp::Ceil | UnaryOp::Round | UnaryOp::Trunc => {
                (dtype != DType::Bool).then_some(Themselves)
            }
            UnaryOp::IsNan | UnaryOp::IsInf => Some(All(false)),
            UnaryOp::IsFinite => Some(All(true)),
            _ => None,
        }
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
        match op.of_integers(self.dtype) {
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
    fn unary_in_place(&self, op: UnaryOp, scalars: [u32; 2]) -> Result<()> {
        if op.of_integers(self.dtype) == Some(OfIntegers::Themselves) {
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

macro_rules! methods {
    ($($(#[$doc:meta])+ $name:ident $op:ident;)+) => {
        impl Tensor {$(
            $(#[$doc])+
            ///
            /// # Errors
            ///
            /// [`Error::DType`](crate::Error::DType) for other types.
            #[track_caller]
            pub fn $name(&self) -> Result<Tensor> {
                let _method = MadeFor::method(stringify!($name));
                self.unary(UnaryOp::$op).called(stringify!($name))
            }
        )+}
    };
}

methods! {
    /// `-x`, for all numbers; unsigned integers wrap.
    neg Neg;
    /// The absolute value, for all numbers; the least `i32` or `i8` stays negative.
    abs Abs;
    /// -1, 0 or 1, for all numbers; NaN for NaN.
    #[doc(alias = "sgn")]
    sign Sign;
    /// `x * x`, for all numbers.
    square Square;
    /// `x` if it is above 0, else 0, for all numbers; NaN for NaN.
    relu Relu;
    /// eˣ, for floats; integers give f32.
    exp Exp;
    /// 2ˣ, for floats; integers give f32.
    exp2 Exp2;
    /// `exp(x) - 1`, for floats; integers give f32. It is exact near 0, too.
    expm1 Expm1;
    /// The natural logarithm, for floats; integers give f32. It is -∞ at 0, and NaN below.
    log Log;
    /// The logarithm with base 2, for floats; integers give f32.
    log2 Log2;
    /// The logarithm with base 10, for floats; integers give f32.
    log10 Log10;
    /// `log(1 + x)`, for floats; integers give f32. It is exact near 0, too.
    log1p Log1p;
    /// The square root, for floats; integers give f32. It is NaN below 0.
    sqrt Sqrt;
    /// `1 / sqrt(x)`, for floats; integers give f32.
    rsqrt Rsqrt;
    /// `1 / x`, for floats; integers give f32.
    #[doc(alias = "reciprocal")]
    recip Recip;
    /// The sine of radians, for floats; integers give f32. It is exact to 1e-6 up to 30,000.
    /// Beyond, it is the adapter's own.
    sin Sin;
    /// The cosine of radians, for floats; integers give f32. It is as exact as
    /// [`sin`](Tensor::sin).
    cos Cos;
    /// The tangent of radians, for floats; integers give f32. It is [`sin`](Tensor::sin) divided by
    /// [`cos`](Tensor::cos).
    tan Tan;
    /// The arc sine, from -π/2 to π/2, for floats; integers give f32. It is NaN outside of -1 to 1.
    /// The error is at most 1e-6, also for the next two.
    asin Asin;
    /// The arc cosine, from 0 to π, for floats; integers give f32. It is NaN outside of -1 to 1.
    acos Acos;
    /// The arc tangent, from -π/2 to π/2, for floats; integers give f32.
    atan Atan;
    /// The hyperbolic sine, for floats; integers give f32.
    sinh Sinh;
    /// The hyperbolic cosine, for floats; integers give f32.
    cosh Cosh;
    /// The hyperbolic tangent, for floats; integers give f32.
    tanh Tanh;
    /// The inverse hyperbolic sine, for floats; integers give f32.
    asinh Asinh;
    /// The inverse hyperbolic cosine, at least 0, for floats; integers give f32. It is NaN below 1.
    acosh Acosh;
    /// The inverse hyperbolic tangent, for floats; integers give f32. It is ±∞ at ±1, and NaN
    /// beyond.
    atanh Atanh;
    /// The error function, for floats; integers give f32. The error is at most 2e-7.
    erf Erf;
    /// `1 - erf(x)`, for floats; integers give f32. It keeps its digits near 0: the tail is as
    /// exact as [`exp`](Tensor::exp), and ends at 9.2, where f32 ends.
    erfc Erfc;
    /// The inverse of the error function, for floats; integers give f32. The relative error is at
    /// most 1e-6. It is ±∞ at ±1, and NaN beyond.
    erfinv Erfinv;
    /// The normal distribution function Φ, for floats; integers give f32. It is PyTorch's
    /// `special.ndtr`. The error is at most 3e-7, so it is 0 below -5.66. There,
    /// `0.5 * erfc(-x / sqrt(2))` keeps its digits.
    ndtr Ndtr;
    /// `sin(πx) / (πx)`, and 1 at 0, for floats; integers give f32. The error is at most 1e-6. It
    /// is exactly 0 at all other whole numbers.
    sinc Sinc;
    /// `log(x / (1 - x))`, the inverse of [`sigmoid`](Tensor::sigmoid), for floats; integers give
    /// f32. It is -∞ at 0, ∞ at 1, and NaN beyond. For PyTorch's `eps`, use
    /// [`clamp`](Tensor::clamp) first.
    logit Logit;
    /// `1 / (1 + exp(-x))`, for floats; integers give f32. There is no intermediate overflow.
    #[doc(alias = "expit")]
    sigmoid Sigmoid;
    /// `x * sigmoid(x)`, also called swish, for floats.
    silu Silu;
    /// `x · Φ(x)` with the normal distribution function Φ, for floats: PyTorch's default. The error
    /// is at most 5e-7 where `x` is below 8.
    gelu Gelu;
    /// The approximation of [`gelu`](Tensor::gelu) by the hyperbolic tangent, for floats: PyTorch's
    /// `approximate="tanh"`.
    gelu_tanh GeluTanh;
    /// `log(1 + exp(x))`, for floats, without intermediate overflow.
    softplus Softplus;
    /// The logarithm of [`sigmoid`](Tensor::sigmoid), for floats.
    #[doc(alias = "logsigmoid")]
    log_sigmoid LogSigmoid;
    /// `x / (1 + |x|)`, for floats.
    softsign Softsign;
    /// `x * tanh(softplus(x))`, for floats.
    mish Mish;
    /// `x / 6 + 1/2`, clamped to between 0 and 1, for floats.
    hardsigmoid Hardsigmoid;
    /// `x * hardsigmoid(x)`, for floats.
    hardswish Hardswish;
    /// `x - tanh(x)`, for floats. The relative error is at most 2e-6, also near 0.
    tanhshrink Tanhshrink;
    /// Converts degrees to radians, for floats; integers give f32: `x * π / 180`.
    deg2rad Deg2rad;
    /// Converts radians to degrees, for floats; integers give f32: `x * 180 / π`.
    rad2deg Rad2deg;
    /// Rounds down to a whole number, for all numbers; copies integers.
    floor Floor;
    /// Rounds up to a whole number, for all numbers; copies integers.
    ceil Ceil;
    /// Rounds to the nearest whole number, ties to even, for all numbers; copies integers.
    round Round;
    /// Rounds towards 0 to a whole number, for all numbers; copies integers.
    #[doc(alias = "fix")]
    trunc Trunc;
    /// The fraction that [`trunc`](Tensor::trunc) removes, with the sign of `x`, for floats.
    frac Frac;
    /// Whether it is 0 or false. A bool tensor, for every type.
    logical_not LogicalNot;
    /// Whether it is NaN. A bool tensor, for every type.
    #[doc(alias = "isnan")]
    is_nan IsNan;
    /// Whether it is infinite. A bool tensor, for every type.
    #[doc(alias = "isinf")]
    is_inf IsInf;
    /// Whether its sign is negative, also that of -0. A bool tensor, for all numbers.
    signbit Signbit;
    /// Whether it is neither infinite nor NaN. A bool tensor, for every type.
    #[doc(alias = "isfinite")]
    is_finite IsFinite;
}

macro_rules! in_place {
    ($($name:ident $op:ident $of:literal;)+) => {
        impl Tensor {$(
            #[doc = concat!("[`", $of, "`](Tensor::", $of, ") in place.")]
            ///
            /// # Errors
            ///
            #[doc = concat!("Those of [`", $of, "`](Tensor::", $of, ") and of [`add_`](Tensor::add_).")]
            #[track_caller]
            pub fn $name(&self) -> Result<()> {
                let _method = MadeFor::method(stringify!($name));
                let written = self.unary_in_place(UnaryOp::$op, [0, 0]);
                written.called(stringify!($name))
            }
        )+}
    };
}

in_place! {
    neg_ Neg "neg";
    abs_ Abs "abs";
    square_ Square "square";
    relu_ Relu "relu";
    exp_ Exp "exp";
    log_ Log "log";
    sqrt_ Sqrt "sqrt";
    rsqrt_ Rsqrt "rsqrt";
    recip_ Recip "recip";
    sin_ Sin "sin";
    cos_ Cos "cos";
    tanh_ Tanh "tanh";
    sigmoid_ Sigmoid "sigmoid";
    silu_ Silu "silu";
    gelu_ Gelu "gelu";
    floor_ Floor "floor";
    ceil_ Ceil "ceil";
    round_ Round "round";
    trunc_ Trunc "trunc";
}
