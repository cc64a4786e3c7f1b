//! The variant of attention, packed into its code, and the choice of it for a call.

use super::problem::{Mask, Problem};
use crate::ops::long::{finishes, loop_tests};
use crate::ops::rows::count_out;
use lapidary_core::{
    Caps,
    adapter::{AdapterKind, ShaderCompiler},
};

/// Keys of a tile if lanes broadcast: as many accumulators as matmul's tallest tile has.
const KEYS_OF_LANES: u32 = 32;

/// Keys of a tile without broadcasts.
const KEYS_ALONE: u32 = 8;

/// Most vec4s of the result in an invocation's registers. More columns are distributed over
/// workgroups, each of which computes the scores again.
const VEC4S_IN_REGISTERS: u32 = 64;

/// Vec4s of the result that one loop over a tile's keys updates. So much code fits into the
/// first-level cache.
pub(super) const VEC4S_OF_A_LOOP: u32 = 16;

/// Workgroup memory of the workgroup variant.
const WORKGROUP_BYTES: u32 = 16 << 10;
const WORKGROUP_INVOCATIONS: u32 = 128;

/// How the work is divided among invocations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tile {
    /// `width` rows of queries for each invocation, 1, 2 or 4. `lanes` lanes of a subgroup
    /// broadcast keys and values to each other. If `lanes` is 0, 32 invocations each load their
    /// own.
    Register { lanes: u8, width: u8 },
    /// 128 invocations, keys in workgroup memory.
    Workgroup,
}

/// A variant of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Form {
    pub(super) tile: Tile,
    /// Vec4s of a row of the result that one invocation holds.
    pub(super) vec4s: u8,
    pub(super) mask: Mask,
    pub(super) is_causal: bool,
}

const MASK: u64 = 1 << 32;
#[cfg(any(test, feature = "sim"))]
const CAUSAL: u64 = 1 << 36;

impl Form {
    /// The variant for a call by `tile`.
    pub(super) fn new(tile: Tile, problem: &Problem, is_causal: bool) -> Form {
        let vec4s = problem.columns().div_ceil(4).max(1);
        let vec4s = match tile {
            Tile::Register { .. } => vec4s.div_ceil(vec4s.div_ceil(VEC4S_IN_REGISTERS)),
            Tile::Workgroup => vec4s.div_ceil(16).min(4).next_power_of_two(),
        };
        Form {
            tile,
            vec4s: vec4s as u8,
            mask: problem.mask,
            is_causal,
        }
    }

    pub(super) fn pack(self) -> u64 {
        let [kind, lanes, width] = match self.tile {
            Tile::Register { lanes, width } => [0, lanes, width],
            Tile::Workgroup => [1, 0, 0],
        };
        let flags = [
            self.mask.is_given,
            self.mask.is_bool,
            self.mask.vec4s,
            self.mask.one_row,
            self.is_causal,
        ];
        let flags = (flags.iter().enumerate()).fold(0, |all, (at, &is)| all | u8::from(is) << at);
        u64::from_le_bytes([kind, lanes, width, self.vec4s, flags, 0, 0, 0])
    }

    pub(super) fn unpack(code: u64) -> Form {
        let [kind, lanes, width, vec4s, ..] = code.to_le_bytes();
        let has = |bit: u32| code & MASK << bit != 0;
        Form {
            tile: match kind {
                0 => Tile::Register { lanes, width },
                _ => Tile::Workgroup,
            },
            vec4s,
            mask: Mask {
                is_given: has(0),
                is_bool: has(1),
                vec4s: has(2),
                one_row: has(3),
            },
            is_causal: has(4),
        }
    }

    /// Rows of queries that a workgroup computes.
    pub(super) fn rows(self) -> u32 {
        match self.tile {
            Tile::Register { width, .. } => self.threads() * u32::from(width),
            Tile::Workgroup => 32,
        }
    }

