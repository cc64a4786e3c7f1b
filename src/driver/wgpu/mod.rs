//! The driver over wgpu: Vulkan, Metal, DX12 and, in a browser, WebGPU.
//!
//! Only this folder calls wgpu. It knows nothing of tensors: ids come in, ids go out.
//!
//! | file | what |
//! | --- | --- |
//! | `open` | finding an adapter, opening a device of our own, adopting the app's |
//! | `caps` | what a device can do, from its limits and features |
//! | `guard` | every call to wgpu runs in here: error scopes, panics, a device that is gone |
//! | `objects` | buffers, pipelines, bind groups |
//! | `submit` | ops become commands, commands a submission |
//! | `wait` | waiting for it, and polling |
//! | `params` | kernel parameters where there are no immediates |
//! | `mapping` | what the CPU reads and writes |
//! | `progress` | what is on its way, what is done, whether the device is gone |
//!
//! What wgpu 30 does, and therefore this code:
//! * Errors go to the innermost error scope of the calling thread, else to the app's handler, else
//!   they panic. So each of our calls runs inside scopes, and the app never hears of our errors.
//! * An error because the device is gone goes nowhere at all: a call seems to succeed. So each
//!   call ends with a question to the device whether it still takes calls (`guard`).
//! * `Buffer::destroy` and `Surface::present` take a lock that a blocking `poll` holds. So
//!   buffers are dropped and not destroyed, and an app's device is not blocked on (`wait`).

mod caps;
mod guard;
mod mapping;
mod objects;
mod open;
mod params;
mod progress;
mod submit;
mod wait;

#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use self::guard::Late;
use self::objects::{BindGroupEntry, BufferEntry, PipelineEntry};
use self::params::ParamPages;
use self::progress::Progress;
use super::table::Table;
use super::{
    BindGroupId, Binding, BoxFuture, BufferId, BufferKind, Caps, Driver, DriverError, DriverResult,
    MapMode, Op, PipelineDesc, PipelineId, Signal, Submission,
};

pub use self::open::AdapterSummary;
pub(crate) use self::open::OpenRequest;
#[cfg(not(target_arch = "wasm32"))]
pub(crate) use self::open::list;

/// A device of wgpu: one that we opened, or the app's.
pub(crate) struct WgpuDriver {
    device: wgpu::Device,
    queue: wgpu::Queue,
    caps: Caps,
    tables: RwLock<Tables>,
    pages: ParamPages,
    buffers_created: AtomicU64,
    progress: Arc<Progress>,
    /// A destroyed buffer, to ask the device whether it still takes calls.
    #[cfg_attr(
        target_arch = "wasm32",
        allow(dead_code, reason = "a browser tells by itself")
    )]
    probe: Mutex<wgpu::Buffer>,
    /// Errors that a browser has yet to tell.
    late: Mutex<Vec<Late>>,
    /// The longest single wait inside wgpu; none where there must be no such wait.
    #[cfg_attr(
        target_arch = "wasm32",
        allow(dead_code, reason = "a browser cannot block")
    )]
    longest_wait: Option<Duration>,
}

/// The objects behind the ids. The lock is held while commands are encoded, and never while
/// wgpu may call back: not while submitting, polling, mapping, or dropping a buffer.
#[derive(Default)]
struct Tables {
    buffers: Table<BufferEntry>,
    pipelines: Table<PipelineEntry>,
    groups: Table<BindGroupEntry>,
}

impl WgpuDriver {
    /// Bytes that wgpu's own allocator holds of the device's memory, ours and the app's; none
    /// where the backend has no such allocator.
    pub(crate) fn reserved_bytes(&self) -> Option<u64> {
        Some(
            self.device
                .generate_allocator_report()?
                .total_reserved_bytes,
        )
    }

    fn tables(&self) -> RwLockReadGuard<'_, Tables> {
        self.tables.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn tables_mut(&self) -> RwLockWriteGuard<'_, Tables> {
        self.tables.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for WgpuDriver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WgpuDriver")
            .field("caps", &self.caps)
            .field("completed", &self.progress.completed())
            .field("lost", &self.progress.lost())
            .finish_non_exhaustive()
    }
}

fn invalid<T>(message: impl Into<String>) -> DriverResult<T> {
    Err(DriverError::Invalid(message.into()))
}

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
        self.start_buffer(kind, size_bytes, label)
    }

    fn destroy_buffer(&self, buffer: BufferId) {
        self.drop_buffer(buffer);
    }

    fn create_pipeline(&self, desc: PipelineDesc) -> BoxFuture<'_, DriverResult<PipelineId>> {
        self.start_pipeline(&desc)
    }

    fn destroy_pipeline(&self, pipeline: PipelineId) {
        let removed = self.tables_mut().pipelines.remove(pipeline.0);
        drop(removed);
    }

    fn create_bind_group(
        &self,
        pipeline: PipelineId,
        bindings: &[Binding],
    ) -> DriverResult<BindGroupId> {
        self.bind(pipeline, bindings)
    }

    fn destroy_bind_group(&self, group: BindGroupId) {
        let removed = self.tables_mut().groups.remove(group.0);
        drop(removed);
    }

    fn submit(&self, ops: &[Op], params: &[u8]) -> DriverResult<Submission> {
        self.submit_ops(ops, params)
    }

    fn completed(&self) -> u64 {
        self.progress.completed()
    }

    fn buffers_created(&self) -> u64 {
        self.buffers_created.load(Ordering::Relaxed)
    }

    fn poll(&self) -> DriverResult<()> {
        self.check()?;
        self.poll_device(wgpu::PollType::Poll)
    }

    fn wait<'a>(&'a self, signal: &'a Signal) -> BoxFuture<'a, DriverResult<()>> {
        Box::pin(self.wait_for(signal))
    }

    fn map(
        &self,
        buffer: BufferId,
        mode: MapMode,
        offset_bytes: u64,
        size_bytes: u64,
    ) -> DriverResult<Signal> {
        self.map_range(buffer, mode, offset_bytes, size_bytes)
    }

    fn write_mapped(&self, buffer: BufferId, offset_bytes: u64, bytes: &[u8]) -> DriverResult<()> {
        self.write_range(buffer, offset_bytes, bytes)
    }

    fn read_mapped(
        &self,
        buffer: BufferId,
        offset_bytes: u64,
        size_bytes: u64,
        look: &mut dyn FnMut(&[u8]),
    ) -> DriverResult<()> {
        self.read_range(buffer, offset_bytes, size_bytes, look)
    }

    fn unmap(&self, buffer: BufferId) {
        self.end_mapping(buffer);
    }

    fn lost(&self) -> Option<String> {
        self.progress.lost().map(str::to_owned)
    }

    fn declare_lost(&self, reason: &str) {
        self.progress.lose(reason);
    }

    fn as_wgpu(&self) -> Option<&WgpuDriver> {
        Some(self)
    }
}
