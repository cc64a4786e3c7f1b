//! Which text of matmul: the tile and the operands' orientation, packed into a variant's code.

/// Rows of a tile whose operands are bound through several windows.
const WINDOWED_ROWS: u8 = 4;

/// How the work is shared out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tile {
    /// A thread for each quad of C, from operands of any strides: the reference.
    Naive,
    /// `rows` rows of `quads` quads in a thread's registers. With `lanes` lanes of a subgroup that
    /// broadcast A to each other, or by 8 by 8 threads, each for itself, where `lanes` is 0.
    Register { rows: u8, quads: u8, lanes: u8 },
    /// 16 by 16 threads share a tile in workgroup memory; each computes `rows` by `rows` elements,
    /// 4 or 8.
    Workgroup { rows: u8 },
    /// `rows` rows (at most 8) of C, with k split over the threads of a workgroup.
    Skinny { rows: u8 },
    /// `rows` rows of `quads` quads in the registers of `lanes` lanes that broadcast A to each
    /// other, from operands that were packed; `rows` is a multiple of four times `lanes`.
    Packed { rows: u8, quads: u8, lanes: u8 },
}

/// How an operand lies. Naive does not ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// Contiguous along k: A by rows, B by columns.
    AlongK,
    /// Contiguous along its edge of C: A by columns, B by rows.
    AlongEdge,
    /// Contiguous along neither.
    Stepped,
}

impl Order {
    fn from_bits(bits: u8) -> Self {
        match bits {
            0 => Order::AlongK,
            1 => Order::AlongEdge,
            _ => Order::Stepped,
        }
    }
}

/// A variant of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Form {
    pub(crate) tile: Tile,
    pub(crate) a: Order,
    pub(crate) b: Order,
}

impl Tile {
    /// The same, small enough for operands of several windows on a software adapter: each access
    /// of the long straight text then is a choice among bindings, all of them compiled in line,
    /// and a tile of 32 rows takes SwiftShader minutes.
    pub(super) fn through_windows(self) -> Tile {
        match self {
            Tile::Register { rows, lanes, .. } | Tile::Packed { rows, lanes, .. } => {
                Tile::Register {
                    rows: rows.min(WINDOWED_ROWS),
                    quads: 1,
                    lanes,
                }
            }
            other => other,
        }
    }
}

/// The variant of the kernel that packs an operand: how it lies, and for how many lanes.
pub(crate) struct Packing;

impl Packing {
    pub(crate) fn pack(order: Order, lanes: u8) -> u64 {
        u64::from(order as u8) | u64::from(lanes) << 8
    }

    pub(crate) fn unpack(code: u64) -> (Order, u8) {
        let [order, lanes, ..] = code.to_le_bytes();
        (Order::from_bits(order), lanes)
    }
}

impl Form {
    pub(crate) fn pack(self) -> u64 {
        let [kind, rows, quads, lanes] = match self.tile {
            Tile::Naive => [0, 0, 0, 0],
            Tile::Register { rows, quads, lanes } => [1, rows, quads, lanes],
            Tile::Workgroup { rows } => [2, rows, 0, 0],
            Tile::Skinny { rows } => [3, rows, 0, 0],
            Tile::Packed { rows, quads, lanes } => [4, rows, quads, lanes],
        };
        let sides = self.a as u8 | (self.b as u8) << 2;
        u64::from_le_bytes([kind, rows, quads, lanes, sides, 0, 0, 0])
    }

    pub(crate) fn unpack(code: u64) -> Form {
        let [kind, rows, quads, lanes, sides, ..] = code.to_le_bytes();
        let tile = match kind {
            0 => Tile::Naive,
            1 => Tile::Register { rows, quads, lanes },
            2 => Tile::Workgroup { rows },
            3 => Tile::Skinny { rows },
            _ => Tile::Packed { rows, quads, lanes },
        };
        Form {
            tile,
            a: Order::from_bits(sides & 3),
            b: Order::from_bits(sides >> 2 & 3),
        }
    }

    /// Rows and columns of C that one workgroup computes. Naive counts no tiles.
    pub(crate) fn tile_size(self) -> (u32, u32) {
        match self.tile {
            Tile::Naive => (1, 1),
            Tile::Register { rows, quads, lanes } => {
                let across = if lanes == 0 { 8 } else { u32::from(lanes) };
                let down = if lanes == 0 { 8 } else { 1 };
                (u32::from(rows) * down, across * 4 * u32::from(quads))
            }
            Tile::Packed { rows, quads, lanes } => {
                (u32::from(rows), u32::from(lanes) * 4 * u32::from(quads))
            }
            Tile::Workgroup { rows } => (u32::from(rows) * 16, u32::from(rows) * 16),
            Tile::Skinny { rows } => match self.b {
                Order::AlongEdge => (u32::from(rows), 64),
                _ => (u32::from(rows), 16),
            },
        }
    }
}