    /// Columns of the result that a workgroup computes.
    pub(super) fn columns(self) -> u32 {
        let vec4s = u32::from(self.vec4s);
        match self.tile {
            Tile::Register { .. } => 4 * vec4s,
            Tile::Workgroup => 64 * vec4s,
        }
    }

    /// Keys of a tile.
    pub(super) fn keys(self) -> u32 {
        match self.tile {
            Tile::Register { lanes: 0, .. } => KEYS_ALONE,
            Tile::Register { .. } => KEYS_OF_LANES,
            Tile::Workgroup => 64,
        }
    }

    /// Invocations of a workgroup.
    pub(super) fn threads(self) -> u32 {
        match self.tile {
            Tile::Register { lanes: 0, .. } => 32,
            Tile::Register { lanes, .. } => lanes.into(),
            Tile::Workgroup => WORKGROUP_INVOCATIONS,
        }
    }

    /// Tests of an invocation's loops over `keys` keys, in registers.
    fn loop_tests(self, keys: u32, size: u32) -> u64 {
        let loops = u64::from(u32::from(self.vec4s).div_ceil(VEC4S_OF_A_LOOP));
        let over_values = loops * loop_tests(&[u64::from(self.keys() / 4)]);
        let of_tile = loop_tests(&[u64::from(size.div_ceil(4))]) + over_values;
        let tiles = u64::from(keys.div_ceil(self.keys()));
        // The last loops store the vec4s of the result.
        tiles * (of_tile + 1) + 1 + 2 * u64::from(self.vec4s)
    }
}

/// The best variant for this adapter. `None` if matmul and softmax are faster. `has_windows` says
/// that a binding cannot hold a whole operand.
pub(super) fn choose(
    caps: &Caps,
    problem: &Problem,
    is_causal: bool,
    has_windows: bool,
) -> Option<Form> {
    let fits = caps.max_invocations >= WORKGROUP_INVOCATIONS
        && caps.max_workgroup_bytes >= WORKGROUP_BYTES;
    if caps.kind != AdapterKind::Cpu && fits {
        return Some(Form::new(Tile::Workgroup, problem, is_causal));
    }
    // FXC takes minutes to compile the variant in registers, and a second for matmul and softmax.
    if caps.compiler == ShaderCompiler::Fxc {
        return None;
    }
    let lanes = match caps.subgroup_lanes {
        Some((least, most)) if least == most && matches!(least, 4 | 8 | 16 | 32) => least as u8,
        _ => 0,
    };
    let across = if lanes == 0 { 32 } else { u32::from(lanes) };
    let width = match problem.queries().div_ceil(across) {
        0 | 1 => 1,
        // With windows, each access is an inlined choice among bindings.
        _ if has_windows => 1,
        2 => 2,
        _ => 4,
    };
    let form = Form::new(Tile::Register { lanes, width }, problem, is_causal);
    let tests = form.loop_tests(problem.keys(), problem.size());
    let is_plain = !problem.mask.is_given && !is_causal;
    let is_one = problem.queries() == 1 && is_plain;
    let suits = caps.kind != AdapterKind::Cpu || (finishes(caps, tests) && !is_one);
    suits.then_some(form)
}

/// The workgroups of a launch, in three dimensions.
pub(super) fn groups(caps: &Caps, form: Form, problem: &Problem) -> [u32; 3] {
    let rows = u64::from(problem.queries().div_ceil(form.rows()));
    let columns = u64::from(problem.columns().div_ceil(form.columns()));
    let count = rows * columns * u64::from(problem.heads());
    count_out(count, caps)
}

/// Whether the variant reads a mask.
#[cfg(any(test, feature = "sim"))]
pub(crate) fn has_mask(code: u64) -> bool {
    code & MASK != 0
}

/// Whether a query sees only the keys before it.
#[cfg(any(test, feature = "sim"))]
pub(crate) fn is_causal(code: u64) -> bool {
    code & CAUSAL != 0
}
