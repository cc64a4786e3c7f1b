//! What a row of the [table](super::table) of binary operations says, and what follows from it: the
//! type [`BinaryOp`](super::BinaryOp), the methods of tensors, and the tables of the documentation.

use smallvec::SmallVec;

#[cfg(any(test, feature = "sim"))]
use super::reference::Reference;
#[cfg(any(test, feature = "sim"))]
use crate::ops::operation::Gives;
use crate::tensor::Tensor;
use crate::tensor::history::{Backward, Grads};
use lapidary_core::Result;

/// A binary operation.
#[derive(Debug)]
pub struct BinaryRow {
    /// Also the section of the WGSL.
    pub name: &'static str,
    #[cfg(any(test, feature = "sim"))]
    pub(super) op: super::BinaryOp,
    pub(super) gradient: Gradient,
    #[cfg(any(test, feature = "sim"))]
    pub(super) reference: Reference,
    /// Where it is smooth: two intervals, of both operands.
    #[cfg(any(test, feature = "sim"))]
    pub domain: [[f32; 2]; 2],
    /// The most relative and absolute error of a result.
    #[cfg(any(test, feature = "sim"))]
    pub error: [f32; 2],
}

#[cfg(any(test, feature = "sim"))]
impl BinaryRow {
    /// Does the operation take this type, without a cast to f32?
    pub fn accepts(&self, dtype: lapidary_core::DType) -> bool {
        self.op.takes().accepts(dtype)
    }

    /// Is the result of floats a float?
    pub fn gives_floats(&self) -> bool {
        self.op.takes().accepts(lapidary_core::DType::F32) && self.op.gives() != Gives::Bool
    }

    /// Has it a gradient?
    pub fn has_gradient(&self) -> bool {
        !matches!(self.gradient, Gradient::Constant)
    }
}

/// The gradients of both operands, in the shape of the result.
#[derive(Clone, Copy, Debug)]
pub(super) enum Gradient {
    /// There is none: the result is no float, counts, compares or jumps.
    Constant,
    /// The method that calls the operation has it.
    ByMethod,
    /// They read nothing beside the gradient of the result.
    Alone(fn(&Backward) -> Result<Grads>),
    /// They read the operands.
    Operands(fn(&Backward, &Tensor, &Tensor) -> Result<Grads>),
    /// They read the operands and the result.
    WithResult(fn(&Backward, &Tensor, &Tensor, &Tensor) -> Result<Grads>),
    /// They read of the operands which one is the result: whether it is the first, and whether it
    /// is the second. Of equal operands it is both. With a NaN it is neither, unless the operation
    /// ignores NaN: then the first mask alone says which.
    OfExtreme(Choose),
    /// That of each operand reads the other one.
    OfProduct,
    /// Only that of the divisor reads the dividend.
    OfQuotient,
}

/// Masks of the operands that an extreme is.
pub(super) type Choose = fn(&Tensor, &Tensor) -> Result<SmallVec<[Tensor; 2]>>;

