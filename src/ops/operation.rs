//! The types that operations take and give.
//!
//! Nothing is promoted: two operands have one type, and the result has that type or is a bool. Use
//! `cast` to change a type. Functions of real numbers, such as the exponential, are the one
//! exception: for integers and bools they give f32.

use crate::tensor::Tensor;
use crate::tensor::called::Called;
use lapidary_core::{DType, Error, Result};

/// Which types an operation takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Takes {
    /// f32, f16 and bf16.
    Floats,
    /// All but bool.
    Numbers,
    /// i32, u32, u8 and i8.
    Whole,
    /// Those of `Whole`, and bool.
    Bits,
    /// Bool alone.
    Bools,
    /// Every type.
    All,
}

impl Takes {
    pub(crate) fn accepts(self, dtype: DType) -> bool {
        match self {
            Takes::Floats => dtype.is_float(),
            Takes::Numbers => dtype != DType::Bool,
            Takes::Whole => !dtype.is_float() && dtype != DType::Bool,
            Takes::Bits => !dtype.is_float(),
            Takes::Bools => dtype == DType::Bool,
            Takes::All => true,
        }
    }

    /// Returns an error for a type that the operation does not take.
    #[track_caller]
    pub(super) fn check(self, operation: &'static str, got: DType) -> Result<()> {
        let expected = match self {
            _ if self.accepts(got) => return Ok(()),
            Takes::Floats => "f32, f16 or bf16",
            Takes::Numbers => "a type of numbers",
            Takes::Whole => "i32, u32, u8 or i8",
            Takes::Bits => "i32, u32, u8, i8 or bool",
            Takes::Bools => "bool",
            Takes::All => "any type",
        };
        Err(Error::DType {
            operation,
            expected: expected.to_string(),
            got,
            hint: "Use `cast`",
            at: String::new(),
        })
        .located()
    }
}

/// The type of the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gives {
    /// The type of the operands.
    Same,
    /// A bool.
    Bool,
    /// A float: that of the operands, or f32 for integers and bools, which are cast first.
    Float,
}

impl Gives {
    pub(crate) fn dtype(self, operand: DType) -> DType {
        match self {
            Gives::Same | Gives::Float => operand,
            Gives::Bool => DType::Bool,
        }
    }
}

/// The operand cast to f32, if the operation gives floats and the operand is not one.
#[track_caller]
pub(super) fn as_float(gives: Gives, x: &Tensor) -> Result<Option<Tensor>> {
    match gives == Gives::Float && !x.dtype.is_float() {
        true => x.cast(DType::F32).map(Some),
        false => Ok(None),
    }
}

/// Returns an error if the operands have two types.
#[track_caller]
pub(super) fn same_dtype(operation: &'static str, a: DType, b: DType) -> Result<()> {
    match a == b {
        true => Ok(()),
        false => Err(Error::DType {
            operation,
            expected: a.to_string(),
            got: b,
            hint: "Nothing is promoted: use `cast`",
            at: String::new(),
        })
        .located(),
    }
}

/// Declares the operations of a family, from a table of name, what it takes and what it gives.
macro_rules! operations {
    ($(#[$doc:meta])* $name:ident { $($op:ident $text:ident $takes:ident $gives:ident,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum $name { $($op,)* }

        impl $name {
            pub(crate) const ALL: &[$name] = &[$($name::$op,)*];

            /// The operation's name, which is also its section in the WGSL.
            pub(crate) fn name(self) -> &'static str {
                match self { $($name::$op => stringify!($text),)* }
            }

            pub(crate) fn takes(self) -> crate::ops::operation::Takes {
                match self { $($name::$op => crate::ops::operation::Takes::$takes,)* }
            }

            pub(crate) fn gives(self) -> crate::ops::operation::Gives {
                match self { $($name::$op => crate::ops::operation::Gives::$gives,)* }
            }

            /// The operation of a variant's code.
            pub(crate) fn from_code(code: crate::ops::elementwise::Code) -> $name {
                $name::ALL[usize::from(code.op())]
            }
        }
    };
}
pub(super) use operations;

/// A link to a method, in the documentation.
macro_rules! method_link {
    ($path:literal, $method:ident) => {
        concat!(
            "[`",
            stringify!($method),
            "`](",
            $path,
            stringify!($method),
            ")"
        )
    };
}
pub(crate) use method_link;

/// Declares the kernels of a family, which share one text and one reference kernel.
macro_rules! kernels {
    ($reference:ident: $($(#[$doc:meta])* $kernel:ident $name:literal [$($operand:expr),*];)*) => {$(
        $(#[$doc])*
        pub(super) static $kernel: BuiltInKernel = BuiltInKernel {
            name: $name,
            operands: &[$($operand),*],
            text,
            reference: reference!(crate::ops::$reference::reference::run),
        };
    )*};
}
pub(super) use kernels;
