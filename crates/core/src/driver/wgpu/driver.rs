//! The driver: each call goes to the present device.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::RwLock;

use super::super::failure::invalid;
use super::super::interface::{RecordApp, ShowTo};
use super::super::{
    At, BindGroupId, Binding, BoxFuture, BufferId, BufferKind, Caps, Driver, DriverResult,
    KernelRun, LinkRun, MapMode, Op, OsBudget, PipelineDesc, PipelineId, Signal, Submission,
    os_budget,
};
use super::open::{Found, OpenRequest};
use super::opened::Opened;
use crate::error::{Error, Result};

/// A device of wgpu, or several in succession: a lost device can be replaced.
pub(crate) struct WgpuDriver {
    pub(super) caps: Arc<Caps>,
    /// The lock is held only to clone the `Arc` or to replace it. Each call uses the device that it
    /// found.
    pub(super) current: RwLock<Arc<Opened>>,
    /// Whether any of the devices was lost.
    was_lost: Arc<AtomicBool>,
    /// The request with which the device was opened. `None` for a device of the app.
    pub(super) request: Option<OpenRequest>,
    /// The folder for compiled pipelines.
    pub(super) cache_folder: Option<PathBuf>,
}

impl WgpuDriver {
    pub(super) fn new(
        Found { objects, caps }: Found,
        longest_wait: Option<Duration>,
        request: Option<OpenRequest>,
    ) -> Result<Self> {
        let caps = Arc::new(caps);
        let opened = Opened::new(objects, Arc::clone(&caps), longest_wait);
        let opened = opened.ok_or_else(|| Error::DeviceLost {
            reason:
                "it takes no calls: it was destroyed, its driver failed, or it has no memory left"
                    .to_owned(),
        })?;
        Ok(WgpuDriver {
            caps,
            was_lost: Arc::clone(&opened.guard.progress.was_lost),
            current: RwLock::new(Arc::new(opened)),
            request,
            cache_folder: None,
        })
    }

    /// The same driver. It reads compiled pipelines from a folder, and writes them there at its
    /// end.
    pub(crate) fn with_cache(mut self, folder: Option<PathBuf>) -> Self {
        if let Some(opened) = Arc::get_mut(self.current.get_mut()) {
            opened.use_cache(folder.as_deref());
        }
        self.cache_folder = folder;
        self
    }

    /// The present device.
    pub(super) fn opened(&self) -> Arc<Opened> {
        Arc::clone(&self.current.read())
    }

    /// Runs a call on the present device. If it fails because that device is lost, the error is
    /// `Lost`.
    fn call<T>(&self, call: impl FnOnce(&Opened) -> DriverResult<T>) -> DriverResult<T> {
        let opened = self.opened();
        call(&opened).or_else(|error| opened.guard.check().and(Err(error)))
    }
}

debug_by_name!(WgpuDriver);

