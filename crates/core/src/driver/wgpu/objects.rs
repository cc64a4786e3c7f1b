//! Buffers, pipelines and bind groups, created inside error scopes and stored in tables by id.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::Mutex;
use wgpu::BufferUsages as Usages;

use super::super::failure::invalid;
use super::super::{
    BindGroupId, Binding, BindingAccess, BoxFuture, BufferId, BufferKind, DriverResult,
    PipelineDesc, PipelineId, with_deep_stack,
};
use super::ending;
use super::mapping::unmap;
use super::opened::Opened;
use super::params::{Page, uniform_bytes};
use super::pipeline_cache::PipelineCache;
use super::tables::{BindGroupEntry, BufferEntry, PipelineEntry, Tables};

/// A buffer that has no id yet. In a browser, the future that creates it may be dropped during its
/// wait. Then this type destroys the buffer at once, instead of at the next garbage collection.
struct Begun(Option<wgpu::Buffer>);

impl Drop for Begun {
    fn drop(&mut self) {
        if let Some(raw) = self.0.take().filter(|_| cfg!(target_arch = "wasm32")) {
            raw.destroy();
        }
    }
}

impl Opened {
    pub(super) fn start_buffer(
        self: Arc<Self>,
        kind: BufferKind,
        size_bytes: u64,
        label: &str,
    ) -> BoxFuture<'static, DriverResult<BufferId>> {
        let started = self.check_new(size_bytes).map(|()| {
            let mut begun = Begun(None);
            let guarded = self.guard.guarded(|| {
                let raw = self.guard.device.create_buffer(&wgpu::BufferDescriptor {
                    label: Some(label),
                    size: size_bytes,
                    usage: self.usages(kind),
                    mapped_at_creation: false,
                });
                begun.0 = Some(raw.clone());
                raw
            });
            (guarded, begun)
        });
        Box::pin(async move {
            let (guarded, mut begun) = started?;
            let raw = self.guard.settled(guarded).await?;
            self.guard.buffers_created.fetch_add(1, Ordering::Relaxed);
            let id = self.add_buffer(raw)?;
            begun.0 = None;
            Ok(id)
        })
    }

    /// A mapped buffer for uploads, before the browser has reported whether it is valid. The next
    /// wait reports an error of it, and the browser refuses a submission that uses it.
    #[cfg(target_arch = "wasm32")]
    pub(super) fn mapped_buffer(&self, size_bytes: u64, label: &str) -> DriverResult<BufferId> {
        self.check_new(size_bytes)?;
        let guarded = self.guard.guarded(|| {
            self.guard.device.create_buffer(&wgpu::BufferDescriptor {
                label: Some(label),
                size: size_bytes,
                usage: self.usages(BufferKind::Upload),
                mapped_at_creation: true,
            })
        });
        let raw = self.guard.now(guarded)?;
        self.guard.buffers_created.fetch_add(1, Ordering::Relaxed);
        let (signal, notice) = self.guard.progress.mapping();
        notice.tell(true);
        let id = self.add_buffer(raw)?;
        if let Some(entry) = self.tables_mut().buffers.get_mut(id.0) {
            entry.mapping = Some(signal);
        }
        Ok(id)
    }

    /// Refuses a buffer of an invalid size, and any on a lost device.
    fn check_new(&self, size_bytes: u64) -> DriverResult<()> {
        self.guard.check()?;
        let limit = self.caps.max_buffer_bytes;
        if size_bytes == 0 || !size_bytes.is_multiple_of(4) {
            return invalid(format!(
                "a buffer of {size_bytes} bytes: not a multiple of 4, or 0"
            ));
        }
        if size_bytes > limit {
            return invalid(format!(
                "a buffer of {size_bytes} bytes passes the limit of {limit}"
            ));
        }
        Ok(())
    }

    fn usages(&self, kind: BufferKind) -> Usages {
        let slab = Usages::STORAGE | Usages::COPY_SRC | Usages::COPY_DST;
        match kind {
            BufferKind::Slab if self.caps.maps_slabs => slab | Usages::MAP_READ | Usages::MAP_WRITE,
            BufferKind::Slab => slab,
            BufferKind::HostSlab => Usages::MAP_READ | Usages::COPY_SRC | Usages::COPY_DST,
            BufferKind::Upload => Usages::MAP_WRITE | Usages::COPY_SRC,
            BufferKind::Readback => Usages::MAP_READ | Usages::COPY_DST,
        }
    }

    fn add_buffer(&self, raw: wgpu::Buffer) -> DriverResult<BufferId> {
        let entry = BufferEntry::new(raw, false);
        Ok(BufferId(self.tables_to_fill()?.buffers.insert(entry)))
    }

    /// The id of a buffer of the app. The same buffer has the same id, since ids decide what may be
    /// bound together. Destroying the id only forgets it. `None` if the device was replaced.
    pub(super) fn import(&self, buffer: &wgpu::Buffer) -> Option<BufferId> {
        let mut tables = self.tables_to_fill().ok()?;
        let known = tables.buffers.iter().find_map(|(key, entry)| {
            let same = entry.imported && entry.raw == *buffer;
            same.then_some(key)
        });
        let import = || {
            tables
                .buffers
                .insert(BufferEntry::new(buffer.clone(), true))
        };
        Some(BufferId(known.unwrap_or_else(import)))
    }

    /// The buffer of an id.
    pub(super) fn buffer(&self, buffer: BufferId) -> Option<wgpu::Buffer> {
        let tables = self.tables();
        tables.buffers.get(buffer.0).map(|entry| entry.raw.clone())
    }

    /// Drops a buffer, and the bind groups that would keep its memory. Submissions in progress keep
    /// it until they are done.
    pub(super) fn drop_buffer(&self, buffer: BufferId) {
        let mut tables = self.tables_mut();
        let Some(entry) = tables.buffers.remove(buffer.0) else {
            return;
        };
        let mut naming = Vec::new();
        if entry.named > 0 {
            let groups = tables.groups.iter();
            let groups = groups.filter(|(_, group)| group.names(buffer));
            naming.extend(groups.map(|(key, _)| BindGroupId(key)));
        }
        let groups = naming.into_iter();
        let groups: Vec<_> = groups.filter_map(|id| tables.remove_group(id)).collect();
        drop(tables);
        drop(groups);
        if let Some(signal) = &entry.mapping {
            unmap(&self.guard, &entry.raw, signal);
        }
    }

    pub(super) fn start_pipeline(
        self: Arc<Self>,
        desc: &PipelineDesc,
    ) -> BoxFuture<'static, DriverResult<PipelineId>> {
        let compiled = || self.guard.guarded(|| self.compile(desc));
        let started = self.guard.check().map(|()| with_deep_stack(compiled));
        Box::pin(async move {
            let entry = self.guard.settled(started?).await?;
            let mut tables = self.tables_to_fill()?;
            Ok(PipelineId(tables.pipelines.insert(entry)))
        })
    }

    fn compile(&self, desc: &PipelineDesc) -> PipelineEntry {
        let device = &self.guard.device;
        let label = Some(desc.label.as_str());
        let source = wgpu::ShaderModuleDescriptor {
            label,
            source: wgpu::ShaderSource::Wgsl(desc.wgsl.as_str().into()),
        };
        let module = match desc.bounds_loops {
            true => device.create_shader_module(source),
            false => ending::module(device, source),
        };
        let storage = desc.bindings.iter().map(|access| {
            let read_only = *access == BindingAccess::Read;
            (wgpu::BufferBindingType::Storage { read_only }, None)
        });
        let uniform = uniform_bytes(&self.caps, desc.params_bytes)
            .map(|size| (wgpu::BufferBindingType::Uniform, Some(size)));
        let entries = (0..)
            .zip(storage.chain(uniform))
            .map(|(binding, (ty, size))| wgpu::BindGroupLayoutEntry {
                binding,
                visibility: wgpu::ShaderStages::COMPUTE,
                ty: wgpu::BindingType::Buffer {
                    ty,
                    has_dynamic_offset: ty == wgpu::BufferBindingType::Uniform,
                    min_binding_size: size,
                },
                count: None,
            });
        let layout = device.create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor {
            label,
            entries: &entries.collect::<Vec<_>>(),
        });
        let pipeline_layout = device.create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
            label,
            bind_group_layouts: &[Some(&layout)],
            immediate_size: match self.caps.max_immediate_bytes {
                0 => 0,
                _ => desc.params_bytes,
            },
        });
        let raw = device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
            label,
            layout: Some(&pipeline_layout),
            module: &module,
            entry_point: Some(&desc.entry),
            compilation_options: wgpu::PipelineCompilationOptions {
                zero_initialize_workgroup_memory: desc.zeroes_workgroup,
                ..Default::default()
            },
            cache: (self.pipeline_cache.as_ref()).map(PipelineCache::for_one_more),
        });
        PipelineEntry {
            raw,
            params_bytes: desc.params_bytes,
            layout,
            bindings: desc.bindings.len(),
        }
    }

    pub(super) fn bind(
        &self,
        pipeline: PipelineId,
        bindings: &[Binding],
    ) -> DriverResult<BindGroupId> {
        self.guard.check()?;
        let params_bytes = match self.tables().pipelines.get(pipeline.0) {
            Some(entry) => entry.params_bytes,
            None => return invalid("a bind group for an unknown pipeline"),
        };
        // Any page will do here: the first group only shows whether the bindings are valid.
        let uniform = uniform_bytes(&self.caps, params_bytes);
        let page = uniform.map(|_| self.pages.take(&self.guard)).transpose()?;
        let entry = BindGroupEntry {
            pipeline,
            bindings: bindings.to_vec(),
            by_page: Mutex::default(),
        };
        let guarded = self
            .guard
            .guarded_quietly(|| self.group_for(&self.tables(), &entry, page.as_ref()));
        if let Some(page) = page {
            self.pages.put_back(page);
        }
        self.guard.now(guarded)??;
        Ok(self.tables_to_fill()?.insert_group(entry))
    }

    /// The wgpu bind group for a page of parameters, created at its first use. The caller must
    /// guard this call.
    pub(super) fn group_for(
        &self,
        tables: &Tables,
        group: &BindGroupEntry,
        page: Option<&Page>,
    ) -> DriverResult<wgpu::BindGroup> {
        let number = page.map_or(0, |page| page.number);
        let mut by_page = group.by_page.lock();
        if let Some((_, raw)) = by_page.iter().find(|(other, _)| *other == number) {
            return Ok(raw.clone());
        }
        let Some(pipeline) = tables.pipelines.get(group.pipeline.0) else {
            return invalid("a bind group of a pipeline that was destroyed");
        };
        if group.bindings.len() != pipeline.bindings {
            let (got, expected) = (group.bindings.len(), pipeline.bindings);
            return invalid(format!("{got} bindings for a kernel with {expected}"));
        }
        let mut entries = Vec::with_capacity(group.bindings.len() + 1);
        for (index, binding) in (0..).zip(&group.bindings) {
            let Some(buffer) = tables.buffers.get(binding.buffer.0) else {
                return invalid(format!("binding {index} names an unknown buffer"));
            };
            let Some(size) = NonZeroU64::new(binding.size_bytes) else {
                return invalid(format!("binding {index} is empty"));
            };
            entries.push(entry_for(index, &buffer.raw, binding.offset_bytes, size));
        }
        let uniform = uniform_bytes(&self.caps, pipeline.params_bytes);
        if let (Some(page), Some(size)) = (page, uniform) {
            entries.push(entry_for(entries.len() as u32, &page.raw, 0, size));
        }
        let device = &self.guard.device;
        let raw = device.create_bind_group(&wgpu::BindGroupDescriptor {
            label: None,
            layout: &pipeline.layout,
            entries: &entries,
        });
        by_page.push((number, raw.clone()));
        Ok(raw)
    }
}

fn entry_for(
    binding: u32,
    buffer: &wgpu::Buffer,
    offset: u64,
    size: NonZeroU64,
) -> wgpu::BindGroupEntry<'_> {
    wgpu::BindGroupEntry {
        binding,
        resource: wgpu::BindingResource::Buffer(wgpu::BufferBinding {
            buffer,
            offset,
            size: Some(size),
        }),
    }
}
