//! Cooperative matrices: squares that a subgroup multiplies at once. wgpu calls them experimental.

#![expect(
    unsafe_code,
    reason = "wgpu asks for a promise where a feature is experimental, and the driver is asked for what \
              wgpu does not tell"
)]

use wgpu::{CooperativeMatrixProperties, CooperativeScalarType, ExperimentalFeatures, Features};

/// The features that cooperative kernels need: their operands lie in workgroup memory as f16.
pub(super) const FEATURES: Features =
    Features::EXPERIMENTAL_COOPERATIVE_MATRIX.union(Features::SHADER_F16);

/// The rows, and columns, of the largest squares of f16 that the adapter multiplies with sums in
/// f32.
///
/// Only on Vulkan. Metal has cooperative matrices too, but these kernels were never run there.
pub(super) fn size(adapter: &wgpu::Adapter) -> Option<u32> {
    let is_seen = adapter.get_info().backend == wgpu::Backend::Vulkan;
    if !is_seen || !adapter.features().contains(FEATURES) || !is_granted(adapter) {
        return None;
    }
    largest(&adapter.cooperative_matrix_properties())
}

/// Whether the driver grants cooperative matrices to a device. wgpu offers them if the driver lists
/// sizes, and panics if the driver then refuses the device. Mesa's software driver does so where
/// subgroups have four lanes.
#[cfg(any(
    windows,
    target_os = "linux",
    target_os = "android",
    target_os = "freebsd"
))]
fn is_granted(adapter: &wgpu::Adapter) -> bool {
    use ash::vk;

    // SAFETY: the handle is only read, not destroyed, and the guard keeps it alive.
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
    // SAFETY: the instance's version has the function. The physical device belongs to the instance
    // and lists sizes, so it knows the chained structure, which outlives the call.
    unsafe { raw.get_physical_device_features2(physical, &mut asked) };
    granted.cooperative_matrix == vk::TRUE
}

/// Other systems have no native Vulkan.
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

/// The permission with which a device is opened, so that it has these features.
pub(super) fn permission(features: Features) -> ExperimentalFeatures {
    match features.contains(Features::EXPERIMENTAL_COOPERATIVE_MATRIX) {
        // SAFETY: the danger is a wrong use of these matrices in a shader. Only a text of this
        // project uses them (`shaders/matmul/cooperative.wgsl`). It does so in uniform control
        // flow, with workgroup memory, inside its bounds, and in a size and with types that the
        // adapter has listed. Kernels of the app are validated without the capability
        // (`ops/custom/reflect.rs`), so they cannot use them.
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
