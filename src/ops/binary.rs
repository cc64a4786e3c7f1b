//! Operations on pairs of elements, from two tensors or from a tensor and a scalar.

mod gradient;
#[cfg(any(test, feature = "sim"))]
pub(super) mod reference;

use std::borrow::Cow;

use super::elementwise::element::Element;
use super::elementwise::{self, Code, Fetch, Input};
use super::operation::{as_float, kernels, operations, same_dtype};
use super::scalar::Scalar;
use crate::ops::unary::UnaryOp;
use crate::tensor::Tensor;
use crate::tensor::called::Called;
use crate::tensor::layout::broadcast_shapes;
use lapidary_core::Result;
use lapidary_core::internal::{BuiltInKernel, MadeFor, Operand, Variant};

const WGSL: &str = include_str!("../../shaders/binary.wgsl");

operations! {
    /// A binary operation.
    BinaryOp {
        Add "add" Numbers Same,
        Sub "sub" Numbers Same,
        Mul "mul" Numbers Same,
        Div "div" Numbers Same,
        Rem "rem" Numbers Same,
        Pow "pow" Numbers Same,
        Maximum "maximum" Numbers Same,
        Minimum "minimum" Numbers Same,
        Eq "eq" All Bool,
        Ne "ne" All Bool,
        Lt "lt" All Bool,
        Le "le" All Bool,
        Gt "gt" All Bool,
        Ge "ge" All Bool,
        And "logical_and" All Bool,
        Or "logical_or" All Bool,
        Xor "logical_xor" All Bool,
        Remainder "remainder" Numbers Same,
        FloorDivide "floor_divide" Numbers Same,
        Atan2 "atan2" Floats Float,
        Hypot "hypot" Floats Same,
        Copysign "copysign" Floats Float,
        Fmax "fmax" Floats Same,
        Fmin "fmin" Floats Same,
        BitwiseAnd "bitwise_and" Bits Same,
        BitwiseOr "bitwise_or" Bits Same,
        BitwiseXor "bitwise_xor" Bits Same,
        LeftShift "left_shift" Whole Same,
        RightShift "right_shift" Whole Same,
        Logaddexp "logaddexp" Floats Same,
        Logaddexp2 "logaddexp2" Floats Same,
        Xlogy "xlogy" Floats Float,
        Xlog1py "xlog1py" Floats Float,
        Heaviside "heaviside" Numbers Same,
        Gcd "gcd" Whole Same,
        Lcm "lcm" Whole Same,
        Lerp "lerp" Floats Same,
        IsClose "is_close" Floats Bool,
        Glu "glu" Floats Same,
        Bit "bit" Whole Bool,
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

    /// Raises every element to the power of one number, for all numbers, as [`pow`](Tensor::pow).
    /// For floats, the powers 2, 1/2, -1/2 and -1 are as exact as [`square`](Tensor::square),
    /// [`sqrt`](Tensor::sqrt), [`rsqrt`](Tensor::rsqrt) and [`recip`](Tensor::recip).
    ///
    /// # Errors
    ///
    /// [`Error::DType`](crate::Error::DType) for a bool tensor, or for an exponent that its type
    /// cannot hold.
    #[track_caller]
    pub fn pow_scalar(&self, exponent: impl Into<Scalar>) -> Result<Tensor> {
        let _method = MadeFor::method("pow_scalar");
        let exponent = exponent.into();
        let op = match exponent.as_f64() {
            _ if !self.dtype.is_float() || matches!(exponent, Scalar::Bool(_)) => None,
            2.0 => Some(UnaryOp::Square),
            0.5 => Some(UnaryOp::Sqrt),
            -0.5 => Some(UnaryOp::Rsqrt),
            -1.0 => Some(UnaryOp::Recip),
            _ => None,
        };
        let made = match op {
            Some(op) => self.unary(op),
            None => self.with_scalar(BinaryOp::Pow, exponent),
        };
        made.called("pow_scalar")
    }
}

macro_rules! methods {
    ($($(#[$doc:meta])+ $name:ident $scalar:ident $op:ident;)+) => {
        /// Operations on the elements of two tensors, or of a tensor and a number. Shapes broadcast
        /// as in NumPy.
        ///
        /// Both operands have one type. Nothing is promoted; use [`cast`](Tensor::cast) to convert.
        /// `u8` and `i8` wrap at 2⁸, the other integers at 2³². Comparisons give bools. Comparisons
        /// with NaN are false, except `ne`.
        ///
        /// ```
        /// # fn demo(x: &lapidary::Tensor, bias: &lapidary::Tensor) -> lapidary::Result<()> {
        /// let y = (x * 2.0)?.add(bias)?.maximum_scalar(0.0)?;
        /// let positive = y.gt_scalar(0)?;
        /// # Ok(()) }
        /// ```
        impl Tensor {$(
            $(#[$doc])+
            ///
            /// # Errors
            ///
            /// [`Error::DType`](crate::Error::DType) for other types, or for two different ones;
            /// [`Error::Shape`](crate::Error::Shape) if the shapes do not broadcast;
            /// [`Error::Foreign`](crate::Error::Foreign).
            #[track_caller]
            pub fn $name(&self, other: &Tensor) -> Result<Tensor> {
                let _method = MadeFor::method(stringify!($name));
                self.binary(BinaryOp::$op, other).located()
            }

            #[doc = concat!("[`", stringify!($name), "`](Tensor::", stringify!($name), ") with one number on the right.")]
            ///
            /// # Errors
            ///
            /// [`Error::DType`](crate::Error::DType) for other types, or if the tensor's type
            /// cannot hold the number.
            #[track_caller]
            pub fn $scalar(&self, value: impl Into<Scalar>) -> Result<Tensor> {
                let _method = MadeFor::method(stringify!($scalar));
                let made = self.with_scalar(BinaryOp::$op, value.into());
                made.called(stringify!($scalar))
            }
        )+}
    };
}

methods! {
    /// `a + b`, for all numbers.
    add add_scalar Add;
    /// `a - b`, for all numbers.
    sub sub_scalar Sub;
    /// `a * b`, for all numbers.
    mul mul_scalar Mul;
    /// `a / b`, for all numbers. Integers are rounded towards 0. For integers, `a / 0` is `a`, and
    /// the least `i32` or `i8` by -1 is itself.
    div div_scalar Div;
    /// The remainder of [`div`](Tensor::div) with the sign of the dividend, as Rust's `%` and C's
    /// `fmod`, for all numbers. For integers, `a % 0` is 0. For floats it is exact, and NaN by 0
    /// and of infinity. If an adapter treats subnormal numbers as 0, so does this.
    #[doc(alias = "fmod")]
    rem rem_scalar Rem;
    /// The remainder of [`floor_divide`](Tensor::floor_divide) with the sign of the divisor, as
    /// Python's and NumPy's `%`, for all numbers. By 0 it is 0 for integers, NaN for floats. It
    /// equals [`rem`](Tensor::rem); if the signs differ, the divisor is added and the sum rounded
    /// once. If an adapter treats subnormal numbers as 0, the error may reach the least normal
    /// number.
    remainder remainder_scalar Remainder;
    /// `a / b`, rounded down to a whole number, as Python's `//`, for all numbers. Integers by 0
    /// are `a`, as in [`div`](Tensor::div), and the least `i32` or `i8` by -1 is itself. For floats
    /// it is `(a - rem) / b`, rounded, as in PyTorch. It is exact up to 2²⁰, and at most 4 units in
    /// the last place off beyond.
    floor_divide floor_divide_scalar FloorDivide;
    /// The angle of the point (`b`, `a`), from -π to π, for floats; integers give f32. It is the
    /// arc tangent of `a / b` in the right quadrant, to 1e-6. The signs of zeros and infinities
    /// count, as in C.
    atan2 atan2_scalar Atan2;
    /// `sqrt(a² + b²)`, for floats, without intermediate overflow. ∞ if either is infinite.
    hypot hypot_scalar Hypot;
    /// The magnitude of `a` with the sign of `b`, for floats; integers give f32.
    copysign copysign_scalar Copysign;
    /// The larger of the two, for all numbers; NaN if either is.
    maximum maximum_scalar Maximum;
    /// The smaller of the two, for all numbers; NaN if either is.
    minimum minimum_scalar Minimum;
    /// The larger of the two, for floats. If one is NaN, the other one.
    fmax fmax_scalar Fmax;
    /// The smaller of the two, for floats. If one is NaN, the other one.
    fmin fmin_scalar Fmin;
    /// `log(exp(a) + exp(b))`, for floats, without intermediate overflow. The error is at most 5e-7
    /// plus the rounding of the larger one.
    logaddexp logaddexp_scalar Logaddexp;
    /// [`logaddexp`](Tensor::logaddexp) with base 2, for floats.
    logaddexp2 logaddexp2_scalar Logaddexp2;
    /// `a * log(b)`, for floats; integers give f32. It is 0 if `a` is 0, and NaN if either is NaN.
    xlogy xlogy_scalar Xlogy;
    /// `a * log(1 + b)`, for floats; integers give f32. It is 0 if `a` is 0, and NaN if either is
    /// NaN.
    xlog1py xlog1py_scalar Xlog1py;
    /// 0 if `a` is below 0, 1 if it is above, and `b` if it is 0, for all numbers. NaN stays NaN,
    /// as in NumPy; PyTorch gives 0. Gradients take the result as a constant.
    heaviside heaviside_scalar Heaviside;
    /// The greatest common divisor, at least 0, for `i32`, `u32`, `u8` and `i8`. With 0 it is the
    /// absolute value of the other one, which wraps for the least number.
    gcd gcd_scalar Gcd;
    /// The least common multiple, for `i32`, `u32`, `u8` and `i8`. 0 if either is 0, else at least
    /// 1 unless it wraps.
    lcm lcm_scalar Lcm;
    /// `a & b`, bit by bit, for `i32`, `u32`, `u8`, `i8` and bools.
    bitwise_and bitwise_and_scalar BitwiseAnd;
    /// `a | b`, bit by bit, for `i32`, `u32`, `u8`, `i8` and bools.
    bitwise_or bitwise_or_scalar BitwiseOr;
    /// `a ^ b`, bit by bit, for `i32`, `u32`, `u8`, `i8` and bools.
    bitwise_xor bitwise_xor_scalar BitwiseXor;
    /// `a << b`, for `i32`, `u32`, `u8` and `i8`. It is 0 if `b` is negative, or at least the
    /// number of bits of the type.
    left_shift left_shift_scalar LeftShift;
    /// `a >> b`, for `i32`, `u32`, `u8` and `i8`. Signed types keep their sign. If `b` is negative
    /// or at least the number of bits of the type, it is 0, or -1 for a negative `a`.
    right_shift right_shift_scalar RightShift;
    /// `a == b`, as bools, for every type.
    eq eq_scalar Eq;
    /// `a != b`, as bools, for every type.
    ne ne_scalar Ne;
    /// `a < b`, as bools, for every type.
    lt lt_scalar Lt;
    /// `a <= b`, as bools, for every type.
    le le_scalar Le;
    /// `a > b`, as bools, for every type.
    gt gt_scalar Gt;
    /// `a >= b`, as bools, for every type.
    ge ge_scalar Ge;
}

macro_rules! without_scalar {
    ($($(#[$doc:meta])+ $name:ident $op:ident;)+) => {
        impl Tensor {$(
            $(#[$doc])+
            ///
            /// # Errors
            ///
            /// Those of [`add`](Tensor::add).
            #[track_caller]
            pub fn $name(&self, other: &Tensor) -> Result<Tensor> {
                let _method = MadeFor::method(stringify!($name));
                self.binary(BinaryOp::$op, other).located()
            }
        )+}
    };
}

without_scalar! {
    /// `a` to the power of `b`, for all numbers. Floats follow C: a negative base needs whole
    /// exponents, and anything to the power of 0 is 1. They are exact to about 1e-6 of the result
    /// times its logarithm. Integers wrap. To a negative power they are 0, except 1 and -1.
    #[doc(alias = "float_power")]
    pow Pow;
    /// Whether both are true, for every type. All values except 0 are true, also NaN.
    logical_and And;
    /// Whether either is true, for every type, as [`logical_and`](Tensor::logical_and).
    logical_or Or;
    /// Whether exactly one is true, for every type, as [`logical_and`](Tensor::logical_and).
    logical_xor Xor;
}

macro_rules! in_place {
    ($($name:ident $scalar:ident $of:literal $op:ident;)+) => {
        /// Operations that write through `self`: every tensor that shares its storage sees the
        /// result. `self` may be any view in which no two indices name one element. Elements
        /// outside of the view stay unchanged. An operand that shares the storage is read before it
        /// is written.
        ///
        /// ```
        /// # fn demo(x: &lapidary::Tensor, gradient: &lapidary::Tensor) -> lapidary::Result<()> {
        /// x.sub_(&(gradient * 0.01)?)?;
        /// # Ok(()) }
        /// ```
        impl Tensor {$(
            #[doc = concat!("[`", $of, "`](Tensor::", $of, ") in place. `other` broadcasts to the shape of `self`.")]
            ///
            /// # Errors
            ///
            #[doc = concat!("Those of [`", $of, "`](Tensor::", $of, "), and")]
            /// [`Error::Shape`](crate::Error::Shape) if `self` is a view in which several indices
            /// name one element, such as a broadcast.
            #[track_caller]
            pub fn $name(&self, other: &Tensor) -> Result<()> {
                let _method = MadeFor::method(stringify!($name));
                let written = self.binary_in_place(BinaryOp::$op, other, &[]);
                written.called(stringify!($name))
            }

            #[doc = concat!("[`", stringify!($name), "`](Tensor::", stringify!($name), ") with one number.")]
            ///
            /// # Errors
            ///
            #[doc = concat!("Those of [`", stringify!($name), "`](Tensor::", stringify!($name), ").")]
            #[track_caller]
            pub fn $scalar(&self, value: impl Into<Scalar>) -> Result<()> {
                let _method = MadeFor::method(stringify!($scalar));
                let written = self.scalar_in_place(BinaryOp::$op, value.into());
                written.called(stringify!($scalar))
            }
        )+}
    };
}

in_place! {
    add_ add_scalar_ "add" Add;
    sub_ sub_scalar_ "sub" Sub;
    mul_ mul_scalar_ "mul" Mul;
    div_ div_scalar_ "div" Div;
    maximum_ maximum_scalar_ "maximum" Maximum;
    minimum_ minimum_scalar_ "minimum" Minimum;
    rem_ rem_scalar_ "rem" Rem;
    remainder_ remainder_scalar_ "remainder" Remainder;
    floor_divide_ floor_divide_scalar_ "floor_divide" FloorDivide;
    pow_ pow_scalar_ "pow" Pow;
    atan2_ atan2_scalar_ "atan2" Atan2;
    hypot_ hypot_scalar_ "hypot" Hypot;
    copysign_ copysign_scalar_ "copysign" Copysign;
    xlogy_ xlogy_scalar_ "xlogy" Xlogy;
    heaviside_ heaviside_scalar_ "heaviside" Heaviside;
    gcd_ gcd_scalar_ "gcd" Gcd;
    lcm_ lcm_scalar_ "lcm" Lcm;
    bitwise_and_ bitwise_and_scalar_ "bitwise_and" BitwiseAnd;
    bitwise_or_ bitwise_or_scalar_ "bitwise_or" BitwiseOr;
    bitwise_xor_ bitwise_xor_scalar_ "bitwise_xor" BitwiseXor;
    left_shift_ left_shift_scalar_ "left_shift" LeftShift;
    right_shift_ right_shift_scalar_ "right_shift" RightShift;
}
