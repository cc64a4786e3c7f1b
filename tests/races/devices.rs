//! The devices on which kernels are interpreted.

use lapidary::sim::{SimHandle, SimKernels, SimOptions};
use lapidary::{
    Budget, Gpu, Options,
    adapter::{AdapterKind, ShaderCompiler},
    diagnostics::Diagnostics,
};

/// A simulated device that interprets kernels.
pub(crate) struct Device {
    pub(crate) name: String,
    pub(crate) gpu: Gpu,
    pub(crate) sim: SimHandle,
}

fn options(fuse: bool) -> Options {
    Options {
        fuse: Some(fuse),
        budget: Some(Budget::default()),
        ..Options::from_env().unwrap()
    }
}

/// A device whose kernels are computed by their reference kernels.
pub(crate) fn reference() -> Gpu {
    let (gpu, _) =
        Gpu::simulated_with(SimOptions::default(), options(false)).expect("these can be");
    gpu
}

/// The kinds of adapters, without their subgroups.
fn sorts() -> Vec<(&'static str, SimOptions)> {
    let gpu = SimOptions {
        kernels: SimKernels::Interpreted,
        dirty: true,
        max_workgroup_bytes: 32 << 10,
        ..SimOptions::default()
    };
    let integrated = SimOptions {
        kind: AdapterKind::Integrated,
        maps_slabs: true,
        max_workgroup_bytes: 16 << 10,
        max_immediate_bytes: 0,
        ..gpu.clone()
    };
    let software = SimOptions {
        kind: AdapterKind::Cpu,
        wide_words: true,
        max_invocations: 1024,
        ..gpu.clone()
    };
    let matrices = |size| SimOptions {
        cooperative_size: Some(size),
        max_invocations: 1024,
        ..gpu.clone()
    };
    let (small, large) = (matrices(8), matrices(16));
    vec![
        ("a discrete GPU", gpu),
        ("an integrated GPU", integrated),
        ("a software adapter", software),
        ("a GPU with matrices of 8", small),
        ("a GPU with matrices of 16", large),
    ]
}

/// Every kind of adapter with every size of subgroups, and without subgroups.
pub(crate) fn devices(fuse: bool) -> Vec<Device> {
    let mut devices = Vec::new();
    for (name, options) in sorts() {
        for lanes in [4, 8, 16, 32, 64] {
            let options = SimOptions {
                subgroup_lanes: Some((lanes, lanes)),
                ..options.clone()
            };
            devices.push(open(format!("{name}, subgroups of {lanes}"), options, fuse));
        }
        if options.cooperative_size.is_none() {
            let compiler = match options.kind {
                AdapterKind::Cpu => ShaderCompiler::Driver,
                _ => ShaderCompiler::Fxc,
            };
            let wide_words = false;
            let options = SimOptions {
                compiler,
                wide_words,
                ..options
            };
            devices.push(open(format!("{name} without subgroups"), options, fuse));
        }
    }
    devices
}

/// Devices whose bindings cover 16 KiB: operands have several windows, or calls several launches.
pub(crate) fn with_windows() -> Vec<Device> {
    let sorts = sorts().into_iter().take(3);
    let few = sorts.map(|(name, options)| {
        let options = SimOptions {
            max_binding_bytes: 16 << 10,
            ..options
        };
        open(format!("{name} with small bindings"), options, false)
    });
    few.collect()
}

/// A device with diagnostics.
pub(crate) fn that_looks_for_bugs() -> (Gpu, SimHandle) {
    let device = SimOptions {
        kernels: SimKernels::Interpreted,
        ..SimOptions::default()
    };
    let options = Options {
        diagnostics: Some(Diagnostics::all()),
        ..options(false)
    };
    Gpu::simulated_with(device, options).expect("these can be")
}

fn open(name: String, device: SimOptions, fuse: bool) -> Device {
    let (gpu, sim) = Gpu::simulated_with(device, options(fuse)).expect("these can be");
    Device { name, gpu, sim }
}
