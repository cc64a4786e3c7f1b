//! The device memory that the operating system allows this process, read from the driver's
//! interface, which wgpu does not expose. One of the files with `unsafe` code.
//!
//! | backend | budget and use | as of |
//! | --- | --- | --- |
//! | Vulkan | `VK_EXT_memory_budget`; without it the heap's size | each call; without it never |
//! | DX12 | `IDXGIAdapter3::QueryVideoMemoryInfo` | each call |
//! | Metal | `recommendedMaxWorkingSetSize`, `currentAllocatedSize` | each call |
//! | WebGPU | nothing: a browser does not tell | |
//!
//! All of these count per process. So `used_bytes` includes the app's own textures, and other
//! processes lower `budget_bytes`.

#![allow(
    unsafe_code,
    reason = "the driver's own handles are behind unsafe functions"
)]

/// The budget and the use of this process in the largest device-local heap. A second, small heap,
/// the window through which the CPU writes, does not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OsBudget {
    /// The bytes that the process may use now.
    pub(crate) budget_bytes: u64,
    /// The bytes that the process uses, by the engine and by all other code.
    pub(crate) used_bytes: u64,
    /// Whether nothing is counted. Then the budget is the heap's size, the use is unknown, and the
    /// answer never changes.
    pub(crate) is_static: bool,
}

type Read = fn(&wgpu::Device, Option<&wgpu::Adapter>) -> Option<OsBudget>;

/// The budget of the device's process. `None` if the system does not tell. DX12 answers through the
/// adapter.
pub(super) fn read(device: &wgpu::Device, adapter: Option<&wgpu::Adapter>) -> Option<OsBudget> {
    let backends: &[Read] = &[
        #[cfg(any(
            windows,
            target_os = "linux",
            target_os = "android",
            target_os = "freebsd"
        ))]
        vulkan::read,
        #[cfg(windows)]
        dx12::read,
        #[cfg(target_vendor = "apple")]
        metal::read,
    ];
    backends.iter().find_map(|read| read(device, adapter))
}

#[cfg(any(
    windows,
    target_os = "linux",
    target_os = "android",
    target_os = "freebsd"
))]
mod vulkan {
    use ash::{ext, khr, vk};
    use wgpu::hal;

    use super::OsBudget;

    /// The numbers of a heap, as the driver gives them.
    #[derive(Clone, Copy)]
    pub(super) struct Heap {
        pub(super) size_bytes: u64,
        pub(super) is_local: bool,
        /// Budget and use, if the driver counts them.
        pub(super) counted: Option<(u64, u64)>,
    }

    /// The budget of the largest local heap. Some drivers report 0, or more than the heap's size.
    pub(super) fn of_heaps(heaps: impl Iterator<Item = Heap>) -> Option<OsBudget> {
        let local = heaps.filter(|heap| heap.is_local && heap.size_bytes > 0);
        let heap = local.max_by_key(|heap| heap.size_bytes)?;
        let counted = heap.counted.filter(|(budget_bytes, _)| *budget_bytes > 0);
        let (budget_bytes, used_bytes) = counted.unwrap_or((heap.size_bytes, 0));
        Some(OsBudget {
            budget_bytes: budget_bytes.min(heap.size_bytes),
            used_bytes,
            is_static: counted.is_none(),
        })
    }

    pub(super) fn read(device: &wgpu::Device, _: Option<&wgpu::Adapter>) -> Option<OsBudget> {
        // SAFETY: the handle is only read, not destroyed, and the guard keeps it alive.
        let device = unsafe { device.as_hal::<hal::api::Vulkan>() }?;
        let mut budget = vk::PhysicalDeviceMemoryBudgetPropertiesEXT::default();
        let (memory, is_counted) = match counts(&device) {
            true => (counted(&device, &mut budget), true),
            false => (uncounted(&device), false),
        };
        let heaps = memory.memory_heaps_as_slice().iter().enumerate();
        of_heaps(heaps.map(|(index, heap)| Heap {
            size_bytes: heap.size,
            is_local: heap.flags.contains(vk::MemoryHeapFlags::DEVICE_LOCAL),
            counted: is_counted.then(|| (budget.heap_budget[index], budget.heap_usage[index])),
        }))
    }

    /// Whether the physical device has the extension, and the instance the function to ask. wgpu
    /// does not enable the extension on every driver that has it: it does not trust some drivers
    /// enough to refuse buffers by their numbers. Reading needs no enabling.
    fn counts(device: &hal::vulkan::Device) -> bool {
        let instance = device.shared_instance();
        // Before Vulkan 1.1 the function belongs to an extension of the instance.
        let has_function = instance.instance_api_version() >= vk::API_VERSION_1_1
            || (instance.extensions()).contains(&khr::get_physical_device_properties2::NAME);
        if !has_function {
            return false;
        }
        if device
            .enabled_device_extensions()
            .contains(&ext::memory_budget::NAME)
        {
            return true;
        }
        let physical = device.raw_physical_device();
        // SAFETY: the physical device belongs to the instance, which the device keeps alive.
        let listed = unsafe {
            instance
                .raw_instance()
                .enumerate_device_extension_properties(physical)
        };
        let is_it = |listed: &vk::ExtensionProperties| {
            listed.extension_name_as_c_str() == Ok(ext::memory_budget::NAME)
        };
        listed.is_ok_and(|listed| listed.iter().any(is_it))
    }

