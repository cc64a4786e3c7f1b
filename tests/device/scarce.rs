//! The real adapter behind a driver with limited memory. Calls are passed on. A buffer that does
//! not fit is refused like by wgpu, with an error in a scope of the thread.
//!
//! Only the adapter, the device and its queue are wrapped. Objects of the device are wgpu's own.

#![allow(
    unsafe_code,
    reason = "some methods of wgpu's trait are; none of those does anything here"
)]

use std::collections::HashMap;
use std::future::ready;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, ThreadId};

use lapidary::wgpu::{self, custom::*};

/// The driver's memory, and further refusals.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    has_bytes: AtomicU64,
    /// The first buffer to refuse, counted from the call that set this, and the step to the next
    /// ones.
    plan: Mutex<Option<(u64, u64)>>,
    refused: AtomicU64,
}

impl Memory {
    pub(crate) fn of(has_bytes: u64) -> Arc<Memory> {
        let memory = Memory::default();
        memory.set(has_bytes);
        Arc::new(memory)
    }

    /// Changes the memory, as other programs do.
    pub(crate) fn set(&self, has_bytes: u64) {
        self.has_bytes.store(has_bytes, Ordering::Relaxed);
    }

    /// Refuses buffer `first` from now on, counted from 0, and every `step`th after it.
    pub(crate) fn refuse(&self, plan: Option<(u64, u64)>) {
        *self.plan.lock().unwrap() = plan;
    }

    /// Number of refused buffers.
    pub(crate) fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    fn refuses(&self, used_bytes: u64, size_bytes: u64) -> bool {
        let mut plan = self.plan.lock().unwrap();
        let planned = matches!(*plan, Some((0, _)));
        *plan = plan.map(|(until, step)| (until.checked_sub(1).unwrap_or(step - 1), step));
        let refuses = planned || used_bytes + size_bytes > self.has_bytes.load(Ordering::Relaxed);
        self.refused.fetch_add(refuses.into(), Ordering::Relaxed);
        refuses
    }
}

/// The adapter of this name. Its devices have the memory of `memory`.
pub(crate) fn adapter(name: &str, memory: &Arc<Memory>) -> wgpu::Adapter {
    fn all<T: InstanceInterface>(_: fn(&DispatchInstance) -> &T) -> Vec<DispatchAdapter> {
        let desc = wgpu::InstanceDescriptor::new_without_display_handle_from_env();
        let backends = desc.backends;
        pollster::block_on(T::new(desc).enumerate_adapters(backends))
    }
    // wgpu's own implementation cannot be named here, but it can be inferred.
    let mut found = all(DispatchInstance::as_core).into_iter();
    let inner = found.find(|adapter| adapter.get_info().name == name);
    wgpu::Adapter::from_custom(Adapter {
        inner: inner.expect("the adapter was there a moment ago"),
        memory: Arc::clone(memory),
    })
}

#[derive(Debug)]
struct Adapter {
    inner: DispatchAdapter,
    memory: Arc<Memory>,
}

#[derive(Debug)]
struct Device {
    inner: DispatchDevice,
    memory: Arc<Memory>,
    /// The scopes of each thread, outermost first, and the errors that they caught here.
    scopes: Mutex<HashMap<ThreadId, Vec<Scope>>>,
}

type Scope = (wgpu::ErrorFilter, Option<wgpu::Error>);

#[derive(Debug)]
struct Queue {
    inner: DispatchQueue,
}

macro_rules! passed_on {
    ($(fn $name:ident($($argument:ident: $type:ty),*) $(-> $result:ty)?;)*) => {$(
        fn $name(&self, $($argument: $type),*) $(-> $result)? {
            self.inner.$name($($argument),*)
        }
    )*};
}

