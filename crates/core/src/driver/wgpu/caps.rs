//! The abilities of a device that lapidary uses.

use wgpu::Features;

use super::super::{AdapterKind, Caps, ShaderCompiler};
use super::cooperative;

/// The kernels count elements in `u32`, so no buffer has more bytes than a `u32` counts.
const MOST_BUFFER_BYTES: u64 = (1 << 32) - 256;

/// Sizes are multiples of the largest offset alignment of all devices. So a range that starts at a
/// multiple of a limit is aligned.
const GRANULE_BYTES: u64 = 256;

/// The bytes of parameters that a kernel may have. A device with fewer bytes of immediates counts
/// as one without immediates.
pub(super) const IMMEDIATE_BYTES: u32 = 128;

pub(super) fn kind_of(device_type: wgpu::DeviceType) -> AdapterKind {
    match device_type {
        wgpu::DeviceType::DiscreteGpu => AdapterKind::Discrete,
        wgpu::DeviceType::IntegratedGpu => AdapterKind::Integrated,
        wgpu::DeviceType::VirtualGpu => AdapterKind::Virtual,
        wgpu::DeviceType::Cpu => AdapterKind::Cpu,
        wgpu::DeviceType::Other => AdapterKind::Other,
    }
}

/// The compiler of kernels. wgpu does not say which compiler it loaded for DX12. But these features
/// need shader model 6, which wgpu offers only with DXC.
pub(super) fn compiler_of(info: &wgpu::AdapterInfo, offered: Features) -> ShaderCompiler {
    const BY_DXC: Features = Features::SUBGROUP
        .union(Features::SHADER_INT64)
        .union(Features::SHADER_F16);
    match info.backend {
        wgpu::Backend::Dx12 if offered.intersects(BY_DXC) => ShaderCompiler::Dxc,
        wgpu::Backend::Dx12 => ShaderCompiler::Fxc,
        _ => ShaderCompiler::Driver,
    }
}

/// The driver's name and version, if it tells them.
pub(super) fn driver_of(info: &wgpu::AdapterInfo) -> String {
    format!("{} {}", info.driver, info.driver_info)
        .trim()
        .to_owned()
}

/// Whether host memory serves as device memory, so that mapping a slab costs nothing.
pub(super) fn shares_memory(kind: AdapterKind) -> bool {
    matches!(kind, AdapterKind::Cpu | AdapterKind::Integrated)
}

/// The useful features among those that the adapter offers. The features of cooperative matrices
/// are included if there is a `cooperative_size`.
pub(super) fn wanted(
    offered: Features,
    kind: AdapterKind,
    cooperative_size: Option<u32>,
) -> Features {
    let mut wanted = Features::IMMEDIATES
        | Features::SUBGROUP
        | Features::MAPPABLE_PRIMARY_BUFFERS
        | Features::PIPELINE_CACHE
        | Features::TIMESTAMP_QUERY;
    if kind == AdapterKind::Cpu {
        wanted |= Features::SHADER_INT64;
    }
    if cooperative_size.is_some() {
        wanted |= cooperative::FEATURES;
    }
    wanted & offered
}

/// The limits to request: all that the adapter has.
pub(super) fn limits(adapter: wgpu::Limits, features: Features) -> wgpu::Limits {
    let immediates = features.contains(Features::IMMEDIATES);
    wgpu::Limits {
        max_immediate_size: match immediates {
            true => adapter.max_immediate_size.min(IMMEDIATE_BYTES),
            false => 0,
        },
        ..adapter
    }
}

/// At most a quarter of a second on a small GPU. Such a GPU has a hundredth of the speed of the
/// largest: 32 billion multiply-adds, or 32 billion bytes, a second.
const MOST_WORK: u64 = 1 << 33;

/// The same for cards with their own memory. Even the smallest of them are several times faster.
const MOST_WORK_OF_DISCRETE: u64 = 1 << 35;

/// Whether parameters go through immediates.
pub(super) fn has_immediates(features: Features, limits: &wgpu::Limits) -> bool {
    features.contains(Features::IMMEDIATES) && limits.max_immediate_size >= IMMEDIATE_BYTES
}