/// Makes everything of the table. `$d` is a dollar, for the macro within.
macro_rules! rows {
    (
        ($d:tt)
        by_hand {$(
            $hand:ident $hand_name:ident $hand_takes:ident $hand_gives:ident; $hand_reference:expr;
        )*}
        $($page:ident {$(
            #[doc = $first:literal] $(#[doc = $more:literal])*
            $op:ident $name:ident $(+ $in_place:ident)? $(= $alias:literal)?
                $takes:ident $gives:ident, in $domain:expr, $error:expr;
                $reference:expr, $gradient:expr;
        )*})*
    ) => {
        crate::ops::operation::operations! {
            /// A binary operation.
            BinaryOp {
                $($($op $name $takes $gives,)*)*
                $($hand $hand_name $hand_takes $hand_gives,)*
            }
        }

        /// The rows, in the order of `BinaryOp::ALL`.
        pub static BINARY_ROWS: &[BinaryRow] = &[
            $($(BinaryRow {
                name: stringify!($name),
                #[cfg(any(test, feature = "sim"))]
                op: BinaryOp::$op,
                gradient: $gradient,
                #[cfg(any(test, feature = "sim"))]
                reference: $reference,
                #[cfg(any(test, feature = "sim"))]
                domain: $domain,
                #[cfg(any(test, feature = "sim"))]
                error: $error,
            },)*)*
            $(BinaryRow {
                name: stringify!($hand_name),
                #[cfg(any(test, feature = "sim"))]
                op: BinaryOp::$hand,
                gradient: ByMethod,
                #[cfg(any(test, feature = "sim"))]
                reference: $hand_reference,
                #[cfg(any(test, feature = "sim"))]
                domain: [[0.0; 2]; 2],
                #[cfg(any(test, feature = "sim"))]
                error: [0.0; 2],
            },)*
        ];

        /// Operations on the elements of two tensors, or of a tensor and one number: `x.add(&y)`,
        /// `x.add(1.5)`. Shapes broadcast as in NumPy.
        ///
        /// Both operands have one type, and a number gets the tensor's. Nothing is promoted; use
        /// [`cast`](Tensor::cast) to convert. `u8` and `i8` wrap at 2⁸, the other integers at 2³².
        /// Comparisons give bools. Comparisons with NaN are false, except `ne`.
        ///
        /// ```
        /// # fn demo(x: &lapidary::Tensor, bias: &lapidary::Tensor) -> lapidary::Result<()> {
        /// let y = (x * 2.0)?.add(bias)?.maximum(0.0)?;
        /// let positive = y.gt(0)?;
        /// # Ok(()) }
        /// ```
        impl Tensor {$($(
            #[doc = $first] $(#[doc = $more])*
            ///
            /// # Errors
            ///
            /// [`Error::DType`](crate::Error::DType) for other types, for two different ones, or
            /// for a number that the type cannot hold; [`Error::Shape`](crate::Error::Shape) if
            /// the shapes do not broadcast; [`Error::Foreign`](crate::Error::Foreign).
            $(#[doc(alias = $alias)])?
            #[track_caller]
            pub fn $name<'a>(&self, other: impl Into<TensorOrNumber<'a>>) -> Result<Tensor> {
                let _method = MadeFor::method(stringify!($name));
                self.binary_of(BinaryOp::$op, other.into()).called(stringify!($name))
            }
        )*)*}

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
        impl Tensor {$($($(
            #[doc = concat!(method_link!("Tensor::", $name), " in place. `other` broadcasts to the shape")]
            /// of `self`.
            ///
            /// # Errors
            ///
            #[doc = concat!("Those of ", method_link!("Tensor::", $name), ", and")]
            /// [`Error::Shape`](crate::Error::Shape) if `self` is a view in which several indices
            /// name one element, such as a broadcast.
            #[track_caller]
            pub fn $in_place<'a>(&self, other: impl Into<TensorOrNumber<'a>>) -> Result<()> {
                let _method = MadeFor::method(stringify!($in_place));
                let written = self.binary_in_place_of(BinaryOp::$op, other.into());
                written.called(stringify!($in_place))
            }
        )?)*)*}

        /// A page's table.
        macro_rules! binary_table {
            $(($page) => {
                concat!("\n| methods | |\n| --- | --- |\n", $(
                    "| ", crate::ops::method_link!("crate::Tensor::", $name),
                    $(", ", crate::ops::method_link!("crate::Tensor::", $in_place),)?
                    " |", $first, " |\n",
                )*)
            };)*
        }
        pub(crate) use binary_table;

        /// Calls a macro with the methods of all rows, for tests. They call each at a line of
        /// theirs.
        #[doc(hidden)]
        #[macro_export]
        macro_rules! binary_methods {
            ($d then:ident) => {
                $d then! {
                    { $($($name)*)* }
                    { $($($($in_place)?)*)* }
                }
            };
        }
    };
}
pub(super) use rows;