impl AdapterInterface for Adapter {
    fn request_device(
        &self,
        desc: &wgpu::DeviceDescriptor<'_>,
    ) -> Pin<Box<dyn RequestDeviceFuture>> {
        let request = self.inner.request_device(desc);
        let memory = Arc::clone(&self.memory);
        Box::pin(async move {
            let (inner, queue) = request.await?;
            let device = Device {
                inner,
                memory,
                scopes: Mutex::default(),
            };
            let queue = DispatchQueue::custom(Queue { inner: queue });
            Ok((DispatchDevice::custom(device), queue))
        })
    }

    passed_on! {
        fn is_surface_supported(surface: &DispatchSurface) -> bool;
        fn features() -> wgpu::Features;
        fn limits() -> wgpu::Limits;
        fn downlevel_capabilities() -> wgpu::DownlevelCapabilities;
        fn get_info() -> wgpu::AdapterInfo;
        fn get_texture_format_features(format: wgpu::TextureFormat) -> wgpu::TextureFormatFeatures;
        fn get_presentation_timestamp() -> wgpu::PresentationTimestamp;
        fn cooperative_matrix_properties() -> Vec<wgpu::wgt::CooperativeMatrixProperties>;
    }
}

impl Device {
    /// The unusable buffer that wgpu returns after a refusal.
    fn unusable(&self) -> DispatchBuffer {
        let scope = self.inner.push_error_scope(wgpu::ErrorFilter::Validation);
        let buffer = self.inner.create_buffer(&wgpu::BufferDescriptor {
            label: None,
            size: 4,
            usage: wgpu::BufferUsages::empty(),
            mapped_at_creation: false,
        });
        drop(self.inner.pop_error_scope(scope));
        buffer
    }

    fn catch(&self, error: wgpu::Error) {
        let mut scopes = self.scopes.lock().unwrap();
        let mine = scopes.entry(thread::current().id()).or_default();
        let scope = mine.iter_mut().rev();
        let scope = scope.filter(|(filter, _)| *filter == wgpu::ErrorFilter::OutOfMemory);
        let (_, caught) = { scope }.next().expect("every call runs inside scopes");
        caught.get_or_insert(error);
    }
}

impl DeviceInterface for Device {
    fn create_buffer(&self, desc: &wgpu::BufferDescriptor<'_>) -> DispatchBuffer {
        let report = self.inner.generate_allocator_report();
        let used_bytes = report.expect("wgpu keeps count").total_allocated_bytes;
        if !self.memory.refuses(used_bytes, desc.size) {
            return self.inner.create_buffer(desc);
        }
        self.catch(wgpu::Error::OutOfMemory {
            source: "the driver has no more".into(),
        });
        self.unusable()
    }

    fn push_error_scope(&self, filter: wgpu::ErrorFilter) -> u32 {
        let mut scopes = self.scopes.lock().unwrap();
        let mine = scopes.entry(thread::current().id()).or_default();
        mine.push((filter, None));
        self.inner.push_error_scope(filter)
    }

    fn pop_error_scope(&self, index: u32) -> Pin<Box<dyn PopErrorScopeFuture>> {
        let mut scopes = self.scopes.lock().unwrap();
        let mine = scopes.entry(thread::current().id()).or_default();
        match { mine.pop() }.and_then(|(_, caught)| caught) {
            None => self.inner.pop_error_scope(index),
            Some(error) => {
                drop(self.inner.pop_error_scope(index));
                Box::pin(ready(Some(error)))
            }
        }
    }

    unsafe fn create_shader_module_passthrough(
        &self,
        _: &wgpu::ShaderModuleDescriptorPassthrough<'_>,
    ) -> DispatchShaderModule {
        unreachable!("nothing is passed through")
    }

    unsafe fn create_pipeline_cache(
        &self,
        _: &wgpu::PipelineCacheDescriptor<'_>,
    ) -> DispatchPipelineCache {
        unreachable!("there is no cache")
    }

    unsafe fn start_graphics_debugger_capture(&self) {}

    unsafe fn stop_graphics_debugger_capture(&self) {}