/// The adapter's name. A browser may hide it.
pub(super) fn name_of(info: &wgpu::AdapterInfo) -> String {
    match info.name.trim() {
        "" => "unnamed adapter".to_owned(),
        name => name.to_owned(),
    }
}

/// The most storage bindings that a compiler can handle. FXC takes seconds for a copy that chooses
/// among 20 windows, and refuses a copy among 60 (X3705). A kernel has at most eight operands and
/// needs 9 bindings.
fn most_bindings(compiler: ShaderCompiler) -> u32 {
    match compiler {
        ShaderCompiler::Fxc => 9,
        _ => u32::MAX,
    }
}

/// The abilities of a device with these features and limits.
pub(super) fn caps(
    info: &wgpu::AdapterInfo,
    compiler: ShaderCompiler,
    features: Features,
    limits: &wgpu::Limits,
    cooperative_size: Option<u32>,
) -> Caps {
    let kind = kind_of(info.device_type);
    let max_buffer_bytes = round_down(limits.max_buffer_size.min(MOST_BUFFER_BYTES));
    let max_binding_bytes = round_down(limits.max_storage_buffer_binding_size);
    let immediates = has_immediates(features, limits);
    let lanes = (info.subgroup_min_size, info.subgroup_max_size);
    let is_mappable = features.contains(Features::MAPPABLE_PRIMARY_BUFFERS);
    Caps {
        name: name_of(info),
        backend: info.backend.to_str().to_owned(),
        driver: driver_of(info),
        kind,
        compiler,
        max_buffer_bytes,
        max_binding_bytes: max_binding_bytes.min(max_buffer_bytes),
        // One more binding is for parameters.
        max_storage_bindings: limits
            .max_storage_buffers_per_shader_stage
            .min(limits.max_bindings_per_bind_group.saturating_sub(1))
            .min(most_bindings(compiler)),
        offset_alignment_bytes: limits.min_storage_buffer_offset_alignment.into(),
        uniform_alignment_bytes: limits.min_uniform_buffer_offset_alignment.into(),
        max_immediate_bytes: if immediates { IMMEDIATE_BYTES } else { 0 },
        max_groups: limits.max_compute_workgroups_per_dimension,
        // Kernels count their invocations along x.
        max_invocations: limits
            .max_compute_invocations_per_workgroup
            .min(limits.max_compute_workgroup_size_x),
        max_workgroup_bytes: limits.max_compute_workgroup_storage_size,
        subgroup_lanes: (features.contains(Features::SUBGROUP) && lanes.0 > 0).then_some(lanes),
        // The number of subgroups in a workgroup must be known.
        cooperative_size: cooperative_size
            .filter(|_| features.contains(cooperative::FEATURES) && lanes.0 == lanes.1)
            // With 16 lanes, Mesa's software driver ends the process at such a kernel.
            .filter(|_| kind != AdapterKind::Cpu || lanes.0 == 8),
        wide_words: features.contains(Features::SHADER_INT64)
            && kind == AdapterKind::Cpu
            && info.backend == wgpu::Backend::Vulkan,
        maps_slabs: is_mappable && shares_memory(kind),
        host_heap: is_mappable && !shares_memory(kind),
        most_work: match kind {
            // No system resets a device that is the CPU itself.
            AdapterKind::Cpu => u64::MAX,
            AdapterKind::Discrete => MOST_WORK_OF_DISCRETE,
            _ => MOST_WORK,
        },
        runs_reference_kernels: false,
        missing_features: Vec::new(),
        speed: None,
    }
}

/// The features to request of an adapter, without those that wgpu calls experimental.
pub(crate) fn wanted_features(adapter: &wgpu::Adapter) -> Features {
    let kind = kind_of(adapter.get_info().device_type);
    wanted(adapter.features(), kind, None)
}

