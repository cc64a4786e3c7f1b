//! The calls of a device.

use std::fmt;

use super::bounds::{BoxFuture, MaybeShared};
use super::caps::Caps;
use super::failure::{DriverError, DriverResult};
use super::op::{
    BindGroupId, Binding, BufferId, BufferKind, MapMode, Op, PipelineDesc, PipelineId, Submission,
};
use super::os_budget::OsBudget;
use super::signal::Signal;
use super::wgpu::WgpuDriver;

/// The times of a dispatch. Its begin and end count backwards from the moment at which the engine
/// noticed the end of its submission.
#[derive(Clone, Debug)]
pub(crate) struct KernelRun {
    pub(crate) ns: u64,
    pub(crate) began_before_ns: u64,
    pub(crate) ended_before_ns: u64,
}

/// A device.
pub(crate) trait Driver: MaybeShared + fmt::Debug {
    /// What it can do; the same for its whole life.
    fn caps(&self) -> &Caps;

    /// Creates a buffer of `size_bytes` (a multiple of 4) that reads as zeros.
    fn create_buffer(
        &self,
        kind: BufferKind,
        size_bytes: u64,
        label: &str,
    ) -> BoxFuture<'_, DriverResult<BufferId>>;

    /// Creates a mapped buffer for uploads without a wait, in a browser, where an upload may not
    /// wait for a mapping. All other drivers return `None`. An error, such as a lack of memory, may
    /// be reported later.
    fn create_mapped(&self, size_bytes: u64, label: &str) -> Option<DriverResult<BufferId>> {
        let _ = (size_bytes, label);
        None
    }

    /// Destroys a buffer. Its memory returns when the submissions that use it are done. No later op
    /// may name it. The driver ignores an unknown id.
    fn destroy_buffer(&self, buffer: BufferId);

    /// Compiles a kernel.
    fn create_pipeline(&self, desc: PipelineDesc) -> BoxFuture<'_, DriverResult<PipelineId>>;

    /// Destroys a kernel. The driver ignores an unknown id.
    fn destroy_pipeline(&self, pipeline: PipelineId);

    /// Binds ranges to a kernel's bindings, in order.
    fn create_bind_group(
        &self,
        pipeline: PipelineId,
        bindings: &[Binding],
    ) -> DriverResult<BindGroupId>;

    /// Destroys a bind group.
    fn destroy_bind_group(&self, group: BindGroupId);

    /// Encodes the ops and submits them. The ranges of the dispatches' parameters refer to
    /// `params`. An error refuses the whole submission.
    fn submit(&self, ops: &[Op], params: &[u8]) -> DriverResult<Submission>;

    /// The highest serial that is done. All serials up to it are done.
    fn completed(&self) -> u64;

    /// The number of buffers of all kinds created so far.
    fn buffers_created(&self) -> u64;

    /// Takes note of finished work. It never waits.
    fn poll(&self) -> DriverResult<()>;

    /// Waits for a signal. Natively the first poll of the future blocks the thread; in a browser a
    /// callback wakes it.
    fn wait<'a>(&'a self, signal: &'a Signal) -> BoxFuture<'a, DriverResult<()>>;

    /// Requests the mapping of a buffer's range (offset a multiple of 8, size of 4), which takes
    /// place once no submission uses the buffer. Until [`unmap`](Driver::unmap) no submission may
    /// name it.
    fn map(
        &self,
        buffer: BufferId,
        mode: MapMode,
        offset_bytes: u64,
        size_bytes: u64,
    ) -> DriverResult<Signal>;

    /// Copies into a mapped range.
    fn write_mapped(&self, buffer: BufferId, offset_bytes: u64, bytes: &[u8]) -> DriverResult<()>;

    /// Passes a mapped range (offset a multiple of 8, size of 4) to `look`.
    fn read_mapped(
        &self,
        buffer: BufferId,
        offset_bytes: u64,
        size_bytes: u64,
        look: &mut dyn FnMut(&[u8]),
    ) -> DriverResult<()>;

    /// [`map`](Driver::map), [`wait`](Driver::wait), [`write_mapped`](Driver::write_mapped) and
    /// [`unmap`](Driver::unmap) in one step, for a buffer that no submission uses. The offset of
    /// `bytes` is a multiple of 4, with up to 3 bytes of room after them. `None` if the driver
    /// needs the four calls; then nothing has changed.
    fn write_now(
        &self,
        _buffer: BufferId,
        _offset_bytes: u64,
        _bytes: &[u8],
    ) -> Option<DriverResult<()>> {
        None
    }

    /// As [`write_now`](Driver::write_now), with [`read_mapped`](Driver::read_mapped).
    fn read_now(
        &self,
        _buffer: BufferId,
        _offset_bytes: u64,
        _size_bytes: u64,
        _look: &mut dyn FnMut(&[u8]),
    ) -> Option<DriverResult<()>> {
        None
    }

    /// Ends a mapping.
    fn unmap(&self, buffer: BufferId);

    /// Whether the device may be lost: `false` is certain, and costs no lock.
    fn may_be_lost(&self) -> bool;

    /// The reason why the device is lost, once it is.
    fn lost(&self) -> Option<String>;

    /// Declares the device lost, because the app noticed the loss first.
    fn declare_lost(&self, reason: &str);

    /// Replaces the device, if it is not one of wgpu's: see
    /// [`Device::reopen`](super::Device::reopen).
    fn reopen(&self) -> BoxFuture<'_, DriverResult<()>> {
        let reason = "it has no device to open again".to_owned();
        Box::pin(std::future::ready(Err(DriverError::Invalid(reason))))
    }

    /// The bytes of the device's memory that the operating system allows this process now. `None`
    /// if the system does not tell. The call asks the driver, so call it seldom.
    fn os_budget(&self) -> Option<OsBudget>;

    /// The bytes of the device's memory that the driver's allocator holds, for the engine and for
    /// the app. `None` if there is no such allocator, or it does not tell.
    fn driver_reserved_bytes(&self) -> Option<u64> {
        None
    }

    /// Whether its buffers hold bytes. If they have sizes only, callers need not keep contents.
    fn has_contents(&self) -> bool {
        true
    }

    /// Whether creations and waits return before they are done, as in a browser. Otherwise they
    /// block.
    fn may_wait(&self) -> bool {
        cfg!(target_arch = "wasm32")
    }

    /// The first dispatches of the last submission, in order, if kernels are timed. Each call takes
    /// them, so a second call returns none.
    fn take_kernel_runs(&self) -> Vec<KernelRun> {
        Vec::new()
    }

    /// The wgpu objects behind the driver, if it is the one over wgpu.
    fn as_wgpu(&self) -> Option<&WgpuDriver> {
        None
    }
}
