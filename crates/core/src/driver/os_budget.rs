//! What the operating system lets this process use of the device's memory: read from the driver's
//! own interface, which wgpu does not show. One of two files with `unsafe` code.
//!
//! | backend | budget and use | as of |
//! | --- | --- | --- |
//! | Vulkan | `VK_EXT_memory_budget`; without it the heap's size | each call; without it never |
//! | DX12 | `IDXGIAdapter3::QueryVideoMemoryInfo` | each call |
//! | Metal | `recommendedMaxWorkingSetSize`, `currentAllocatedSize` | each call |
//! | WebGPU | nothing: a browser does not tell | |
//!
//! All of them speak of the process, so the app's own textures are in `used_bytes`, and other
//! processes show as a smaller `budget_bytes`.

#![allow(
    unsafe_code,
    reason = "the driver's own handles are behind unsafe functions"
)]

/// What this process may use and does use of the largest heap that is the device's own. A second,
/// small one, the window through which the CPU writes, does not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OsBudget {
    /// What the process may use in all, now.
    pub(crate) budget_bytes: u64,
    /// What of that it uses, ours and everybody else's in the process.
    pub(crate) used_bytes: u64,
    /// Nobody keeps count: the budget is the heap's size, the use is not known, and the answer is
    /// the same every time.
    pub(crate) is_static: bool,
}

type Read = fn(&wgpu::Device, Option<&wgpu::Adapter>) -> Option<OsBudget>;

/// The budget of the device's process; none where nobody tells. DX12 is asked through the adapter.
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

    /// A heap's numbers as the driver gives them.
    #[derive(Clone, Copy)]
    pub(super) struct Heap {
        pub(super) size_bytes: u64,
        pub(super) is_local: bool,
        /// Budget and use, where the driver keeps count.
        pub(super) counted: Option<(u64, u64)>,
    }

    /// The budget of the largest local heap. Drivers are known that say 0, or more than there is.
    pub(super) fn of_heaps(heaps: impl Iterator<Item = Heap>) -> Option<OsBudget> {
        let local = heaps.filter(|heap| heap.is_local && heap.size_bytes > 0);
        let heap = local.max_by_key(|heap| heap.size_bytes)?;
        Some(match heap.counted {
            Some((budget_bytes, used_bytes)) if budget_bytes > 0 => OsBudget {
                budget_bytes: budget_bytes.min(heap.size_bytes),
                used_bytes,
                is_static: false,
            },
            _ => OsBudget {
                budget_bytes: heap.size_bytes,
                used_bytes: 0,
                is_static: true,
            },
        })
    }

    pub(super) fn read(device: &wgpu::Device, _: Option<&wgpu::Adapter>) -> Option<OsBudget> {
        // SAFETY: what is behind it is asked and not destroyed, and the guard keeps it alive.
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

    /// Whether the physical device has the extension and there is a function to ask. wgpu does not
    /// enable it on every driver that has it, since it trusts some too little to refuse buffers by
    /// it; to read it, it need not be enabled.
    fn counts(device: &hal::vulkan::Device) -> bool {
        let instance = device.shared_instance();
        let asks =
            instance.instance_api_version() >= vk::API_VERSION_1_1 || has_function_of_1_0(instance);
        if !asks {
            return false;
        }
        if device
            .enabled_device_extensions()
            .contains(&ext::memory_budget::NAME)
        {
            return true;
        }
        let physical = device.raw_physical_device();
        // SAFETY: the physical device is the instance's, which the device keeps alive.
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

    /// Before Vulkan 1.1 the function belongs to an extension of the instance.
    fn has_function_of_1_0(instance: &hal::vulkan::InstanceShared) -> bool {
        let enabled = instance.extensions();
        enabled.contains(&khr::get_physical_device_properties2::NAME)
    }

    fn uncounted(device: &hal::vulkan::Device) -> vk::PhysicalDeviceMemoryProperties {
        let instance = device.shared_instance().raw_instance();
        // SAFETY: the physical device is the instance's, which the device keeps alive.
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
            // SAFETY: the instance has the function, since its version has it; the physical device
            // is its own, and knows the structure that is chained, which outlives the call.
            unsafe { raw.get_physical_device_memory_properties2(physical, &mut asked) };
        } else {
            use khr::get_physical_device_properties2::Instance;
            let functions = Instance::new(instance.entry(), raw);
            // SAFETY: as above, but that it is the extension which has the function.
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

        /// Budget, use, and whether they are counted.
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
            // Even when there is more left in the window.
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
        // SAFETY: what is behind it is asked and not destroyed, and the guard keeps it alive.
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
        // SAFETY: what is behind it is asked and not destroyed, and the guard keeps it alive.
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
