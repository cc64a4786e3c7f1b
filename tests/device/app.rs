//! An app that opens its own device, on the adapter of the other tests.

use std::sync::OnceLock;

use lapidary::interop::BoundRange;
use lapidary::{Gpu, wgpu};

use super::gpu;

/// The features that lapidary uses on every device.
pub(crate) const USED: wgpu::Features = wgpu::Features::IMMEDIATES.union(wgpu::Features::SUBGROUP);

/// The handles of an app.
pub(crate) struct App {
    pub adapter: wgpu::Adapter,
    pub device: wgpu::Device,
    pub queue: wgpu::Queue,
}

impl App {
    /// With all features and limits of the adapter that lapidary uses.
    pub(crate) fn open() -> App {
        Self::with(wgpu::Features::empty(), |_| ())
    }

    /// Whose slabs the host maps or not. Some adapters cannot map them.
    pub(crate) fn open_mapping(maps: bool) -> App {
        let mut features = USED;
        features.set(wgpu::Features::MAPPABLE_PRIMARY_BUFFERS, maps);
        Self::on(Self::adapter(), features, |_| ())
    }

    /// Without some features, and with other limits.
    pub(crate) fn with(without: wgpu::Features, change: impl FnOnce(&mut wgpu::Limits)) -> App {
        Self::on(Self::adapter(), USED - without, change)
    }

    /// As [`with`](App::with); none if such a device is impossible.
    pub(crate) fn try_with(
        without: wgpu::Features,
        change: impl FnOnce(&mut wgpu::Limits),
    ) -> Option<App> {
        Self::try_on(Self::adapter(), USED - without, change).ok()
    }

    /// The adapter's limits.
    pub(crate) fn limits() -> wgpu::Limits {
        Self::adapter().limits()
    }

    /// The adapter of the other tests, searched once.
    pub(crate) fn adapter() -> wgpu::Adapter {
        static FOUND: OnceLock<wgpu::Adapter> = OnceLock::new();
        let find = || {
            let name = gpu().caps().name.clone();
            let desc = wgpu::InstanceDescriptor::new_without_display_handle_from_env();
            let backends = desc.backends;
            let instance = wgpu::Instance::new(desc);
            let adapters = pollster::block_on(instance.enumerate_adapters(backends));
            let mut adapters = adapters.into_iter();
            adapters
                .find(|adapter| adapter.get_info().name == name)
                .expect("the adapter was there a moment ago")
        };
        FOUND.get_or_init(find).clone()
    }

    /// With those of these features that the adapter has.
    pub(crate) fn on(
        adapter: wgpu::Adapter,
        features: wgpu::Features,
        change: impl FnOnce(&mut wgpu::Limits),
    ) -> App {
        Self::try_on(adapter, features, change).expect("a device")
    }

    /// With little memory in advance.
    pub(crate) fn open_sparing() -> App {
        let sparing = wgpu::MemoryHints::MemoryUsage;
        Self::request(Self::adapter(), USED, |_| (), sparing).expect("a device")
    }

    fn try_on(
        adapter: wgpu::Adapter,
        features: wgpu::Features,
        change: impl FnOnce(&mut wgpu::Limits),
    ) -> Result<App, wgpu::RequestDeviceError> {
        Self::request(adapter, features, change, wgpu::MemoryHints::default())
    }

    fn request(
        adapter: wgpu::Adapter,
        features: wgpu::Features,
        change: impl FnOnce(&mut wgpu::Limits),
        memory_hints: wgpu::MemoryHints,
    ) -> Result<App, wgpu::RequestDeviceError> {
        let features = adapter.features() & features;
        let mut limits = adapter.limits();
        if !features.contains(wgpu::Features::IMMEDIATES) {
            limits.max_immediate_size = 0;
        }
        change(&mut limits);
        let opened = adapter.request_device(&wgpu::DeviceDescriptor {
            label: Some("the app's"),
            required_features: features,
            required_limits: limits,
            memory_hints,
            ..Default::default()
        });
        let (device, queue) = pollster::block_on(opened)?;
        Ok(App {
            adapter,
            device,
            queue,
        })
    }

    /// A pipeline of the app.
    pub(crate) fn compute(&self, wgsl: &str) -> wgpu::ComputePipeline {
        let source = wgpu::ShaderSource::Wgsl(wgsl.into());
        let desc = wgpu::ShaderModuleDescriptor {
            label: None,
            source,
        };
        let module = self.device.create_shader_module(desc);
        self.device
            .create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
                label: None,
                layout: None,
                module: &module,
                entry_point: Some("main"),
                compilation_options: Default::default(),
                cache: None,
            })
    }

    /// A pass over these ranges, which are the bindings in their order.
    pub(crate) fn pass(
        &self,
        pipeline: &wgpu::ComputePipeline,
        ranges: &[BoundRange],
        groups: u32,
    ) -> wgpu::CommandBuffer {
        let entries = (0..).zip(ranges).map(|(binding, range)| {
            let resource = range.binding();
            wgpu::BindGroupEntry { binding, resource }
        });
        let group = self.device.create_bind_group(&wgpu::BindGroupDescriptor {
            label: None,
            layout: &pipeline.get_bind_group_layout(0),
            entries: &entries.collect::<Vec<_>>(),
        });
        let mut encoder = self.device.create_command_encoder(&Default::default());
        let mut pass = encoder.begin_compute_pass(&Default::default());
        pass.set_pipeline(pipeline);
        pass.set_bind_group(0, &group, &[]);
        pass.dispatch_workgroups(groups, 1, 1);
        drop(pass);
        encoder.finish()
    }

    pub(crate) fn gpu(&self) -> Gpu {
        Gpu::adopt(&self.adapter, &self.device, &self.queue).expect("the device is alive")
    }

    /// A buffer with the usages that tensors need.
    pub(crate) fn buffer(&self, size_bytes: u64) -> wgpu::Buffer {
        self.buffer_for(
            size_bytes,
            wgpu::BufferUsages::STORAGE
                | wgpu::BufferUsages::COPY_SRC
                | wgpu::BufferUsages::COPY_DST,
        )
    }

    pub(crate) fn buffer_for(&self, size_bytes: u64, usage: wgpu::BufferUsages) -> wgpu::Buffer {
        self.device.create_buffer(&wgpu::BufferDescriptor {
            label: Some("the app's"),
            size: size_bytes,
            usage,
            mapped_at_creation: false,
        })
    }
}
