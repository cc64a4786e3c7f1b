//! A variant of matmul: the tile and the operands' order, packed into a variant's code.

use super::epilogue::Activation;

/// Most rows of a tile whose operands are bound through several windows.
const WINDOWED_ROWS: u8 = 4;

/// How the work is divided among threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tile {
    /// Each thread computes a vec4 of C, from operands of any strides: the reference kernel.
    Naive,
    /// `rows` rows of `vec4s` vec4s in a thread's registers. `lanes` lanes of a subgroup broadcast
    /// A to each other. If `lanes` is 0, 8 by 8 threads each load their own.
    Register { rows: u8, vec4s: u8, lanes: u8 },
    /// 16 by 16 threads share a tile in workgroup memory. Each computes `rows` by `rows` elements,
    /// 4 or 8.
    Workgroup { rows: u8 },
    /// `rows` rows (at most 8) of C, with k split over the threads of a workgroup.
    Skinny { rows: u8 },
    /// `rows` rows of `vec4s` vec4s in the registers of `lanes` lanes that broadcast A to each
    /// other, from packed operands. `rows` is a multiple of four times `lanes`.
    Packed { rows: u8, vec4s: u8, lanes: u8 },
    /// `rows` rows (at most 4) of `columns` columns, a multiple of four. The `lanes` lanes of a
    /// subgroup split k. With `vec8s`, B is read eight elements at a time if it consists of vec8s.
    Split {
        rows: u8,
        columns: u8,
        lanes: u8,
        vec8s: bool,
    },
    /// Cooperative matrices of `size` by `size`, 8 or 16. The subgroups of a workgroup, of `lanes`
    /// lanes each, multiply halves from workgroup memory. A large tile has 8 by 8 such squares,
    /// others 4 by 4.
    Cooperative { size: u8, large: bool, lanes: u8 },
}

/// The squares of C that a workgroup computes by cooperative matrices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Squares {
    /// Rows of a square, and columns.
    pub(crate) size: u32,
    /// Squares of a subgroup, along the rows of C and along the columns.
    pub(crate) down: u32,
    pub(crate) across: u32,
    /// Subgroups, along the rows of C and along the columns.
    pub(crate) above: u32,
    pub(crate) beside: u32,
}

impl Squares {
    /// Padding of a line in workgroup memory, in halves.
    pub(crate) const SLACK: u32 = 8;

    pub(crate) fn new(size: u8, large: bool) -> Self {
        Squares {
            size: size.into(),
            down: if large { 4 } else { 2 },
            across: 2,
            above: 2,
            beside: if large { 4 } else { 2 },
        }
    }

    /// Steps of k loaded at a time.
    pub(crate) fn depth(self) -> u32 {
        2 * self.size
    }

    /// Workgroup memory: both tiles with their padding, and a square for each subgroup.
    pub(crate) fn workgroup_bytes(self) -> u32 {
        let (rows, columns) = self.tile_size();
        let depth = self.depth();
        let most = |edge: u32| (edge * (depth + Self::SLACK)).max(depth * (edge + Self::SLACK)) * 2;
        most(rows) + most(columns) + self.subgroups() * self.size * self.size * 4
    }

    pub(crate) fn subgroups(self) -> u32 {
        self.above * self.beside
    }

    pub(crate) fn tile_size(self) -> (u32, u32) {
        let rows = self.above * self.down * self.size;
        (rows, self.beside * self.across * self.size)
    }
}

/// The memory order of an operand. The naive kernel ignores it.
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

/// How workgroups and matrices of the batch are numbered. On a software adapter, divisions cost
/// more than the rest of a small tile's beginning and end, and both sides of every branch run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spread {
    /// One after the other, for a batch of any number of dimensions.
    Linear,
    /// A grid of tiles for one matrix.
    Single,
    /// A grid of tiles for each matrix of one batch dimension.
    Flat,
}

impl Spread {
    fn from_bits(bits: u8) -> Self {
        match bits {
            0 => Spread::Linear,
            1 => Spread::Single,
            _ => Spread::Flat,
        }
    }
}

/// The epilogue of a product.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct End {
    pub(crate) scale: bool,
    /// Each column has its own scale.
    pub(crate) columns: bool,
    pub(crate) bias: bool,
    pub(crate) activation: Option<Activation>,
    pub(crate) residual: bool,
}

impl End {
    fn pack(self) -> [u8; 2] {
        let all = [self.scale, self.bias, self.residual, self.columns];
        let flags = (all.into_iter().enumerate())
            .fold(0, |flags, (bit, is_set)| flags | u8::from(is_set) << bit);
        let activation = Activation::ALL
            .iter()
            .position(|&activation| Some(activation) == self.activation);
        [flags, activation.map_or(0, |index| index as u8 + 1)]
    }

    fn unpack([flags, activation]: [u8; 2]) -> Self {
        End {
            scale: flags & 1 != 0,
            bias: flags & 2 != 0,
            activation: usize::from(activation)
                .checked_sub(1)
                .map(|index| Activation::ALL[index]),
            residual: flags & 4 != 0,
            columns: flags & 8 != 0,
        }
    }
}

/// A variant of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Form {
    pub(crate) tile: Tile,
    pub(crate) a: Order,
    pub(crate) b: Order,
    /// The number of elements of B along k that share a scale, as a power of two; 0 without scales.
    /// Always 0 in the naive variant.
    pub(crate) group_log2: u8,
    /// Only register, packed and split tiles use a grid.
    pub(crate) spread: Spread,
    /// Always empty in the naive variant.
    pub(crate) end: End,
}

