//! Operations that the lanes of a subgroup do together, as the code names them.

use naga::{CollectiveOperation, SubgroupOperation};

use super::code::{Address, Num, Reg, Space};

/// An operation of a subgroup, with the registers that it reads and writes in each lane.
#[derive(Clone, Copy, Debug)]
pub(super) struct Collective {
    pub(super) to: Reg,
    pub(super) from: Reg,
    /// Numbers of a reduction; words of all others.
    pub(super) count: u8,
    pub(super) kind: Kind,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    Ballot,
    Reduce(SubgroupOperation, CollectiveOperation, Num),
    /// The register says which lane, or how far.
    Gather(Gather, Reg),
}

/// Which lane's value a lane gets.
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
    /// The register that says how far rows, or columns, are apart: in `unit`s.
    pub(super) stride: Reg,
    /// Numbers of what the pointer leads to.
    pub(super) unit: u32,
    pub(super) row_major: bool,
    pub(super) is_half: bool,
}

/// What a subgroup does.
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
        /// Rows, the inner size and columns.
        shape: [u32; 3],
        /// Of the factors, and of the sum.
        is_half: [bool; 2],
    },
}