impl Driver for WgpuDriver {
    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn create_buffer(
        &self,
        kind: BufferKind,
        size_bytes: u64,
        label: &str,
    ) -> BoxFuture<'_, DriverResult<BufferId>> {
        self.opened().start_buffer(kind, size_bytes, label)
    }

    #[cfg(target_arch = "wasm32")]
    fn create_mapped(&self, size_bytes: u64, label: &str) -> Option<DriverResult<BufferId>> {
        Some(self.call(|opened| opened.mapped_buffer(size_bytes, label)))
    }

    fn destroy_buffer(&self, buffer: BufferId) {
        self.opened().drop_buffer(buffer);
    }

    fn create_pipeline(&self, desc: PipelineDesc) -> BoxFuture<'_, DriverResult<PipelineId>> {
        self.opened().start_pipeline(&desc)
    }

    fn destroy_pipeline(&self, pipeline: PipelineId) {
        let removed = self.opened().tables_mut().pipelines.remove(pipeline.0);
        drop(removed);
    }

    fn create_bind_group(
        &self,
        pipeline: PipelineId,
        bindings: &[Binding],
    ) -> DriverResult<BindGroupId> {
        self.call(|opened| opened.bind(pipeline, bindings))
    }

    fn destroy_bind_group(&self, group: BindGroupId) {
        let removed = self.opened().tables_mut().remove_group(group);
        drop(removed);
    }

    fn submit(&self, ops: &[Op], params: &[u8]) -> DriverResult<Submission> {
        self.call(|opened| opened.submit_ops(ops, params))
    }

    fn completed(&self) -> u64 {
        self.opened().guard.progress.completed()
    }

    fn buffers_created(&self) -> u64 {
        let opened = self.opened();
        opened.guard.buffers_created.load(Ordering::Relaxed)
    }

    fn poll(&self) -> DriverResult<()> {
        let opened = self.opened();
        opened.guard.check()?;
        opened.guard.poll_device(wgpu::PollType::Poll)
    }

    fn wait<'a>(&'a self, signal: &'a Signal) -> BoxFuture<'a, DriverResult<()>> {
        let opened = self.opened();
        Box::pin(async move { opened.guard.wait_for(signal).await })
    }

    fn map(&self, at: At, mode: MapMode, size_bytes: u64) -> DriverResult<Signal> {
        self.call(|opened| opened.map_range(at, mode, size_bytes))
    }

    fn write_mapped(&self, at: At, bytes: &[u8]) -> DriverResult<()> {
        self.call(|opened| opened.write_range(at, bytes))
    }

    fn read_mapped(&self, at: At, size_bytes: u64, look: ShowTo<'_>) -> DriverResult<()> {
        self.call(|opened| opened.read_range(at, size_bytes, look))
    }

    #[cfg(not(target_arch = "wasm32"))]
    fn write_now(&self, at: At, bytes: &[u8]) -> Option<DriverResult<()>> {
        self.opened().write_now(at, bytes)
    }

    #[cfg(not(target_arch = "wasm32"))]
    fn read_now(&self, at: At, size_bytes: u64, look: ShowTo<'_>) -> Option<DriverResult<()>> {
        self.opened().read_now(at, size_bytes, look)
    }

    fn unmap(&self, buffer: BufferId) {
        self.opened().end_mapping(buffer);
    }

    fn may_be_lost(&self) -> bool {
        self.was_lost.load(Ordering::Acquire)
    }

    fn lost(&self) -> Option<String> {
        let current = self.current.read();
        current.guard.progress.lost().map(str::to_owned)
    }

    fn declare_lost(&self, reason: &str) {
        self.opened().guard.progress.lose(reason);
    }

    fn os_budget(&self) -> Option<OsBudget> {
        let opened = self.opened();
        os_budget::read(&opened.guard.device, opened.adapter.as_ref())
    }

    fn driver_reserved_bytes(&self) -> Option<u64> {
        let report = self.opened().guard.device.generate_allocator_report()?;
        Some(report.total_reserved_bytes)
    }

    fn watch_lost(&self) {
        self.opened().guard.watch_lost();
    }

    fn reopen(&self) -> BoxFuture<'_, DriverResult<()>> {
        Box::pin(self.open_again())
    }

    fn time_kernels(&self, on: bool) -> DriverResult<()> {
        self.call(|opened| opened.times.set(&opened.guard, &opened.queue, on))
    }

    fn take_kernel_runs(&self) -> Vec<KernelRun> {
        self.opened().times.take_runs()
    }

    fn take_link_run(&self) -> Option<LinkRun> {
        let opened = self.opened();
        opened.link.take_run(&opened.guard)
    }

    fn keep_pipelines(&self) {
        if let Some(cache) = &self.opened().pipeline_cache {
            cache.keep();
        }
    }

    fn shares_with_app(&self) -> bool {
        true
    }

    fn readopt(
        &self,
        adapter: Option<&wgpu::Adapter>,
        device: &wgpu::Device,
        queue: &wgpu::Queue,
    ) -> DriverResult<()> {
        self.continue_with((adapter.cloned(), device.clone(), queue.clone()))
    }

    fn record_app(&self, record: RecordApp<'_>) -> DriverResult<Vec<wgpu::CommandBuffer>> {
        self.call(|opened| opened.guard.around_app(record))
    }

    fn submit_app(&self, commands: Vec<wgpu::CommandBuffer>) -> DriverResult<Submission> {
        self.call(|opened| opened.submit_app(commands))
    }

    fn import_buffer(&self, buffer: &wgpu::Buffer) -> DriverResult<BufferId> {
        loop {
            // `None` if the device was replaced after the lookup. Then the loop tries the new one.
            if let Some(id) = self.opened().import(buffer) {
                return Ok(id);
            }
        }
    }

    fn lend_buffer(&self, buffer: BufferId) -> DriverResult<wgpu::Buffer> {
        let found = self.opened().buffer(buffer);
        found.map_or_else(|| invalid("its slab is gone"), Ok)
    }
}