    passed_on! {
        fn features() -> wgpu::Features;
        fn limits() -> wgpu::Limits;
        fn adapter_info() -> wgpu::AdapterInfo;
        fn create_shader_module(
            desc: wgpu::ShaderModuleDescriptor<'_>,
            checks: wgpu::ShaderRuntimeChecks
        ) -> DispatchShaderModule;
        fn create_bind_group_layout(
            desc: &wgpu::BindGroupLayoutDescriptor<'_>
        ) -> DispatchBindGroupLayout;
        fn create_bind_group(desc: &wgpu::BindGroupDescriptor<'_>) -> DispatchBindGroup;
        fn create_pipeline_layout(
            desc: &wgpu::PipelineLayoutDescriptor<'_>
        ) -> DispatchPipelineLayout;
        fn create_render_pipeline(
            desc: &wgpu::RenderPipelineDescriptor<'_>
        ) -> DispatchRenderPipeline;
        fn create_mesh_pipeline(desc: &wgpu::MeshPipelineDescriptor<'_>) -> DispatchRenderPipeline;
        fn create_compute_pipeline(
            desc: &wgpu::ComputePipelineDescriptor<'_>
        ) -> DispatchComputePipeline;
        fn create_texture(desc: &wgpu::TextureDescriptor<'_>) -> DispatchTexture;
        fn create_external_texture(
            desc: &wgpu::ExternalTextureDescriptor<'_>,
            planes: &[&wgpu::TextureView]
        ) -> DispatchExternalTexture;
        fn create_blas(
            desc: &wgpu::CreateBlasDescriptor<'_>,
            sizes: wgpu::BlasGeometrySizeDescriptors
        ) -> (Option<u64>, DispatchBlas);
        fn create_tlas(desc: &wgpu::CreateTlasDescriptor<'_>) -> DispatchTlas;
        fn create_sampler(desc: &wgpu::SamplerDescriptor<'_>) -> DispatchSampler;
        fn create_query_set(desc: &wgpu::QuerySetDescriptor<'_>) -> DispatchQuerySet;
        fn create_command_encoder(
            desc: &wgpu::CommandEncoderDescriptor<'_>
        ) -> DispatchCommandEncoder;
        fn create_render_bundle_encoder(
            desc: &wgpu::RenderBundleEncoderDescriptor<'_>
        ) -> DispatchRenderBundleEncoder;
        fn set_device_lost_callback(callback: BoxDeviceLostCallback);
        fn on_uncaptured_error(handler: Arc<dyn wgpu::UncapturedErrorHandler>);
        fn poll(kind: wgpu::wgt::PollType<u64>) -> Result<wgpu::PollStatus, wgpu::PollError>;
        fn get_internal_counters() -> wgpu::InternalCounters;
        fn generate_allocator_report() -> Option<wgpu::AllocatorReport>;
        fn destroy();
    }
}

impl QueueInterface for Queue {
    passed_on! {
        fn write_buffer(buffer: &DispatchBuffer, offset: u64, data: &[u8]);
        fn create_staging_buffer(size: wgpu::BufferSize) -> Option<DispatchQueueWriteBuffer>;
        fn validate_write_buffer(
            buffer: &DispatchBuffer,
            offset: u64,
            size: wgpu::BufferSize
        ) -> Option<()>;
        fn write_staging_buffer(
            buffer: &DispatchBuffer,
            offset: u64,
            staging: &DispatchQueueWriteBuffer
        );
        fn write_texture(
            texture: wgpu::TexelCopyTextureInfo<'_>,
            data: &[u8],
            layout: wgpu::TexelCopyBufferLayout,
            size: wgpu::Extent3d
        );
        fn submit(commands: &mut dyn Iterator<Item = DispatchCommandBuffer>) -> u64;
        fn get_timestamp_period() -> f32;
        fn on_submitted_work_done(callback: BoxSubmittedWorkDoneCallback);
        fn compact_blas(blas: &DispatchBlas) -> (Option<u64>, DispatchBlas);
        fn present(detail: &DispatchSurfaceOutputDetail);
    }
}
