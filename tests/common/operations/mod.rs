//! Every operation that reads a tensor, as a call of operands that a test may make as it likes.

#![allow(dead_code, reason = "not every program looks at all of it")]

mod elementwise;
mod indexing;
mod layers;
mod reductions;

use lapidary::{DType, Result, Tensor};

/// A shape, for a matrix of so many rows and columns.
pub(crate) type Shape = fn(usize, usize) -> Vec<usize>;

/// What the elements of an operand are.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Holds {
    /// Numbers from 1 to 9; different ones next to each other.
    Numbers,
    /// Numbers between 0 and 1.
    Shares,
    /// Bools that come and go.
    Truths,
    /// Different places in an axis, as `u32`, in each run of so many.
    Places(fn(usize, usize) -> usize),
}

/// An operand of an operation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Operand {
    pub(crate) shape: Shape,
    pub(crate) holds: Holds,
    /// Its type, unless it is the operation's.
    pub(crate) dtype: Option<DType>,
}

impl Operand {
    /// What it holds if it is of this type.
    pub(crate) fn holds(&self, dtype: DType) -> Holds {
        match dtype {
            DType::Bool => Holds::Truths,
            _ => self.holds,
        }
    }
}

/// What an operation makes of its operands.
pub(crate) type Call = fn(&[Tensor]) -> Result<Vec<Tensor>>;

/// An operation with its operands.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Operation {
    /// The method's, and after a comma what is special.
    pub(crate) name: &'static str,
    /// The types that are tried.
    pub(crate) dtypes: &'static [DType],
    pub(crate) operands: &'static [Operand],
    pub(crate) call: Call,
    /// Has its family of kernels an addressing that this operation stands for?
    pub(crate) stands_for_family: bool,
}

impl Operation {
    pub(crate) fn method(&self) -> &'static str {
        self.name.split(',').next().unwrap_or(self.name)
    }

    /// Does it write through its first operand?
    pub(crate) fn writes(&self) -> bool {
        let method = self.method();
        method.ends_with('_') && method != "where_"
    }
}

/// All of them.
pub(crate) fn all() -> impl Iterator<Item = &'static Operation> {
    [
        elementwise::ALL,
        reductions::ALL,
        indexing::ALL,
        layers::ALL,
    ]
    .into_iter()
    .flatten()
    .copied()
    .flatten()
}

pub(crate) const FLOATS: &[DType] = &[DType::F32, DType::F16, DType::Bf16];
pub(crate) const WHOLE: &[DType] = &[DType::I32, DType::U32, DType::U8, DType::I8];
pub(crate) const NUMBERS: &[DType] = &[DType::F32, DType::F16, DType::I32, DType::U8];
pub(crate) const EVERY: &[DType] = &[DType::F32, DType::Bf16, DType::U32, DType::I8, DType::Bool];
pub(crate) const WIDE: &[DType] = &[DType::F32];

pub(crate) const MATRIX: Shape = |rows, columns| vec![rows, columns];
pub(crate) const ROW: Shape = |_, columns| vec![columns];
pub(crate) const COLUMN: Shape = |rows, _| vec![rows, 1];
pub(crate) const ONE: Shape = |_, _| vec![];
/// As many elements as the matrix has rows.
pub(crate) const OF_ROWS: Shape = |rows, _| vec![rows];

/// Numbers of the operation's type.
pub(crate) const fn x(shape: Shape) -> Operand {
    Operand {
        shape,
        holds: Holds::Numbers,
        dtype: None,
    }
}

/// Numbers between 0 and 1, of the operation's type.
pub(crate) const fn share(shape: Shape) -> Operand {
    Operand {
        holds: Holds::Shares,
        ..x(shape)
    }
}

/// Bools.
pub(crate) const fn mask(shape: Shape) -> Operand {
    Operand {
        holds: Holds::Truths,
        dtype: Some(DType::Bool),
        ..x(shape)
    }
}

/// Places in an axis of so many elements.
pub(crate) const fn places(shape: Shape, axis: fn(usize, usize) -> usize) -> Operand {
    Operand {
        holds: Holds::Places(axis),
        dtype: Some(DType::U32),
        ..x(shape)
    }
}

/// Numbers of one type, whatever the operation's.
pub(crate) const fn of(dtype: DType, shape: Shape) -> Operand {
    Operand {
        dtype: Some(dtype),
        ..x(shape)
    }
}

pub(crate) const fn op(
    name: &'static str,
    dtypes: &'static [DType],
    operands: &'static [Operand],
    call: Call,
) -> Operation {
    Operation {
        name,
        dtypes,
        operands,
        call,
        stands_for_family: false,
    }
}

/// An operation that stands for its family.
pub(crate) const fn family(
    name: &'static str,
    dtypes: &'static [DType],
    operands: &'static [Operand],
    call: Call,
) -> Operation {
    Operation {
        stands_for_family: true,
        ..op(name, dtypes, operands, call)
    }
}

/// The one result of a call.
pub(crate) fn one(made: Result<Tensor>) -> Result<Vec<Tensor>> {
    Ok(vec![made?])
}

/// The two results of a call.
pub(crate) fn pair(made: Result<(Tensor, Tensor)>) -> Result<Vec<Tensor>> {
    let (first, second) = made?;
    Ok(vec![first, second])
}

/// The result of a call that wrote through its first operand.
pub(crate) fn written(operands: &[Tensor], done: Result<()>) -> Result<Vec<Tensor>> {
    done?;
    Ok(vec![operands[0].clone()])
}
