//! Whether a device can replace a lost one. Tensors were placed, and kernels chosen, by the
//! abilities of the lost device.

use super::{Caps, ShaderCompiler};

/// The reason why a device with the caps `new` cannot replace one with `old`, if there is one. The
/// names may differ: an updated driver may report another name.
pub(super) fn refusal(old: &Caps, new: &Caps) -> Option<String> {
    macro_rules! refused {
        ($field:ident, $is_refused:expr) => {
            $is_refused.then(|| {
                let (name, old, new) = (stringify!($field), &old.$field, &new.$field);
                format!("{name} was {old:?} and is now {new:?}")
            })
        };
    }
    macro_rules! least {
        ($field:ident) => {
            refused!($field, new.$field < old.$field).map(|why| why + ", which is less")
        };
    }
    let (backend, new_backend) = (&old.backend, &new.backend);
    let weaker = [old.compiler, new.compiler] == [ShaderCompiler::Dxc, ShaderCompiler::Fxc];
    // Offsets that were aligned for the old device must be aligned for the new one.
    let aligns = |old: u64, new: u64| old.is_multiple_of(new);
    let offsets = aligns(old.offset_alignment_bytes, new.offset_alignment_bytes);
    let uniforms = aligns(old.uniform_alignment_bytes, new.uniform_alignment_bytes);
    let lanes = old.subgroup_lanes.is_some() && old.subgroup_lanes != new.subgroup_lanes;
    let sizes = [old.cooperative_size, new.cooperative_size];
    let cooperates = sizes[0].is_some() && sizes[0] != sizes[1];
    // A heap in the host's memory and mapped slabs need the same ability of the device.
    let has_no_heap = old.host_heap && !(new.host_heap || new.maps_slabs);
    let found = [
        (backend != new_backend).then(|| format!("backend was {backend} and is now {new_backend}")),
        refused!(kind, old.kind != new.kind),
        // FXC may refuse kernels for DXC, while DXC accepts all kernels for FXC.
        refused!(compiler, weaker),
        refused!(
            runs_reference_kernels,
            old.runs_reference_kernels != new.runs_reference_kernels
        ),
        least!(max_buffer_bytes),
        least!(max_binding_bytes),
        least!(max_storage_bindings),
        refused!(offset_alignment_bytes, !offsets),
        refused!(uniform_alignment_bytes, !uniforms),
        least!(max_immediate_bytes),
        least!(max_groups),
        least!(max_invocations),
        least!(max_workgroup_bytes),
        refused!(subgroup_lanes, lanes),
        refused!(cooperative_size, cooperates),
        refused!(maps_slabs, old.maps_slabs && !new.maps_slabs),
        refused!(host_heap, has_no_heap),
    ];
    let found: Vec<String> = found.into_iter().flatten().collect();
    let (name, list) = (&new.name, found.join("; "));
    (!found.is_empty())
        .then(|| format!("`{name}` cannot take the place of the lost device: {list}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::AdapterKind;

    fn caps() -> Caps {
        Caps {
            name: "a device".to_owned(),
            backend: "vulkan".to_owned(),
            driver: "1.0".to_owned(),
            kind: AdapterKind::Discrete,
            compiler: ShaderCompiler::Dxc,
            max_buffer_bytes: 1 << 30,
            max_binding_bytes: 1 << 27,
            max_storage_bindings: 8,
            offset_alignment_bytes: 64,
            missing_features: Vec::new(),
            uniform_alignment_bytes: 64,
            max_immediate_bytes: 128,
            max_groups: 65_535,
            max_invocations: 256,
            max_workgroup_bytes: 16 << 10,
            subgroup_lanes: Some((32, 32)),
            cooperative_size: None,
            wide_words: false,
            maps_slabs: true,
            host_heap: false,
            most_work: 1 << 35,
            runs_reference_kernels: false,
            speed: None,
        }
    }

    /// Changes one field. The complaint names it, or there is no complaint.
    fn check(expected: Option<&str>, change: impl FnOnce(&mut Caps)) {
        let mut new = caps();
        change(&mut new);
        let found = refusal(&caps(), &new);
        match (expected, &found) {
            (None, None) => (),
            (Some(named), Some(why)) => assert!(why.contains(named), "{why}"),
            _ => panic!("expected {expected:?}, found {found:?}"),
        }
    }

    #[test]
    fn a_device_that_can_do_as_much_takes_over() {
        // DXC accepts the kernels for FXC.
        let of_fxc = Caps {
            compiler: ShaderCompiler::Fxc,
            ..caps()
        };
        assert_eq!(refusal(&of_fxc, &caps()), None);
        check(None, |_| ());
        check(None, |new| new.name = "the same, renamed".to_owned());
        check(None, |new| new.driver = "1.1".to_owned());
        check(None, |new| new.max_buffer_bytes *= 2);
        check(None, |new| new.offset_alignment_bytes = 32);
    }

    #[test]
    fn a_device_that_can_do_less_is_refused_with_what_it_lacks() {
        check(Some("backend"), |new| new.backend = "dx12".to_owned());
        check(Some("kind"), |new| new.kind = AdapterKind::Cpu);
        check(Some("compiler"), |new| new.compiler = ShaderCompiler::Fxc);
        check(Some("runs_reference_kernels"), |new| {
            new.runs_reference_kernels = true
        });
        check(Some("max_buffer_bytes"), |new| new.max_buffer_bytes -= 256);
        check(Some("max_binding_bytes"), |new| {
            new.max_binding_bytes -= 256
        });
        check(Some("max_storage_bindings"), |new| {
            new.max_storage_bindings = 4
        });
        check(Some("offset_alignment_bytes"), |new| {
            new.offset_alignment_bytes = 256
        });
        check(Some("uniform_alignment_bytes"), |new| {
            new.uniform_alignment_bytes = 256
        });
        check(Some("max_immediate_bytes"), |new| {
            new.max_immediate_bytes = 0
        });
        check(Some("max_groups"), |new| new.max_groups = 1024);
        check(Some("max_invocations"), |new| new.max_invocations = 128);
        check(Some("max_workgroup_bytes"), |new| {
            new.max_workgroup_bytes = 1024
        });
        check(Some("subgroup_lanes"), |new| new.subgroup_lanes = None);
        check(Some("maps_slabs"), |new| new.maps_slabs = false);
        let with_heap = Caps {
            maps_slabs: false,
            host_heap: true,
            ..caps()
        };
        assert_eq!(refusal(&with_heap, &caps()), None);
        let without = Caps {
            maps_slabs: false,
            ..caps()
        };
        assert!(refusal(&with_heap, &without).is_some_and(|why| why.contains("host_heap")));
    }
}
