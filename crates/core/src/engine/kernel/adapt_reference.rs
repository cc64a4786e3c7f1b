//! Adapts reference kernels to the bindings of a dispatch, for a device that computes on the host.

use std::sync::Arc;

use super::fused::Fused;
use super::wgsl::Layout;
use super::{BuiltInKernel, Custom, Variant};
#[cfg(any(test, feature = "sim"))]
use super::{ReferenceCall, Role};
use crate::driver::{Caps, ReferenceKernel};

/// The reference kernel for a layout. `None` on a device that runs the WGSL.
#[cfg(any(test, feature = "sim"))]
pub(in crate::engine) fn builtin_reference(
    kernel: &'static BuiltInKernel,
    variant: Variant,
    layout: Layout,
    caps: &Caps,
) -> Option<ReferenceKernel> {
    let roles = kernel.operands.iter().map(|operand| operand.role);
    let run = kernel.reference.filter(|_| caps.runs_reference_kernels)?;
    Some(over_bindings(roles.collect(), variant, layout, run))
}

/// Runs the reference kernels of a fused kernel's parts, one after the other.
#[cfg(any(test, feature = "sim"))]
pub(in crate::engine) fn fused_reference(
    fused: &Arc<Fused>,
    variant: Variant,
    layout: Layout,
    caps: &Caps,
) -> Option<ReferenceKernel> {
    let roles = fused.operands.iter().map(|operand| operand.role);
    let reference = fused
        .reference
        .clone()
        .filter(|_| caps.runs_reference_kernels)?;
    let run = move |call: &mut ReferenceCall| reference(call);
    Some(over_bindings(roles.collect(), variant, layout, run))
}

/// Adapts a reference kernel of whole operands to bindings.
#[cfg(any(test, feature = "sim"))]
fn over_bindings(
    roles: Vec<Role>,
    variant: Variant,
    layout: Layout,
    run: impl Fn(&mut ReferenceCall) + Send + Sync + 'static,
) -> ReferenceKernel {
    let count = roles.len();
    // The windows of part `k` are the bindings `starts[k]..starts[k + 1]`.
    let mut starts = vec![0];
    for part in 0..layout.part_count(count) {
        starts.push(starts[part] + usize::from(layout.windows[part]));
    }
    Arc::new(move |bindings: &mut [Vec<u8>], params: &[u8]| {
        let windows = |operand: usize| {
            let part = usize::from(layout.parts[operand]);
            starts[part]..starts[part + 1]
        };
        let operands = (0..count).map(|operand| bindings[windows(operand)].concat());
        let mut call = ReferenceCall {
            operands: operands.collect(),
            variant,
            params: params.to_vec(),
        };
        run(&mut call);
        for (operand, bytes) in call.operands.iter().enumerate() {
            if roles[operand] == Role::Read {
                continue;
            }
            let mut rest = &bytes[..];
            for window in &mut bindings[windows(operand)] {
                let (here, after) = rest.split_at(window.len());
                window.copy_from_slice(here);
                rest = after;
            }
        }
    })
}

/// The user's reference of a custom kernel. Its bindings are its operands.
#[cfg(any(test, feature = "sim"))]
pub(in crate::engine) fn custom_reference(
    custom: &Custom,
    with_canary: u64,
    caps: &Caps,
) -> Option<ReferenceKernel> {
    let reference = custom
        .reference
        .clone()
        .filter(|_| caps.runs_reference_kernels)?;
    let run =
        move |bindings: &mut [Vec<u8>], params: &[u8]| reference(bindings, params, with_canary);
    Some(Arc::new(run))
}

/// No device of this build computes on the host.
#[cfg(not(any(test, feature = "sim")))]
pub(in crate::engine) fn custom_reference(_: &Custom, _: u64, _: &Caps) -> Option<ReferenceKernel> {
    None
}

/// The reference kernels are not compiled in: no device of this build computes on the host.
#[cfg(not(any(test, feature = "sim")))]
pub(in crate::engine) fn builtin_reference(
    _: &'static BuiltInKernel,
    _: Variant,
    _: Layout,
    _: &Caps,
) -> Option<ReferenceKernel> {
    None
}

/// The reference kernels are not compiled in: no device of this build computes on the host.
#[cfg(not(any(test, feature = "sim")))]
pub(in crate::engine) fn fused_reference(
    _: &Arc<Fused>,
    _: Variant,
    _: Layout,
    _: &Caps,
) -> Option<ReferenceKernel> {
    None
}
