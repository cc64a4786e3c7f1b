//! The layout of pages, and the variants of the kernels.

use lapidary_core::adapter::AdapterKind;
use lapidary_core::{Caps, DType};

/// Keys of a tile, and invocations of a workgroup, on GPUs.
const TILE: u32 = 64;

/// Keys of a tile whose lanes broadcast.
const TILE_OF_LANES: u32 = 32;

/// Most queries of a workgroup: heads times rows.
const MOST_QUERIES: u32 = 8;

/// The layout of the blocks of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Geometry {
    /// Elements of a key: a multiple of 4, at most 256.
    pub(crate) head_size: u32,
    /// The tokens of a page: 16 or 32.
    pub(crate) page_tokens: u32,
    /// How keys and values are stored: f32, f16 or i8.
    pub(crate) dtype: DType,
}

impl Geometry {
    /// The vec4s of elements in a unit of 16 bytes.
    pub(crate) fn vec4s_of_unit(self) -> u32 {
        (4 / self.dtype.size_bytes()) as u32
    }

    /// The units of a key or value.
    pub(crate) fn row_units(self) -> u32 {
        self.head_size.div_ceil(4 * self.vec4s_of_unit())
    }

    /// The units of a block: keys and values of one head in one layer.
    pub(crate) fn block_units(self) -> u32 {
        let scales = match self.dtype {
            DType::I8 => self.page_tokens / 2,
            _ => 0,
        };
        2 * self.page_tokens * self.row_units() + scales
    }
}

/// A variant of the kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Form {
    pub(super) geometry: Geometry,
    /// The base-2 logarithms of the heads and rows of a workgroup.
    pub(super) log_heads: u8,
    pub(super) log_rows: u8,
    pub(super) is_capped: bool,
    /// The lanes of a subgroup, which broadcast to each other. 0 for workgroup memory.
    pub(super) lanes: u8,
}

impl Form {
    /// The variant for groups of so many heads of queries. `one_row` says that no sequence has more
    /// than one new token.
    pub(super) fn choose(geometry: Geometry, group: u32, one_row: bool, caps: &Caps) -> Form {
        let mut form = Form {
            geometry,
            log_heads: group.min(MOST_QUERIES).next_power_of_two().ilog2() as u8,
            log_rows: 0,
            is_capped: false,
            lanes: match (caps.kind, caps.subgroup_lanes) {
                // The text is unrolled over lanes and over the work of each. With fewer lanes each
                // has more work: SwiftShader, which has four, compiles that for minutes.
                (AdapterKind::Cpu, Some((least, most))) if least == most => match most {
                    8..=16 => most as u8,
                    _ => 0,
                },
                _ => 0,
            },
        };
        if !one_row {
            form.log_rows = (MOST_QUERIES / form.heads()).ilog2() as u8;
        }
        while form.lanes == 0
            && form.workgroup_bytes() > caps.max_workgroup_bytes
            && form.queries() > 1
        {
            match form.log_rows {
                0 => form.log_heads -= 1,
                _ => form.log_rows -= 1,
            }
        }
        form
    }

    pub(super) fn pack(self) -> u64 {
        let Geometry {
            head_size,
            page_tokens,
            dtype,
        } = self.geometry;
        u64::from(head_size)
            | u64::from(page_tokens) << 16
            | dtype.size_bytes() << 24
            | u64::from(self.log_heads) << 28
            | u64::from(self.log_rows) << 32
            | u64::from(self.is_capped) << 36
            | u64::from(self.lanes) << 40
    }

    pub(super) fn unpack(code: u64) -> Form {
        let bits = |from: u32, count: u32| (code >> from) as u32 & ((1 << count) - 1);
        Form {
            geometry: Geometry {
                head_size: bits(0, 16),
                page_tokens: bits(16, 8),
                dtype: match bits(24, 4) {
                    1 => DType::I8,
                    2 => DType::F16,
                    _ => DType::F32,
                },
            },
            log_heads: bits(28, 4) as u8,
            log_rows: bits(32, 4) as u8,
            is_capped: bits(36, 1) == 1,
            lanes: bits(40, 8) as u8,
        }
    }

    /// The keys that are added to a state at once.
    pub(super) fn tile(self) -> u32 {
        match self.lanes {
            0 => TILE,
            _ => TILE_OF_LANES,
        }
    }

    /// The keys of a tile whose scores a lane computes.
    pub(super) fn keys_of_lane(self) -> u32 {
        self.tile() / u32::from(self.lanes).max(1)
    }

    /// The units of columns that a lane sums up.
    pub(super) fn units_of_lane(self) -> u32 {
        self.geometry
            .row_units()
            .div_ceil(u32::from(self.lanes).max(1))
    }

    /// The heads of queries of a workgroup.
    pub(super) fn heads(self) -> u32 {
        1 << self.log_heads
    }

    /// The rows of a task.
    pub(super) fn rows(self) -> u32 {
        1 << self.log_rows
    }

    pub(super) fn queries(self) -> u32 {
        self.heads() * self.rows()
    }

    /// The queries whose values an invocation sums up.
    pub(super) fn own_queries(self) -> u32 {
        let beside = (TILE / self.geometry.row_units()).max(1);
        self.queries() / self.queries().min(1 << beside.ilog2())
    }

    /// The invocations that share the keys of a query and a unit of columns.
    pub(super) fn parts(self) -> u32 {
        let busy = self.geometry.row_units() * (self.queries() / self.own_queries());
        (1 << (TILE / busy).max(1).ilog2()).min(self.geometry.page_tokens)
    }

    fn workgroup_bytes(self) -> u32 {
        let vec4s = self.geometry.vec4s_of_unit();
        let q_tile = self.queries() * self.geometry.row_units() * vec4s;
        let meeting = match self.parts() {
            1 => 0,
            _ => TILE * (vec4s + 1),
        };
        16 * (q_tile + meeting) + 4 * TILE * self.queries()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invocations_divide_the_values_of_a_tile() {
        let check = |head_size, dtype, log_heads, expected| {
            let form = Form {
                geometry: Geometry {
                    head_size,
                    page_tokens: 16,
                    dtype,
                },
                log_heads,
                log_rows: 0,
                is_capped: false,
                lanes: 0,
            };
            assert_eq!((form.own_queries(), form.parts()), expected, "{form:?}");
            assert_eq!(Form::unpack(form.pack()), form);
        };
        check(64, DType::F16, 3, (1, 1));
        check(64, DType::F16, 0, (1, 8));
        check(128, DType::F16, 3, (2, 1));
        check(80, DType::F16, 0, (1, 4));
        check(80, DType::F16, 3, (2, 1));
        check(256, DType::F32, 3, (8, 1));
        check(4, DType::F32, 0, (1, 16));
        check(64, DType::I8, 1, (1, 8));
    }
}
