//! The program's own device: opened here, adopted by lapidary later. This module knows no tensors.

use std::error::Error;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lapidary::interop::wanted_features;
use lapidary::wgpu;

use crate::Outcome;

pub(crate) struct Device {
    pub(crate) adapter: wgpu::Adapter,
    pub(crate) device: wgpu::Device,
    pub(crate) queue: wgpu::Queue,
    /// The reason, once the device is lost.
    lost: Arc<Mutex<Option<String>>>,
}

impl Device {
    /// Opens a device that can draw on the surface. It has all of the adapter's limits, and the
    /// features that make lapidary faster, if the adapter has them.
    pub(crate) fn open(
        instance: &wgpu::Instance,
        surface: Option<&wgpu::Surface<'_>>,
    ) -> Outcome<Device> {
        pollster::block_on(async {
            let adapter = wgpu::util::initialize_adapter_from_env_or_default(instance, surface);
            let adapter = adapter.await.map_err(|error| {
                format!(
                    "no GPU is available: {error}. Install a driver for Vulkan (on Debian, `mesa-vulkan-drivers` \
                     draws without a GPU), or name another adapter in WGPU_ADAPTER_NAME."
                )
            })?;
            let opened = adapter.request_device(&wgpu::DeviceDescriptor {
                label: Some("fluid"),
                required_features: wanted_features(&adapter),
                required_limits: adapter.limits(),
                ..Default::default()
            });
            let (device, queue) = opened.await?;
            let lost = Arc::new(Mutex::new(None));
            let heard = lost.clone();
            // The callbacks stay the program's, also while lapidary uses the device.
            device.set_device_lost_callback(move |_, reason| {
                *heard.lock().unwrap_or_else(PoisonError::into_inner) = Some(reason);
            });
            device.on_uncaptured_error(Arc::new(|error| eprintln!("fluid: {error}")));
            Ok(Device {
                adapter,
                device,
                queue,
                lost,
            })
        })
    }

    /// The reason of the loss, if the device is lost. wgpu calls the callback only during a poll.
    pub(crate) fn lost(&self) -> Option<String> {
        let _ = self.device.poll(wgpu::PollType::Poll);
        self.reason().clone()
    }

    /// Did the loss cause this error? lapidary may notice the loss first.
    pub(crate) fn is_lost_by(&self, error: &(dyn Error + 'static)) -> bool {
        if let Some(lapidary::Error::DeviceLost { reason }) = error.downcast_ref() {
            self.reason().get_or_insert_with(|| reason.clone());
        }
        self.lost().is_some()
    }

    fn reason(&self) -> MutexGuard<'_, Option<String>> {
        self.lost.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
