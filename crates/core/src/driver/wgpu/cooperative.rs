//! Cooperative matrices: squares that a subgroup multiplies at once, which wgpu calls experimental.

#![expect(
    unsafe_code,
    reason = "wgpu asks for a promise where a feature is experimental, and the driver is asked for what \
              wgpu does not tell"
)]

use wgpu::{CooperativeMatrixProperties, CooperativeScalarType, ExperimentalFeatures, Features};

/// What kernels by cooperative matrices need: their operands lie in workgroup memory as halves.
pub(super) const FEATURES: Features =
    Features::EXPERIMENTAL_COOPERATIVE_MATRIX.union(Features::SHADER_F16);

/// Rows, and columns, of the largest squares of halves that the adapter multiplies with sums in
/// single precision.
///
/// On Vulkan alone: Metal has them too, but nobody has seen these kernels run there.
pub(super) fn size(adapter: &wgpu::Adapter) -> Option<u32> {
    let is_seen = adapter.get_info().backend == wgpu::Backend::Vulkan;
    if !is_seen || !adapter.features().contains(FEATURES) || !is_granted(adapter) {
        return None;
    }
    largest(&adapter.cooperative_matrix_properties())
}

/// Whether the driver grants them to a device. wgpu offers them as soon as the driver lists sizes,
/// and panics if it then refuses the device, as Mesa's software driver does where subgroups have
/// four lanes.
#[cfg(any(
    windows,
    target_os = "linux",
    target_os = "android",
    target_os = "freebsd"
))]
fn is_granted(adapter: &wgpu::Adapter) -> bool {
    use ash::vk;

    // SAFETY: what is behind it is asked and not destroyed, and the guard keeps it alive.
    let Some(adapter) = (unsafe { adapter.as_hal::<wgpu::hal::api::Vulkan>() }) else {
        return false;
    };
    let instance = adapter.shared_instance();
    if instance.instance_api_version() < vk::API_VERSION_1_1 {
        return false;
    }
    let mut granted = vk::PhysicalDeviceCooperativeMatrixFeaturesKHR::default();
    let mut asked = vk::PhysicalDeviceFeatures2::default().push_next(&mut granted);
    let (raw, physical) = (instance.raw_instance(), adapter.raw_physical_device());
    // SAFETY: the instance has the function, since its version has it; the physical device is its
    // own and lists sizes, so it knows the structure that is chained, which outlives the call.
    unsafe { raw.get_physical_device_features2(physical, &mut asked) };
    granted.cooperative_matrix == vk::TRUE
}

/// No other system has Vulkan of its own.
#[cfg(not(any(
    windows,
    target_os = "linux",
    target_os = "android",
    target_os = "freebsd"
)))]
fn is_granted(_: &wgpu::Adapter) -> bool {
    false
}

fn largest(offered: &[CooperativeMatrixProperties]) -> Option<u32> {
    let is_square = |of: &&CooperativeMatrixProperties| {
        let is_of_halves = of.ab_type == CooperativeScalarType::F16;
        let has_whole_sums = of.cr_type == CooperativeScalarType::F32;
        let sizes = [of.n_size, of.k_size];
        is_of_halves && has_whole_sums && sizes == [of.m_size; 2] && [8, 16].contains(&of.m_size)
    };
    offered.iter().filter(is_square).map(|of| of.m_size).max()
}

/// What a device is opened with, so that it has these features.
pub(super) fn permission(features: Features) -> ExperimentalFeatures {
    match features.contains(Features::EXPERIMENTAL_COOPERATIVE_MATRIX) {
        // SAFETY: what may go wrong is the use of these matrices in a shader. Only a text of ours
        // names them (`shaders/matmul/cooperative.wgsl`): in uniform control flow, out of workgroup
        // memory, inside its bounds, in a size and with types that the adapter has listed. Kernels
        // of the app's are validated without the capability (`ops/custom/reflect.rs`) and cannot.
        true => unsafe { ExperimentalFeatures::enabled() },
        false => ExperimentalFeatures::disabled(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_squares_of_halves_with_sums_in_single_precision_count() {
        let offer = |sizes: [u32; 3], ab_type, cr_type| CooperativeMatrixProperties {
            m_size: sizes[0],
            n_size: sizes[1],
            k_size: sizes[2],
            ab_type,
            cr_type,
            saturating_accumulation: false,
        };
        let (half, whole) = (CooperativeScalarType::F16, CooperativeScalarType::F32);
        let small = offer([8; 3], half, whole);
        assert_eq!(largest(&[]), None);
        assert_eq!(largest(&[small]), Some(8));
        assert_eq!(largest(&[offer([16; 3], half, whole), small]), Some(16));
        assert_eq!(largest(&[offer([16; 3], half, half), small]), Some(8));
        assert_eq!(largest(&[offer([8; 3], whole, whole)]), None);
        assert_eq!(largest(&[offer([16, 8, 16], half, whole)]), None);
    }
}
