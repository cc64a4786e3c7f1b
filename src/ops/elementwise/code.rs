//! The variant of a launch: its operation, its rank, and how its inputs are fetched.

use lapidary_core::{Caps, DType, adapter::AdapterKind};

/// Invocations of a workgroup.
pub(crate) const GROUP: u64 = 64;

/// Invocations of a workgroup for a long tensor on a discrete GPU. With smaller ones an H100 takes
/// as long for halves as for whole words: it starts about 1.3 workgroups a nanosecond.
pub(super) const BROAD_GROUP: u64 = 256;

/// Least vec4s for which broad workgroups still keep every core of a GPU busy.
const BROAD_VEC4S: u64 = 1 << 16;

/// The invocations of a workgroup, for a kernel of `vec4s` vec4s. Each invocation computes one.
pub(crate) fn group_of(kind: AdapterKind, vec4s: u64) -> u64 {
    match kind {
        AdapterKind::Discrete if vec4s >= BROAD_VEC4S => BROAD_GROUP,
        _ => GROUP,
    }
}

/// Vec4s of one invocation on a software rasterizer, which runs long straight code faster. On a GPU
/// it is one, so that neighbouring invocations read neighbouring vec4s.
pub(crate) const VEC4S_ON_CPU: u64 = 4;

/// The word at which the offsets, dimensions and strides start.
pub(crate) const MAP: usize = 4;

/// Least words of parameters. Kernels without inputs have more scalars and no map.
pub(super) const LEAST_WORDS: usize = 8;

/// How four neighbouring elements of an input are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fetch {
    /// One by one.
    Strided = 0,
    /// As a vec4.
    Vec4 = 1,
    /// One element, repeated four times.
    Splat = 2,
    /// A scalar among the parameters instead of an operand.
    Param = 3,
}

impl Fetch {
    const ALL: [Fetch; 4] = [Fetch::Strided, Fetch::Vec4, Fetch::Splat, Fetch::Param];
}

/// The packed [`Variant::code`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Code(pub(crate) u64);

impl Code {
    /// Writes a part of the output's storage.
    pub(super) const INTO: u64 = 1 << 13;
    /// Four vec4s an invocation.
    pub(super) const UNROLL: u64 = 1 << 14;
    /// A vec4 lies within one row, so its coordinates are computed once for all four elements.
    pub(super) const WHOLE: u64 = 1 << 12;
    /// All vec4s of an invocation lie within one row.
    pub(super) const TOGETHER: u64 = 1 << 15;
    /// Operands that are accessed by vec4s consist of vec8s, and an invocation takes two vec4s at a
    /// time.
    pub(super) const VEC8S: u64 = 1 << 26;
    /// Workgroups of [`BROAD_GROUP`] invocations.
    pub(super) const BROAD: u64 = 1 << 27;

    pub(crate) fn op(self) -> u8 {
        self.0 as u8
    }

    pub(crate) fn rank(self) -> usize {
        (self.0 >> 8 & 15) as usize
    }

    pub(crate) fn is_into(self) -> bool {
        self.0 & Code::INTO != 0
    }

    /// The number of inputs, including scalars.
    pub(crate) fn inputs(self) -> usize {
        (self.0 >> 24 & 3) as usize
    }

    pub(crate) fn fetch(self, input: usize) -> Fetch {
        Fetch::ALL[(self.0 >> (16 + 2 * input) & 3) as usize]
    }

    /// The word after the map, where further scalars start.
    pub(crate) fn beyond_map(self) -> usize {
        let (bound, rank) = (self.bound(), self.rank());
        match bound {
            0 => MAP,
            _ => MAP + bound * (1 + rank) + rank,
        }
    }

    /// The same code, with vec4s in pairs if the adapter gains by it. An invocation must take
    /// several vec4s, and all operands, the output included, must be f32. No pair may be split, and
    /// the vec4s must be contiguous.
    pub(crate) fn in_pairs(
        self,
        caps: &Caps,
        words: &[u32],
        mut dtypes: impl Iterator<Item = DType>,
    ) -> Code {
        let fetches = (0..self.inputs()).map(|input| self.fetch(input));
        let mut bound = fetches.filter(|&fetch| fetch != Fetch::Param).enumerate();
        let are_pairs = caps.wide_words
            && self.has(Code::UNROLL)
            && !self.is_into()
            && self.rank() == 1
            && self.bound() > 0
            && words[0].is_multiple_of(8)
            && bound.all(|(operand, fetch)| match fetch {
                Fetch::Vec4 => words[MAP + operand].is_multiple_of(8),
                fetch => fetch == Fetch::Splat,
            })
            && dtypes.all(|dtype| dtype == DType::F32);
        Code(self.0 | if are_pairs { Code::VEC8S } else { 0 })
    }

    pub(super) fn has(self, flag: u64) -> bool {
        self.0 & flag != 0
    }

    /// The number of inputs that are operands.
    pub(super) fn bound(self) -> usize {
        (0..self.inputs())
            .filter(|&input| self.fetch(input) != Fetch::Param)
            .count()
    }
}
