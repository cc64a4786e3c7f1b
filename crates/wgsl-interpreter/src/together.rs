//! Operations that the lanes of a subgroup execute together, as the code names them.

use naga::{CollectiveOperation, SubgroupOperation};

use super::code::{Address, Num, Reg, Space};

/// An operation of a subgroup, with the registers that it reads and writes in each lane.
#[derive(Clone, Copy, Debug)]
pub(super) struct Collective {
    pub(super) to: Reg,
    pub(super) from: Reg,
    /// The number of numbers for a reduction, the number of words otherwise.
    pub(super) count: u8,
    pub(super) kind: Kind,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    Ballot,
    Reduce(SubgroupOperation, CollectiveOperation, Num),
    /// The register holds the index of the lane, or the distance.
    Gather(Gather, Reg),
}

/// The lane from which each lane gets its value.
#[derive(Clone, Copy, Debug)]
pub(super) enum Gather {
    First,
    Lane,
    Down,
    Up,
    Xor,
    Quad,
}

/// A matrix in memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Operand {
    pub(super) space: Space,
    pub(super) place: Address,
    /// The register with the distance of rows, or columns, in `unit`s.
    pub(super) stride: Reg,
    /// The count of numbers in the pointer's target type.
    pub(super) unit: u32,
    pub(super) row_major: bool,
    pub(super) is_half: bool,
}

/// An operation of a subgroup.
#[derive(Clone, Copy, Debug)]
pub(super) enum Cooperative {
    Load {
        matrix: Reg,
        rows: u32,
        columns: u32,
        operand: Operand,
    },
    Store {
        matrix: Reg,
        rows: u32,
        columns: u32,
        operand: Operand,
    },
    MultiplyAdd {
        to: Reg,
        factors: [Reg; 2],
        sum: Reg,
        /// Rows, the inner size, and columns.
        shape: [u32; 3],
        /// Whether the factors, and the sum, are f16.
        is_half: [bool; 2],
    },
}
