//! `+`, `-`, `*`, `/`, `%`, `-x` and `!x` on tensors and numbers; `&`, `|`, `^`, `<<` and `>>` on
//! tensors.
//!
//! They can fail, so each gives a [`Result`]: `(a.matmul(&b)? + &bias)?.relu()?`. A number on the
//! right is anything that converts to a [`Scalar`]. On the left it has one type of float or one of
//! integers, so that literals need no suffix.

use std::ops::{Add, BitAnd, BitOr, BitXor, Div, Mul, Neg, Not, Rem, Shl, Shr, Sub};

use super::binary::BinaryOp;
use super::scalar::Scalar;
use crate::tensor::Tensor;
use lapidary_core::Result;

macro_rules! with_tensor {
    ($($trait:ident $method:ident $op:ident: $left:ty, $right:ty;)*) => {$(
        impl $trait<$right> for $left {
            type Output = Result<Tensor>;

            #[track_caller]
            fn $method(self, other: $right) -> Result<Tensor> {
                Tensor::binary(&self, BinaryOp::$op, &other)
            }
        }
    )*};
}

macro_rules! with_number {
    ($($trait:ident $method:ident $op:ident: $tensor:ty;)*) => {$(
        impl<S: Into<Scalar>> $trait<S> for $tensor {
            type Output = Result<Tensor>;

            #[track_caller]
            fn $method(self, number: S) -> Result<Tensor> {
                self.with_scalar(BinaryOp::$op, number.into())
            }
        }

        impl $trait<$tensor> for f32 {
            type Output = Result<Tensor>;

            #[track_caller]
            fn $method(self, tensor: $tensor) -> Result<Tensor> {
                tensor.scalar_first(BinaryOp::$op, self.into())
            }
        }

        impl $trait<$tensor> for i32 {
            type Output = Result<Tensor>;

            #[track_caller]
            fn $method(self, tensor: $tensor) -> Result<Tensor> {
                tensor.scalar_first(BinaryOp::$op, self.into())
            }
        }
    )*};
}

macro_rules! operators {
    ($($trait:ident $method:ident $op:ident;)*) => {$(
        with_tensor! {
            $trait $method $op: Tensor, Tensor;
            $trait $method $op: Tensor, &Tensor;
            $trait $method $op: &Tensor, Tensor;
            $trait $method $op: &Tensor, &Tensor;
        }
        with_number! {
            $trait $method $op: Tensor;
            $trait $method $op: &Tensor;
        }
    )*};
}

operators! {
    Add add Add;
    Sub sub Sub;
    Mul mul Mul;
    Div div Div;
    Rem rem Rem;
}

macro_rules! bit_operators {
    ($($trait:ident $method:ident $op:ident;)*) => {$(
        with_tensor! {
            $trait $method $op: Tensor, Tensor;
            $trait $method $op: Tensor, &Tensor;
            $trait $method $op: &Tensor, Tensor;
            $trait $method $op: &Tensor, &Tensor;
        }
    )*};
}

bit_operators! {
    BitAnd bitand BitwiseAnd;
    BitOr bitor BitwiseOr;
    BitXor bitxor BitwiseXor;
    Shl shl LeftShift;
    Shr shr RightShift;
}

macro_rules! prefixes {
    ($($trait:ident $method:ident $by:ident: $tensor:ty;)*) => {$(
        impl $trait for $tensor {
            type Output = Result<Tensor>;

            #[track_caller]
            fn $method(self) -> Result<Tensor> {
                Tensor::$by(&self)
            }
        }
    )*};
}

prefixes! {
    Neg neg neg: Tensor;
    Neg neg neg: &Tensor;
    Not not logical_not: Tensor;
    Not not logical_not: &Tensor;
}