    fn uncounted(device: &hal::vulkan::Device) -> vk::PhysicalDeviceMemoryProperties {
        let instance = device.shared_instance().raw_instance();
        // SAFETY: the physical device belongs to the instance, which the device keeps alive.
        unsafe { instance.get_physical_device_memory_properties(device.raw_physical_device()) }
    }

    fn counted(
        device: &hal::vulkan::Device,
        budget: &mut vk::PhysicalDeviceMemoryBudgetPropertiesEXT<'_>,
    ) -> vk::PhysicalDeviceMemoryProperties {
        let (instance, physical) = (device.shared_instance(), device.raw_physical_device());
        let raw = instance.raw_instance();
        let mut asked = vk::PhysicalDeviceMemoryProperties2::default().push_next(budget);
        if instance.instance_api_version() >= vk::API_VERSION_1_1 {
            // SAFETY: the instance's version has the function. The physical device belongs to the
            // instance and knows the chained structure, which outlives the call.
            unsafe { raw.get_physical_device_memory_properties2(physical, &mut asked) };
        } else {
            use khr::get_physical_device_properties2::Instance;
            let functions = Instance::new(instance.entry(), raw);
            // SAFETY: as above, but the function comes from the extension.
            unsafe { functions.get_physical_device_memory_properties2(physical, &mut asked) };
        }
        asked.memory_properties
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        fn heap(size_bytes: u64, is_local: bool, counted: Option<(u64, u64)>) -> Heap {
            Heap {
                size_bytes,
                is_local,
                counted,
            }
        }

        /// Budget, use, and whether the numbers are static.
        #[track_caller]
        fn check(heaps: &[Heap], expected: Option<(u64, u64, bool)>) {
            let got = of_heaps(heaps.iter().copied());
            let got = got.map(|os| (os.budget_bytes, os.used_bytes, !os.is_static));
            assert_eq!(got, expected);
        }

        #[test]
        fn the_largest_local_heap_counts_whatever_is_beside_it() {
            const GIB: u64 = 1 << 30;
            let vram = heap(8 * GIB, true, Some((7 * GIB, GIB)));
            let host = heap(64 * GIB, false, Some((60 * GIB, 2 * GIB)));
            let window = heap(GIB / 4, true, Some((GIB / 8, GIB / 16)));
            let expected = Some((7 * GIB, GIB, true));
            check(&[vram], expected);
            check(&[vram, host, window], expected);
            check(&[window, host, vram], expected);
            // The small window does not count, even if it has more left.
            check(
                &[heap(8 * GIB, true, Some((1, 0))), window],
                Some((1, 0, true)),
            );
        }

        #[test]
        fn without_a_count_and_with_one_that_cannot_be_the_size_is_all_that_is_known() {
            check(&[heap(4096, true, None)], Some((4096, 0, false)));
            check(&[heap(4096, true, Some((0, 0)))], Some((4096, 0, false)));
            check(
                &[heap(4096, true, Some((9999, 10)))],
                Some((4096, 10, true)),
            );
            check(&[heap(4096, false, Some((4096, 0)))], None);
            check(&[heap(0, true, None)], None);
            check(&[], None);
        }
    }
}

#[cfg(windows)]
mod dx12 {
    use wgpu::hal;

    use super::OsBudget;

    pub(super) fn read(_: &wgpu::Device, adapter: Option<&wgpu::Adapter>) -> Option<OsBudget> {
        // SAFETY: the handle is only read, not destroyed, and the guard keeps it alive.
        let adapter = unsafe { adapter?.as_hal::<hal::api::Dx12>() }?;
        // The default segment is the local one: the device's own memory, or all that it shares.
        let told = adapter
            .raw_adapter()
            .query_video_memory_info(Default::default());
        let told = told.ok().filter(|told| told.Budget > 0)?;
        Some(OsBudget {
            budget_bytes: told.Budget,
            used_bytes: told.CurrentUsage,
            is_static: false,
        })
    }
}

#[cfg(target_vendor = "apple")]
mod metal {
    use objc2_metal::MTLDevice;
    use wgpu::hal;

    use super::OsBudget;

    pub(super) fn read(device: &wgpu::Device, _: Option<&wgpu::Adapter>) -> Option<OsBudget> {
        // SAFETY: the handle is only read, not destroyed, and the guard keeps it alive.
        let device = unsafe { device.as_hal::<hal::api::Metal>() }?;
        let raw = device.raw_device();
        let budget_bytes = raw.recommendedMaxWorkingSetSize();
        (budget_bytes > 0).then(|| OsBudget {
            budget_bytes,
            used_bytes: raw.currentAllocatedSize() as u64,
            is_static: false,
        })
    }
}