impl Tile {
    /// The tile for a B that does not consist of vec8s.
    pub(super) fn without_vec8s(self) -> Tile {
        match self {
            Tile::Split {
                rows,
                columns,
                lanes,
                ..
            } => Tile::Split {
                rows,
                columns,
                lanes,
                vec8s: false,
            },
            other => other,
        }
    }

    /// A tile small enough for operands of several windows on a software adapter. There, each
    /// access is an inlined choice among bindings, and SwiftShader takes minutes to compile a tile
    /// of 32 rows.
    pub(super) fn through_windows(self) -> Tile {
        match self {
            Tile::Register { rows, lanes, .. } | Tile::Packed { rows, lanes, .. } => {
                Tile::Register {
                    rows: rows.min(WINDOWED_ROWS),
                    vec4s: 1,
                    lanes,
                }
            }
            Tile::Split { rows, lanes, .. } => Tile::Split {
                rows,
                columns: 4,
                lanes,
                vec8s: false,
            },
            other => other,
        }
    }
}

/// A variant of the kernel that packs an operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Packing {
    /// The memory order of the operand.
    pub(crate) order: Order,
    /// The number of lanes of a subgroup.
    pub(crate) lanes: u8,
    /// How the matrices of the batch are numbered. The workgroups always form a grid.
    pub(crate) spread: Spread,
    /// k is a multiple of four.
    pub(crate) whole_k: bool,
}

impl Packing {
    pub(crate) fn pack(self) -> u64 {
        let (order, spread) = (self.order as u8, self.spread as u8);
        u64::from_le_bytes([order, self.lanes, spread, self.whole_k.into(), 0, 0, 0, 0])
    }

    pub(crate) fn unpack(code: u64) -> Packing {
        let [order, lanes, spread, whole_k, ..] = code.to_le_bytes();
        Packing {
            order: Order::from_bits(order),
            lanes,
            spread: Spread::from_bits(spread),
            whole_k: whole_k != 0,
        }
    }
}

impl Form {
    pub(crate) fn pack(self) -> u64 {
        let [kind, rows, vec4s, lanes] = match self.tile {
            Tile::Naive => [0, 0, 0, 0],
            Tile::Register { rows, vec4s, lanes } => [1, rows, vec4s, lanes],
            Tile::Workgroup { rows } => [2, rows, 0, 0],
            Tile::Skinny { rows } => [3, rows, 0, 0],
            Tile::Packed { rows, vec4s, lanes } => [4, rows, vec4s, lanes],
            Tile::Split {
                rows,
                columns,
                lanes,
                vec8s,
            } => [5 + u8::from(vec8s), rows, columns, lanes],
            Tile::Cooperative { size, large, lanes } => [7, size, large.into(), lanes],
        };
        let sides = self.a as u8 | (self.b as u8) << 2 | self.group_log2 << 4;
        let [flags, activation] = self.end.pack();
        let spread = self.spread as u8;
        u64::from_le_bytes([kind, rows, vec4s, lanes, sides, spread, flags, activation])
    }

    pub(crate) fn unpack(code: u64) -> Form {
        let [kind, rows, vec4s, lanes, sides, spread, flags, activation] = code.to_le_bytes();
        let tile = match kind {
            0 => Tile::Naive,
            1 => Tile::Register { rows, vec4s, lanes },
            2 => Tile::Workgroup { rows },
            3 => Tile::Skinny { rows },
            4 => Tile::Packed { rows, vec4s, lanes },
            7 => Tile::Cooperative {
                size: rows,
                large: vec4s != 0,
                lanes,
            },
            _ => Tile::Split {
                rows,
                columns: vec4s,
                lanes,
                vec8s: kind == 6,
            },
        };
        Form {
            tile,
            a: Order::from_bits(sides & 3),
            b: Order::from_bits(sides >> 2 & 3),
            group_log2: sides >> 4,
            spread: Spread::from_bits(spread),
            end: End::unpack([flags, activation]),
        }
    }

    /// Whether the kernel reads scales: one a group of B, or one a column of C.
    pub(crate) fn has_scales(self) -> bool {
        self.group_log2 > 0 || self.end.columns
    }

    /// Rows and columns of C that one workgroup computes. The naive kernel has no tiles.
    pub(crate) fn tile_size(self) -> (u32, u32) {
        match self.tile {
            Tile::Naive => (1, 1),
            Tile::Register { rows, vec4s, lanes } => {
                let across = if lanes == 0 { 8 } else { u32::from(lanes) };
                let down = if lanes == 0 { 8 } else { 1 };
                (u32::from(rows) * down, across * 4 * u32::from(vec4s))
            }
            Tile::Packed { rows, vec4s, lanes } => {
                (u32::from(rows), u32::from(lanes) * 4 * u32::from(vec4s))
            }
            Tile::Split { rows, columns, .. } => (rows.into(), columns.into()),
            Tile::Workgroup { rows } => (u32::from(rows) * 16, u32::from(rows) * 16),
            Tile::Cooperative { size, large, .. } => Squares::new(size, large).tile_size(),
            Tile::Skinny { rows } => match self.b {
                Order::AlongEdge => (u32::from(rows), 64),
                _ => (u32::from(rows), 16),
            },
        }
    }
}
