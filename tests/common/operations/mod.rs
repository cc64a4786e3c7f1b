//! Every operation that reads a tensor, as a call with operands that a test may prepare.

mod elementwise;
mod indexing;
mod layers;
mod reductions;

use lapidary::{DType, Gpu, Result, Tensor};

use super::operands::tensor;

/// A shape, computed from the rows and columns of a matrix.
pub(crate) type Shape = fn(usize, usize) -> Vec<usize>;

/// The kind of an operand's elements.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Holds {
    /// Numbers from 1 to 9, with different neighbours.
    Numbers,
    /// Numbers between 0 and 1.
    Shares,
    /// Bools in an alternating pattern.
    Truths,
    /// Different indices of an axis, as `u32`, in each run of this length.
    Places(fn(usize, usize) -> usize),
}

/// An operand of an operation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Operand {
    pub(crate) shape: Shape,
    pub(crate) holds: Holds,
    /// Its type, if it differs from the operation's.
    pub(crate) dtype: Option<DType>,
}

impl Operand {
    /// The kind of its elements for this type.
    pub(crate) fn holds(&self, dtype: DType) -> Holds {
        match dtype {
            DType::Bool => Holds::Truths,
            _ => self.holds,
        }
    }
}

/// The call of the operation.
pub(crate) type Call = fn(&[Tensor]) -> Result<Vec<Tensor>>;

/// An operation with its operands.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Operation {
    /// The method's name, and a remark after a comma.
    pub(crate) name: &'static str,
    /// The types to test.
    pub(crate) dtypes: &'static [DType],
    pub(crate) operands: &'static [Operand],
    pub(crate) call: Call,
    /// Does it stand for all operations of its family that address operands in the same way?
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

/// An operand of an operation as a separate tensor, and its elements.
pub(crate) fn plain(
    gpu: &Gpu,
    operation: &Operation,
    dtype: DType,
    number: usize,
    sizes: (usize, usize),
) -> Result<(Tensor, Vec<f64>)> {
    let operand = &operation.operands[number];
    let dtype = operand.dtype.unwrap_or(dtype);
    let shape = (operand.shape)(sizes.0, sizes.1);
    let elements = 0..shape.iter().product();
    let elements = elements.map(|at| element(operand.holds(dtype), number, at, sizes));
    let elements: Vec<f64> = elements.collect();
    Ok((tensor(gpu, dtype, &elements, &shape)?, elements))
}

/// An element of an operand, the same for all types.
pub(crate) fn element(holds: Holds, number: usize, at: usize, sizes: (usize, usize)) -> f64 {
    let step = [3, 5, 7, 11, 13][number];
    match holds {
        // Neighbours differ, and all numbers are exact in every type.
        Holds::Numbers => (1 + (number + at * step) % 8) as f64,
        Holds::Shares => (1 + (number + at * step) % 15) as f64 / 16.0,
        Holds::Truths => f64::from(u8::from((at * at + at / 3).is_multiple_of(3))),
        Holds::Places(axis) => {
            let axis = axis(sizes.0, sizes.1).max(1);
            ((at * (axis - 1) + at / axis) % axis) as f64
        }
    }
}

/// All operations.
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
    .chain(elementwise::rows())
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
/// One element for each row of the matrix.
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

/// Indices of an axis of this size.
pub(crate) const fn places(shape: Shape, axis: fn(usize, usize) -> usize) -> Operand {
    Operand {
        holds: Holds::Places(axis),
        dtype: Some(DType::U32),
        ..x(shape)
    }
}

/// Numbers of one type, independent of the operation's.
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

#[test]
fn names_are_distinct_and_families_have_operations_that_stand_for_them() {
    let mut names: Vec<_> = all().map(|operation| operation.name).collect();
    names.sort_unstable();
    let count = names.len();
    names.dedup();
    assert_eq!(names.len(), count);
    let families = all().filter(|operation| operation.stands_for_family);
    assert!((10..count / 2).contains(&families.count()));
    let written: Vec<_> = all().filter(|one| one.writes()).collect();
    assert!(written.iter().all(|one| one.method() != "where_"));
    assert!(written.iter().any(|one| one.method() == "copy_"));
}
