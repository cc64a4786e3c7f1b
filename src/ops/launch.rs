//! Launches of kernels in which each invocation computes one vec4 of the result. Operands are read
//! element by element.

use super::elementwise::{arg, groups};
use crate::tensor::Tensor;
use lapidary_core::Result;
use lapidary_core::internal::{BuiltInKernel, Launch};

/// One invocation for each vec4 of `result`.
#[track_caller]
pub(super) fn by_vec4s<P: bytemuck::NoUninit, const N: usize>(
    kernel: &'static BuiltInKernel,
    code: u64,
    operands: [&Tensor; N],
    result: &Tensor,
    params: &P,
) -> Result<()> {
    by_vec4s_with_work(kernel, code, operands, result, params, 0)
}

/// The same for a launch that takes `work` multiply-adds in all.
#[track_caller]
pub(super) fn by_vec4s_with_work<P: bytemuck::NoUninit, const N: usize>(
    kernel: &'static BuiltInKernel,
    code: u64,
    operands: [&Tensor; N],
    result: &Tensor,
    params: &P,
    work: u64,
) -> Result<()> {
    let reads = operands.into_iter().map(|operand| arg(operand, false));
    let args = reads.chain([arg(result, true)]);
    let groups = groups(result.engine.caps(), (result.len() as u64).div_ceil(4));
    let launch = Launch::new(kernel, code, args, params, groups);
    result.engine.launch(launch.with_work(work))
}
