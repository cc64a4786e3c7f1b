//! The program's own device: opened here, adopted by lapidary later. Nothing here knows of tensors.

use std::error::Error;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lapidary::wgpu;

use crate::Outcome;

pub(crate) struct Device {
    pub(crate) adapter: wgpu::Adapter,
    pub(crate) device: wgpu::Device,
    pub(crate) queue: wgpu::Queue,
    /// Why it is lost, once it is.
    lost: Arc<Mutex<Option<String>>>,
}

impl Device {
    /// Opens a device that can draw on that surface, with all the limits that the adapter has, and
    /// the features that make lapidary faster, where they are.
    pub(crate) fn open(
        instance: &wgpu::Instance,
        surface: Option<&wgpu::Surface<'_>>,
    ) -> Outcome<Device> {
        pollster::block_on(async {
            let adapter = wgpu::util::initialize_adapter_from_env_or_default(instance, surface);
            let adapter = adapter.await.map_err(|error| {
                format!(
                    "no GPU is to be had: {error}. Install a driver for Vulkan (on Debian, `mesa-vulkan-drivers` \
                     draws without a GPU), or name another adapter in WGPU_ADAPTER_NAME."
                )
            })?;
            let useful = wgpu::Features::IMMEDIATES
                | wgpu::Features::SUBGROUP
                | wgpu::Features::SHADER_INT64
                | wgpu::Features::MAPPABLE_PRIMARY_BUFFERS;
            let kind = adapter.get_info().device_type;
            let apart = match kind {
                // Its memory is not the host's: buffers that the host can map would be slow ones.
                wgpu::DeviceType::DiscreteGpu => {
                    wgpu::Features::MAPPABLE_PRIMARY_BUFFERS | wgpu::Features::SHADER_INT64
                }
                _ => wgpu::Features::empty(),
            };
            let opened = adapter.request_device(&wgpu::DeviceDescriptor {
                label: Some("fluid"),
                required_features: adapter.features() & (useful - apart),
                required_limits: adapter.limits(),
                ..Default::default()
            });
            let (device, queue) = opened.await?;
            let lost = Arc::new(Mutex::new(None));
            let heard = lost.clone();
            // The callbacks are the program's, also while lapidary uses the device.
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

    /// Why it is lost, if it is. The callback comes when somebody asks the device how it is.
    pub(crate) fn lost(&self) -> Option<String> {
        let _ = self.device.poll(wgpu::PollType::Poll);
        self.reason().clone()
    }

    /// Whether that error came of its loss: lapidary may notice that first.
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
