//! Adapts reference kernels to the bindings of a dispatch, for a device that computes on the host.

#[cfg(any(test, feature = "sim"))]
use std::sync::Arc;

use super::wgsl::Layout;
use super::{Program, Variant};
#[cfg(any(test, feature = "sim"))]
use super::{ReferenceCall, Role};
use crate::driver::{Caps, ReferenceKernel};

/// The reference kernel for a layout. `None` on a device that runs the WGSL.
#[cfg(any(test, feature = "sim"))]
pub(crate) fn reference(
    program: &Program,
    variant: Variant,
    layout: Layout,
    caps: &Caps,
) -> Option<ReferenceKernel> {
    if !caps.runs_reference_kernels {
        return None;
    }
    let roles = (0..program.operands()).map(|operand| program.role(operand));
    let roles: Vec<Role> = roles.collect();
    let pages = program.pages();
    Some(match program {
        Program::Builtin(kernel) => over_bindings(roles, variant, layout, pages, kernel.reference?),
        // Runs the reference kernels of its parts, one after the other.
        Program::Fused(fused) => {
            let reference = fused.reference.clone()?;
            over_bindings(roles, variant, layout, pages, move |call| reference(call))
        }
        // Its bindings are its operands. The code says which show a part of their canary.
        Program::Custom(custom) => {
            let reference = custom.reference.clone()?;
            Arc::new(move |bindings, params| reference(bindings, params, variant.code))
        }
    })
}

/// The reference kernels are not compiled in: no device of this build computes on the host.
#[cfg(not(any(test, feature = "sim")))]
pub(crate) fn reference(_: &Program, _: Variant, _: Layout, _: &Caps) -> Option<ReferenceKernel> {
    None
}

/// Adapts a reference kernel of whole operands to bindings.
#[cfg(any(test, feature = "sim"))]
fn over_bindings(
    roles: Vec<Role>,
    variant: Variant,
    layout: Layout,
    pages: Option<usize>,
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
            windows: pages.map_or(Vec::new(), |operand| {
                let lens = bindings[windows(operand)].iter().map(Vec::len);
                let ends = lens.scan(0, |end, len| {
                    *end += len;
                    Some(*end)
                });
                std::iter::once(0).chain(ends).collect()
            }),
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