/// The names of features that make work faster, among those `wanted` that a device lacks.
fn missing(wanted: Features, features: Features, limits: &wgpu::Limits) -> Vec<String> {
    let all = [
        (
            Features::IMMEDIATES,
            "IMMEDIATES, with a `max_immediate_size` of 128",
        ),
        (Features::SUBGROUP, "SUBGROUP"),
        (
            Features::MAPPABLE_PRIMARY_BUFFERS,
            "MAPPABLE_PRIMARY_BUFFERS",
        ),
        (Features::SHADER_INT64, "SHADER_INT64"),
    ];
    let has = |feature| match feature == Features::IMMEDIATES {
        true => has_immediates(features, limits),
        false => features.contains(feature),
    };
    let missing = all
        .into_iter()
        .filter(|&(feature, _)| wanted.contains(feature) && !has(feature));
    missing.map(|(_, name)| name.to_owned()).collect()
}

/// The abilities of the app's device.
pub(super) fn of_device(adapter: Option<&wgpu::Adapter>, device: &wgpu::Device) -> Caps {
    let info = adapter.map_or_else(|| device.adapter_info(), wgpu::Adapter::get_info);
    let cooperative_size = adapter.and_then(cooperative::size);
    let features = device.features();
    let offered = adapter.map_or(features, wgpu::Adapter::features);
    let (compiler, limits) = (compiler_of(&info, offered), device.limits());
    let wanted = wanted(offered, kind_of(info.device_type), None);
    Caps {
        missing_features: missing(wanted, features, &limits),
        ..caps(&info, compiler, features, &limits, cooperative_size)
    }
}

fn round_down(bytes: u64) -> u64 {
    bytes / GRANULE_BYTES * GRANULE_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_become_sizes_that_windows_and_indices_can_use() {
        let info = wgpu::AdapterInfo::new(wgpu::DeviceType::DiscreteGpu, wgpu::Backend::Vulkan);
        let limits = wgpu::Limits {
            max_buffer_size: u64::MAX,
            max_storage_buffer_binding_size: (1 << 31) - 4,
            max_immediate_size: 64,
            ..wgpu::Limits::default()
        };
        let driver = ShaderCompiler::Driver;
        let caps = caps(&info, driver, Features::IMMEDIATES, &limits, Some(16));
        assert_eq!(caps.max_buffer_bytes, (1 << 32) - 256);
        assert_eq!(caps.max_binding_bytes, (1 << 31) - 256);
        assert_eq!(caps.max_immediate_bytes, 0);
        assert_eq!((caps.subgroup_lanes, caps.maps_slabs), (None, false));
        assert_eq!(caps.cooperative_size, None);
    }

    #[test]
    fn fxc_gets_no_more_windows_than_it_compiles_soon() {
        let info = wgpu::AdapterInfo::new(wgpu::DeviceType::DiscreteGpu, wgpu::Backend::Dx12);
        let limits = wgpu::Limits {
            max_storage_buffers_per_shader_stage: 500_000,
            max_bindings_per_bind_group: 1000,
            ..wgpu::Limits::default()
        };
        let bindings =
            |compiler| caps(&info, compiler, Features::empty(), &limits, None).max_storage_bindings;
        assert_eq!(bindings(ShaderCompiler::Fxc), 9);
        assert_eq!(bindings(ShaderCompiler::Dxc), 999);
    }

    #[test]
    fn dx12_is_taken_for_fxc_unless_the_adapter_offers_what_only_dxc_compiles() {
        let compiler = |backend, offered| {
            let info = wgpu::AdapterInfo::new(wgpu::DeviceType::DiscreteGpu, backend);
            compiler_of(&info, offered)
        };
        let (dx12, vulkan) = (wgpu::Backend::Dx12, wgpu::Backend::Vulkan);
        let common = Features::IMMEDIATES | Features::TIMESTAMP_QUERY;
        assert_eq!(compiler(dx12, common), ShaderCompiler::Fxc);
        assert_eq!(
            compiler(dx12, common | Features::SUBGROUP),
            ShaderCompiler::Dxc
        );
        assert_eq!(compiler(dx12, Features::SHADER_INT64), ShaderCompiler::Dxc);
        assert_eq!(compiler(vulkan, Features::all()), ShaderCompiler::Driver);
    }
}
