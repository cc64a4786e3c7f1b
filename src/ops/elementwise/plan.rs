//! The plan of a launch: code, parameters and workgroups.

use smallvec::SmallVec;

use super::code::{BROAD_GROUP, Code, Fetch, GROUP, LEAST_WORDS, MAP, VEC4S_ON_CPU, group_of};
use super::launch::groups_of;
use crate::tensor::layout::{Collapsed, Layout, collapse};
use lapidary_core::internal::MAX_PARAMS_BYTES;
use lapidary_core::{Caps, adapter::AdapterKind};

/// Everything that a launch needs, except for its storages.
#[derive(Clone, Debug)]
pub(in crate::ops) struct Plan {
    pub(in crate::ops) code: Code,
    /// The parameters: whole vec4s, at most [`MAX_PARAMS_BYTES`].
    pub(in crate::ops) words: SmallVec<[u32; 16]>,
    pub(in crate::ops) groups: [u32; 3],
}

impl Plan {
    /// `None` if the maps do not fit into the parameters. The layouts are already broadcast to
    /// `shape`. `is_scalar` says which inputs are parameters.
    pub(in crate::ops) fn new(
        shape: &[usize],
        layouts: &[&Layout],
        is_scalar: &[bool],
    ) -> Option<Plan> {
        let map = collapse(shape, layouts);
        let elements = shape.iter().product::<usize>() as u32;
        let count = MAP + layouts.len() * (1 + map.dims.len()) + map.dims.len();
        if 4 * count.next_multiple_of(4) > MAX_PARAMS_BYTES {
            return None;
        }
        let rank = match layouts {
            [] => 1,
            _ => map.dims.len(),
        };
        let mut words = [0; MAX_PARAMS_BYTES / 4];
        words[0] = elements;
        let mut end = MAP;
        if !layouts.is_empty() {
            let strides = map.strides.iter().flat_map(|strides| &strides[..rank]);
            let of_map = map.offsets.iter().chain(&map.dims).chain(strides);
            for (place, &word) in words[MAP..].iter_mut().zip(of_map) {
                *place = word;
                end += 1;
            }
        }
        let words = &words[..end.next_multiple_of(4).max(LEAST_WORDS)];
        let whole = rank == 1 || map.dims[rank - 1].is_multiple_of(4);
        let mut code = (rank as u64) << 8 | (is_scalar.len() as u64) << 24;
        code |= if whole { Code::WHOLE } else { 0 };
        let mut operand = 0;
        for (input, &is_scalar) in is_scalar.iter().enumerate() {
            let fetch = match is_scalar {
                true => Fetch::Param,
                false => {
                    operand += 1;
                    fetch_of(&map, operand - 1, whole)
                }
            };
            code |= (fetch as u64) << (16 + 2 * input);
        }
        Some(Plan {
            code: Code(code),
            words: SmallVec::from_slice(words),
            groups: [1; 3],
        })
    }

    pub(in crate::ops) fn set_scalars(&mut self, scalars: &[u32]) {
        let (near, far) = scalars.split_at(scalars.len().min(2));
        self.words[2..2 + near.len()].copy_from_slice(near);
        let start = self.code.beyond_map();
        let end = (start + far.len()).next_multiple_of(4);
        debug_assert!(4 * end <= MAX_PARAMS_BYTES || far.is_empty());
        self.words.resize(self.words.len().max(end), 0);
        self.words[start..start + far.len()].copy_from_slice(far);
    }

    /// Distributes the vec4s over invocations as suits the adapter.
    pub(super) fn spread(&mut self, caps: &Caps) {
        let vec4s = u64::from(self.words[0]).div_ceil(4);
        let each = match caps.kind {
            AdapterKind::Cpu if vec4s >= GROUP * VEC4S_ON_CPU => {
                self.code.0 |= Code::UNROLL;
                let (rank, inputs) = (self.code.rank(), self.code.bound());
                let row = self.words[MAP + inputs + rank - 1];
                if rank == 1 || u64::from(row) % (4 * VEC4S_ON_CPU) == 0 {
                    self.code.0 |= Code::TOGETHER;
                }
                VEC4S_ON_CPU
            }
            _ => 1,
        };
        let group = group_of(caps.kind, vec4s);
        self.code.0 |= if group == BROAD_GROUP { Code::BROAD } else { 0 };
        self.groups = groups_of(caps, vec4s.div_ceil(each), group);
    }
}

fn fetch_of(map: &Collapsed, operand: usize, whole: bool) -> Fetch {
    let rank = map.dims.len();
    let strides = &map.strides[operand][..rank];
    let (&inner, outer) = strides.split_last().expect("collapsing leaves a dimension");
    let starts_are_vec4_aligned = map.offsets[operand].is_multiple_of(4)
        && outer.iter().all(|stride| stride.is_multiple_of(4));
    match inner {
        _ if strides.iter().all(|&stride| stride == 0) => Fetch::Splat,
        0 if whole => Fetch::Splat,
        1 if whole && starts_are_vec4_aligned => Fetch::Vec4,
        _ => Fetch::Strided,
    }
}
