//! The limits that all kernels and buffers of the engine respect, and the check of a device's
//! limits.
//!
//! WebGPU guarantees nearly all of them for every device, so a device that the engine opens has
//! them. An app may open its device with lower limits. Then an error names the limit that is too
//! low.

use wgpu::{Features, Limits};

use super::caps;
use crate::driver::MOST_BIND_GROUPS;
use crate::error::{Error, Result};

/// The least bytes of one binding. With less, even small operands would need several windows.
const BINDING_BYTES: u64 = 16 << 10;

/// The least bytes of a buffer. A page of parameters has this size.
const BUFFER_BYTES: u64 = 256 << 10;

/// The most bytes of parameters, which a uniform binding must hold.
const PARAMS_BYTES: u64 = caps::IMMEDIATE_BYTES as u64;

/// The highest alignment of an offset. Sizes and windows are multiples of it.
const ALIGNMENT_BYTES: u64 = 256;

/// The storage buffers of a dispatch. One stays unused; the rest holds the operands of every
/// kernel.
const STORAGE_BUFFERS: u64 = 8;

/// The bindings of all bind groups at once, each with a kernel's operands and parameters. DX12 has
/// a heap of this many descriptors, and a bind group beyond it is out of memory.
const BINDINGS: u64 = MOST_BIND_GROUPS as u64 * (STORAGE_BUFFERS + 1);

/// The invocations of the largest workgroup.
const INVOCATIONS: u64 = 256;

/// The bytes of workgroup memory of kernels that do not ask for the limit.
const WORKGROUP_BYTES: u64 = 8 << 10;

/// The workgroups along an axis of a dispatch. Every graphics API guarantees this number.
const GROUPS: u64 = 65_535;

/// One limit: its name, the device's value, and the needed value.
struct Limit {
    name: &'static str,
    has: u64,
    needs: u64,
    /// Whether a lower value is better.
    is_most: bool,
}

/// Refuses a device, or an adapter, with a limit that is too low for the engine. The error names
/// the limit.
pub(super) fn check(features: Features, limits: &Limits) -> Result<()> {
    let mut limits = all(limits, caps::has_immediates(features, limits)).into_iter();
    let short = limits.find(|limit| match limit.is_most {
        true => limit.has > limit.needs,
        false => limit.has < limit.needs,
    });
    let Some(short) = short else {
        return Ok(());
    };
    let (has, needs) = (short.has, short.needs);
    let bound = if short.is_most { "at most" } else { "at least" };
    Err(Error::option(
        short.name,
        format!(
            "the device has {has}, and lapidary needs {bound} {needs}: ask for `adapter.limits()` \
             when you open it, or for another adapter"
        ),
    ))
}

fn all(limits: &Limits, has_immediates: bool) -> Vec<Limit> {
    macro_rules! least {
        ($field:ident, $needs:expr) => {
            Limit {
                name: stringify!($field),
                has: u64::from(limits.$field),
                needs: $needs,
                is_most: false,
            }
        };
    }
    macro_rules! most {
        ($field:ident, $needs:expr) => {
            Limit {
                is_most: true,
                ..least!($field, $needs)
            }
        };
    }
    let mut all = vec![
        least!(max_storage_buffers_per_shader_stage, STORAGE_BUFFERS),
        // And one binding for parameters.
        least!(max_bindings_per_bind_group, STORAGE_BUFFERS + 1),
        least!(max_bind_groups, 1),
        least!(max_non_sampler_bindings, BINDINGS),
        least!(max_buffer_size, BUFFER_BYTES),
        least!(max_storage_buffer_binding_size, BINDING_BYTES),
        least!(max_compute_invocations_per_workgroup, INVOCATIONS),
        least!(max_compute_workgroup_size_x, INVOCATIONS),
        least!(max_compute_workgroup_size_y, 1),
        least!(max_compute_workgroup_size_z, 1),
        least!(max_compute_workgroup_storage_size, WORKGROUP_BYTES),
        least!(max_compute_workgroups_per_dimension, GROUPS),
        most!(min_storage_buffer_offset_alignment, ALIGNMENT_BYTES),
    ];
    if !has_immediates {
        // Parameters go through a uniform buffer.
        all.extend([
            least!(max_uniform_buffers_per_shader_stage, 1),
            least!(max_dynamic_uniform_buffers_per_pipeline_layout, 1),
            least!(max_uniform_buffer_binding_size, PARAMS_BYTES),
            most!(min_uniform_buffer_offset_alignment, ALIGNMENT_BYTES),
        ]);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_limit_is_named_with_what_is_needed() {
        assert!(check(Features::empty(), &Limits::default()).is_ok());
        for (has_immediates, count) in [(true, 13), (false, 17)] {
            assert_eq!(all(&Limits::default(), has_immediates).len(), count);
        }
        let lower = |change: fn(&mut Limits)| {
            let mut limits = Limits::default();
            change(&mut limits);
            match check(Features::empty(), &limits) {
                Err(Error::Option { option, reason }) => (option, reason),
                other => panic!("{other:?}"),
            }
        };
        let (option, reason) = lower(|limits| limits.max_buffer_size = 4);
        assert_eq!(option, "max_buffer_size");
        assert!(
            reason.contains("has 4") && reason.contains("at least 262144"),
            "{reason}"
        );
        let (option, reason) = lower(|limits| limits.min_storage_buffer_offset_alignment = 512);
        assert_eq!(option, "min_storage_buffer_offset_alignment");
        assert!(reason.contains("at most 256"), "{reason}");
        let (option, _) = lower(|limits| limits.max_uniform_buffers_per_shader_stage = 0);
        assert_eq!(option, "max_uniform_buffers_per_shader_stage");
        let (option, reason) = lower(|limits| limits.max_non_sampler_bindings = 1000);
        assert_eq!(option, "max_non_sampler_bindings");
        assert!(
            reason.contains("has 1000") && reason.contains("at least 73728"),
            "{reason}"
        );
        let low = check(Features::empty(), &Limits::downlevel_defaults())
            .unwrap_err()
            .to_string();
        assert!(
            low.starts_with("`max_storage_buffers_per_shader_stage`"),
            "{low}"
        );
        assert!(check(Features::empty(), &Limits::downlevel_webgl2_defaults()).is_err());
    }
}
