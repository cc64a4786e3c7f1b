//! Operands, workgroups and launches of kernels whose parameters are words.

use smallvec::SmallVec;

use super::code::GROUP;
use crate::ops::rows;
use crate::tensor::Tensor;
use lapidary_core::Caps;
use lapidary_core::internal::{Arg, BuiltInKernel, Launch, Methods, Program, Ranges};

/// A launch whose parameters are words. Its operands are whole storages, and the output reuses none
/// of them.
pub(in crate::ops) fn launch_of(
    kernel: &'static BuiltInKernel,
    code: u64,
    args: impl IntoIterator<Item = Arg>,
    words: &[u32],
    groups: [u32; 3],
) -> Launch {
    Launch {
        program: Program::Builtin(kernel),
        code,
        args: args.into_iter().collect(),
        params: SmallVec::from_slice(bytemuck::cast_slice(words)),
        groups,
        may_reuse: 0,
        ranges: Ranges::new(),
        work: 0,
        methods: Methods::new(),
        pages: None,
    }
}

/// The number of workgroups of `group` invocations, over x and y.
pub(crate) fn groups_of(caps: &Caps, invocations: u64, group: u64) -> [u32; 3] {
    rows::groups(caps, invocations, group)
}

/// The number of workgroups of 64 invocations, over x and y.
pub(crate) fn groups(caps: &Caps, invocations: u64) -> [u32; 3] {
    groups_of(caps, invocations, GROUP)
}

#[inline]
pub(in crate::ops) fn arg(tensor: &Tensor, vec4s: bool) -> Arg {
    Arg {
        storage: tensor.storage.here().clone(),
        dtype: tensor.dtype,
        vec4s,
    }
}
