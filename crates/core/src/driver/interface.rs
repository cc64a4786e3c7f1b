//! The calls of a device.

use std::fmt;

use super::bounds::{BoxFuture, MaybeShared};
use super::caps::Caps;
use super::failure::{DriverResult, invalid};
use super::op::{
    At, BindGroupId, Binding, BufferId, BufferKind, MapMode, Op, PipelineDesc, PipelineId,
    Submission,
};
use super::os_budget::OsBudget;
use super::signal::Signal;

/// The times of a dispatch. Its begin and end count backwards from the moment at which the engine
/// noticed the end of its submission.
#[derive(Clone, Debug)]
pub(crate) struct KernelRun {
    pub(crate) ns: u64,
    pub(crate) began_before_ns: u64,
    pub(crate) ended_before_ns: u64,
}

/// Copies between the device and the heap in the host's memory, one after the other, and their
/// time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LinkRun {
    /// Whether they copy to the device.
    pub(crate) is_to_device: bool,
    pub(crate) copies: u32,
    /// The bytes of all of them.
    pub(crate) bytes: u64,
    pub(crate) ns: u64,
}

/// Why a driver refuses what an app would do with wgpu.
pub(crate) const NOT_SHARED: &str = "the device is simulated and has no wgpu buffers";

/// A function of the app that records commands.
pub(crate) type RecordApp<'a> = Box<dyn FnOnce() -> Vec<wgpu::CommandBuffer> + 'a>;

/// A function that is shown bytes of a mapped buffer.
pub(crate) type ShowTo<'a> = &'a mut dyn FnMut(&[u8]);

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
    fn create_mapped(&self, _size_bytes: u64, _label: &str) -> Option<DriverResult<BufferId>> {
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
    fn map(&self, at: At, mode: MapMode, size_bytes: u64) -> DriverResult<Signal>;

    /// Copies into a mapped range.
    fn write_mapped(&self, at: At, bytes: &[u8]) -> DriverResult<()>;

    /// Passes a mapped range (offset a multiple of 8, size of 4) to `look`.
    fn read_mapped(&self, at: At, size_bytes: u64, look: ShowTo<'_>) -> DriverResult<()>;

    /// [`map`](Driver::map), [`wait`](Driver::wait), [`write_mapped`](Driver::write_mapped) and
    /// [`unmap`](Driver::unmap) in one step, for a buffer that no submission uses. The offset of
    /// `bytes` is a multiple of 4, with up to 3 bytes of room after them. `None` if the driver
    /// needs the four calls; then nothing has changed.
    fn write_now(&self, _at: At, _bytes: &[u8]) -> Option<DriverResult<()>> {
        None
    }

    /// As [`write_now`](Driver::write_now), with [`read_mapped`](Driver::read_mapped).
    fn read_now(&self, _at: At, _size_bytes: u64, _look: ShowTo<'_>) -> Option<DriverResult<()>> {
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

    /// Watches for the loss of an adopted device by its only callback, which the app then has not.
    /// Other devices tell by themselves.
    fn watch_lost(&self) {}

    /// Replaces a lost device by a new one, opened in the same way. The new device is empty: the
    /// driver ignores or refuses old ids. Serials continue, and all earlier ones count as done.
    /// Signals that the old device owed have failed, and waiting for one returns `Lost`.
    ///
    /// An error changes nothing. `Lost` means that no device can be opened now, and a later try may
    /// succeed. `Invalid` means that the device is not lost, belongs to the app, or that the new
    /// device can do less than the old one. [`caps`](Driver::caps) never change.
    fn reopen(&self) -> BoxFuture<'_, DriverResult<()>> {
        Box::pin(std::future::ready(invalid(
            "it has no device to open again",
        )))
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
    fn returns_early(&self) -> bool {
        cfg!(target_arch = "wasm32")
    }

    /// Whether the times of its reads mean something.
    fn has_clock(&self) -> bool {
        true
    }

    /// Starts or stops timing kernels by the device's clock. Refused if the device has none.
    fn time_kernels(&self, on: bool) -> DriverResult<()> {
        if on {
            return invalid("it has no clock");
        }
        Ok(())
    }

    /// The first dispatches of the last submission, in order, if kernels are timed. Each call takes
    /// them, so a second call returns none.
    fn take_kernel_runs(&self) -> Vec<KernelRun> {
        Vec::new()
    }

    /// The time of some copies of an earlier submission, if it is known by now. Each call takes it.
    /// `None` on a device without a clock. A simulated device tells none, so that the same calls
    /// have the same outcome.
    fn take_link_run(&self) -> Option<LinkRun> {
        None
    }

    /// Writes the pipelines compiled so far into their folder, if it has one. The end of the device
    /// does so too.
    fn keep_pipelines(&self) {}

    /// Whether the app may know the device and its buffers as those of wgpu. Otherwise the driver
    /// refuses the five calls below.
    fn shares_with_app(&self) -> bool {
        false
    }

    /// Continues with another device of the app, as [`reopen`](Driver::reopen) does with one of its
    /// own. It sets no callback: the app must watch the loss of this device as well. Refused if the
    /// driver opened the device itself.
    fn readopt(
        &self,
        _adapter: Option<&wgpu::Adapter>,
        _device: &wgpu::Device,
        _queue: &wgpu::Queue,
    ) -> DriverResult<()> {
        invalid(NOT_SHARED)
    }

    /// Runs a function of the app that records commands. What it records wrongly is the error.
    fn record_app(&self, _record: RecordApp<'_>) -> DriverResult<Vec<wgpu::CommandBuffer>> {
        invalid(NOT_SHARED)
    }

    /// Submits the app's commands after ours, with their own serial.
    fn submit_app(&self, _commands: Vec<wgpu::CommandBuffer>) -> DriverResult<Submission> {
        invalid(NOT_SHARED)
    }

    /// The id of a buffer of the app. The same buffer has the same id, since ids decide what may be
    /// bound together. Destroying the id only forgets it.
    fn import_buffer(&self, _buffer: &wgpu::Buffer) -> DriverResult<BufferId> {
        invalid(NOT_SHARED)
    }

    /// The buffer of an id, for the app's commands.
    fn lend_buffer(&self, _buffer: BufferId) -> DriverResult<wgpu::Buffer> {
        invalid(NOT_SHARED)
    }
}
