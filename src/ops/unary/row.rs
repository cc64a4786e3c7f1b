//! What a row of the [table](super::table) of unary operations says, and what follows from it: the
//! type [`UnaryOp`](super::UnaryOp), the methods of tensors, and the tables of the documentation.

#[cfg(any(test, feature = "sim"))]
use super::reference::Reference;
#[cfg(any(test, feature = "sim"))]
use crate::ops::operation::Gives;
use crate::tensor::Tensor;
use lapidary_core::{DType, Result};

/// A unary operation.
#[derive(Debug)]
pub struct UnaryRow {
    /// Also the section of the WGSL.
    pub name: &'static str,
    #[cfg(any(test, feature = "sim"))]
    pub(super) op: super::UnaryOp,
    /// None or one.
    pub(super) of_integers: &'static [OfIntegers],
    pub(super) gradient: Gradient,
    #[cfg(any(test, feature = "sim"))]
    pub(super) reference: Reference,
    /// Where it is smooth: from the first number to the second.
    #[cfg(any(test, feature = "sim"))]
    pub domain: [f32; 2],
    /// The most relative and absolute error of a result.
    #[cfg(any(test, feature = "sim"))]
    pub error: [f32; 2],
}

impl UnaryRow {
    /// What the operation gives for a type of integers or bools without computing.
    pub(super) fn of_integers(&self, dtype: DType) -> Option<OfIntegers> {
        let of = self.of_integers.first().copied();
        of.filter(|&of| !dtype.is_float() && (dtype != DType::Bool || of != OfIntegers::Themselves))
    }

    /// Does the operation take this type, without a cast to f32?
    #[cfg(any(test, feature = "sim"))]
    pub fn accepts(&self, dtype: DType) -> bool {
        self.op.takes().accepts(dtype) || self.of_integers(dtype).is_some()
    }

    /// Is the result of floats a float?
    #[cfg(any(test, feature = "sim"))]
    pub fn gives_floats(&self) -> bool {
        self.op.takes().accepts(DType::F32) && self.op.gives() != Gives::Bool
    }
}

/// What an operation gives for integers and bools, as far as it is known without computing: they
/// are whole, and never NaN or infinite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OfIntegers {
    /// The operand's elements, unless they are bools.
    Themselves,
    /// One value for all elements.
    All(bool),
}

/// The gradient of the operand, from that of the result: the first tensor of each function.
#[derive(Clone, Copy, Debug)]
pub(super) enum Gradient {
    /// It is 0 everywhere: the result is no float, or changes in steps.
    Constant,
    /// It reads nothing else.
    Alone(fn(&Tensor) -> Result<Tensor>),
    /// It reads the result.
    Result(fn(&Tensor, &Tensor) -> Result<Tensor>),
    /// It is 0 where this is true of the result.
    ResultMask(fn(&Tensor) -> Result<Tensor>),
    /// It reads the operand.
    Operand(fn(&Tensor, &Tensor) -> Result<Tensor>),
    /// It reads the operand and the scalars.
    Scaled(fn(&Tensor, &Tensor, [f32; 2]) -> Result<Tensor>),
    /// It reads of the operand no more than a mask.
    Mask(MaskRule),
}

/// A mask of the operand, and the gradient by the mask. Both get the scalars, too.
#[derive(Clone, Copy, Debug)]
pub(super) struct MaskRule {
    pub(super) of: fn(&Tensor, [f32; 2]) -> Result<Tensor>,
    pub(super) through: fn(&Tensor, &Tensor, [f32; 2]) -> Result<Tensor>,
}

/// Makes everything of the table. `$d` is a dollar, for the macro within.
macro_rules! rows {
    (
        ($d:tt)
        by_hand {$(
            $hand:ident $hand_name:ident($($given:expr),*) $hand_takes:ident $hand_gives:ident,
                in $hand_domain:expr, $hand_error:expr;
                $hand_reference:expr, $hand_gradient:expr;
        )*}
        $($page:ident {$(
            #[doc = $first:literal] $(#[doc = $more:literal])*
            $op:ident $name:ident $(+ $in_place:ident)? $(= $alias:literal)?
                $takes:ident $gives:ident $(or $of_integers:expr)?,
                in $domain:expr, $error:expr;
                $reference:expr, $gradient:expr;
        )*})*
    ) => {
        crate::ops::operation::operations! {
            /// A unary operation.
            UnaryOp {
                $($hand $hand_name $hand_takes $hand_gives,)*
                $($($op $name $takes $gives,)*)*
            }
        }

        /// The rows, in the order of `UnaryOp::ALL`.
        pub static UNARY_ROWS: &[UnaryRow] = &[
            $(UnaryRow {
                name: stringify!($hand_name),
                #[cfg(any(test, feature = "sim"))]
                op: UnaryOp::$hand,
                of_integers: &[],
                gradient: $hand_gradient,
                #[cfg(any(test, feature = "sim"))]
                reference: $hand_reference,
                #[cfg(any(test, feature = "sim"))]
                domain: $hand_domain,
                #[cfg(any(test, feature = "sim"))]
                error: $hand_error,
            },)*
            $($(UnaryRow {
                name: stringify!($name),
                #[cfg(any(test, feature = "sim"))]
                op: UnaryOp::$op,
                of_integers: &[$($of_integers)?],
                gradient: $gradient,
                #[cfg(any(test, feature = "sim"))]
                reference: $reference,
                #[cfg(any(test, feature = "sim"))]
                domain: $domain,
                #[cfg(any(test, feature = "sim"))]
                error: $error,
            },)*)*
        ];

        impl Tensor {$($(
            #[doc = $first] $(#[doc = $more])*
            ///
            /// # Errors
            ///
            /// [`Error::DType`](crate::Error::DType) for other types.
            $(#[doc(alias = $alias)])?
            #[track_caller]
            pub fn $name(&self) -> Result<Tensor> {
                let _method = MadeFor::method(stringify!($name));
                self.unary(UnaryOp::$op).called(stringify!($name))
            }

            $(
                #[doc = concat!(method_link!("Tensor::", $name), " in place.")]
                ///
                /// # Errors
                ///
                #[doc = concat!("Those of ", method_link!("Tensor::", $name), " and of")]
                /// [`add_`](Tensor::add_).
                #[track_caller]
                pub fn $in_place(&self) -> Result<()> {
                    let _method = MadeFor::method(stringify!($in_place));
                    let written = self.unary_in_place(UnaryOp::$op, [0, 0]);
                    written.called(stringify!($in_place))
                }
            )?
        )*)*}

        /// A page's table.
        macro_rules! unary_table {
            $(($page) => {
                concat!("\n| methods | |\n| --- | --- |\n", $(
                    "| ", crate::ops::method_link!("crate::Tensor::", $name),
                    $(", ", crate::ops::method_link!("crate::Tensor::", $in_place),)?
                    " |", $first, " |\n",
                )*)
            };)*
        }
        pub(crate) use unary_table;

        /// Calls a macro with the methods of all rows, for tests. They call each at a line of
        /// theirs.
        #[doc(hidden)]
        #[macro_export]
        macro_rules! unary_methods {
            ($d then:ident) => {
                $d then! {
                    { $($($name)*)* }
                    { $($($($in_place)?)*)* }
                    { $($hand_name($($given),*);)* }
                }
            };
        }
    };
}
pub(super) use rows;
