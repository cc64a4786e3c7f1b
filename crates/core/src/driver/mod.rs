//! The seam between the engine and a device: create, destroy, submit, wait, map.
//!
//! Two implementors stand behind [`Driver`]: `wgpu`, and `sim`, a device that is not there, whose
//! queue runs late and which fails on command. The engine speaks in ids and plain values
//! ([`Op`]), so no room but this one ever holds a GPU object.
//!
//! ```text
//!   engine's pass ──► [Op, Op, Op, …] ──► Driver::submit ──► serial 17
//!                                              │
//!                      Driver::wait(&done) ◄───┘ Signal, set from a callback
//! ```
//!
//! What every implementor promises:
//! * Ops of one submission, and submissions, take effect in order.
//! * A created buffer reads as zeros.
//! * After an error nothing has changed, except that after [`DriverError::Lost`] every later call
//!   is `Lost` as well until [`Driver::reopen`] has replaced the device, and nothing waits for
//!   ever.
//! * No method takes a lock that a callback of its own may want.

mod device;
mod learned;
mod ledger;
mod os_budget;
mod os_limit;
mod replacement;
mod signal;
mod stack;
mod table;
pub(crate) mod wgpu;

#[cfg(any(test, feature = "sim"))]
pub(crate) mod sim;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use self::wgpu::WgpuDriver;
pub use self::wgpu::{AdapterSummary, Dx12Compiler};
use crate::error::KernelError;
pub(crate) use device::Device;
pub(crate) use ledger::{Account, Levels};
pub(crate) use os_budget::OsBudget;
pub(crate) use os_limit::OsLimit;
pub(crate) use signal::Signal;
pub(crate) use stack::{panic_message, with_deep_stack};

/// A future that travels between threads natively, and stays on its own in a browser.
#[cfg(not(target_arch = "wasm32"))]
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;
/// A future that travels between threads natively, and stays on its own in a browser.
#[cfg(target_arch = "wasm32")]
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// `Send + Sync` natively; nothing in a browser, where GPU objects belong to one thread.
#[cfg(not(target_arch = "wasm32"))]
pub trait Shared: Send + Sync {}
#[cfg(not(target_arch = "wasm32"))]
impl<T: Send + Sync + ?Sized> Shared for T {}
/// `Send + Sync` natively; nothing in a browser, where GPU objects belong to one thread.
#[cfg(target_arch = "wasm32")]
pub trait Shared {}
#[cfg(target_arch = "wasm32")]
impl<T: ?Sized> Shared for T {}

/// `Send` natively; nothing in a browser.
#[cfg(not(target_arch = "wasm32"))]
pub(crate) trait MaybeSend: Send {}
#[cfg(not(target_arch = "wasm32"))]
impl<T: Send + ?Sized> MaybeSend for T {}
/// `Send` natively; nothing in a browser.
#[cfg(target_arch = "wasm32")]
pub(crate) trait MaybeSend {}
#[cfg(target_arch = "wasm32")]
impl<T: ?Sized> MaybeSend for T {}

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident),*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub(crate) struct $name(pub(crate) table::Key);
    )*};
}

ids!(
    /// A buffer of the device.
    BufferId,
    /// A compiled kernel.
    PipelineId,
    /// The buffers' ranges that a dispatch sees.
    BindGroupId
);

/// What a buffer is for; it decides the usages and the kind of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum BufferKind {
    /// Device memory that is carved into tensors: storage, copied from and to. Mappable as well
    /// where [`Caps::maps_slabs`].
    Slab,
    /// Host memory written by the CPU and copied from.
    Upload,
    /// Host memory copied into and read by the CPU.
    Readback,
}

/// How a mapped buffer is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MapMode {
    /// The CPU reads.
    Read,
    /// The CPU writes.
    Write,
}

/// Whether a kernel may write through a binding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Access {
    /// `var<storage, read>`
    Read,
    /// `var<storage, read_write>`
    ReadWrite,
}

/// A range of a buffer, bound to a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Binding {
    /// The buffer.
    pub(crate) buffer: BufferId,
    /// A multiple of [`Caps::offset_alignment_bytes`].
    pub(crate) offset_bytes: u64,
    /// A multiple of 4, at least 4, at most [`Caps::max_binding_bytes`].
    pub(crate) size_bytes: u64,
}

/// One step of a submission, with every place resolved.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Op {
    /// Copies bytes between two different buffers; offsets and size are multiples of 4.
    Copy {
        /// Source buffer.
        src: BufferId,
        /// Where in the source.
        src_offset_bytes: u64,
        /// Destination buffer, not the source.
        dst: BufferId,
        /// Where in the destination.
        dst_offset_bytes: u64,
        /// How much.
        size_bytes: u64,
    },
    /// Sets bytes to zero; offset and size are multiples of 4.
    Clear {
        /// The buffer.
        buffer: BufferId,
        /// Where.
        offset_bytes: u64,
        /// How much.
        size_bytes: u64,
    },
    /// Runs a kernel.
    Dispatch {
        /// The kernel.
        pipeline: PipelineId,
        /// What it sees.
        bind_group: BindGroupId,
        /// Its parameters: a range of the submission's parameter bytes, as (start, length).
        params: (u32, u32),
        /// Workgroups in x, y, z, each at most [`Caps::max_groups`].
        groups: [u32; 3],
    },
}

/// Bind groups that exist at once, at most: those that are kept, and those that are gone while the
/// device still uses them.
pub(crate) const MOST_BIND_GROUPS: usize = 8192;

/// A kernel's CPU reference kernel as the simulated device calls it: the contents of each binding
/// in order, and the parameters. What it leaves in the bindings that are read-write is the result.
pub(crate) type ReferenceKernel = Arc<dyn Fn(&mut [Vec<u8>], &[u8]) + Send + Sync>;

/// A kernel to compile.
#[derive(Clone)]
pub(crate) struct PipelineDesc {
    /// What the kernel is called in tools and errors.
    pub(crate) label: String,
    /// The whole shader. Binding `i` of group 0 has the access `bindings[i]`.
    pub(crate) wgsl: String,
    /// The entry point.
    pub(crate) entry: String,
    /// Access of each storage binding, in order.
    pub(crate) bindings: Vec<Access>,
    /// Bytes of parameters: immediates, or a uniform binding after the last storage binding.
    pub(crate) params_bytes: u32,
    /// Whether workgroup memory starts as zeros, as WGSL says. A kernel that writes before it reads
    /// goes without: zeros take time on every GPU, and FXC compiles them for minutes.
    pub(crate) zeroes_workgroup: bool,
    /// Bit `i`: the kernel writes all of binding `i` and reads nothing that it held.
    #[cfg_attr(
        not(any(test, feature = "sim")),
        allow(dead_code, reason = "only a simulated device looks at what kernels do")
    )]
    pub(crate) written_whole: u64,
    /// The reference kernel, for a device that computes on the host.
    #[cfg_attr(
        not(any(test, feature = "sim")),
        allow(dead_code, reason = "only a simulated device computes on the host")
    )]
    pub(crate) reference: Option<ReferenceKernel>,
}

impl fmt::Debug for PipelineDesc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PipelineDesc")
            .field("label", &self.label)
            .field("bindings", &self.bindings)
            .field("params_bytes", &self.params_bytes)
            .finish_non_exhaustive()
    }
}

/// A submission that is on its way.
#[derive(Clone, Debug)]
pub(crate) struct Submission {
    /// 1, 2, 3, … in order of submission.
    pub(crate) serial: u64,
    /// Set when the device has finished it.
    pub(crate) done: Signal,
}

/// What sort of device it is: it decides which kernels and which transfers win.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub enum AdapterKind {
    /// A GPU with memory of its own.
    Discrete,
    /// A GPU that shares the CPU's memory.
    Integrated,
    /// A GPU lent by a virtual machine's host.
    Virtual,
    /// A software rasterizer.
    Cpu,
    /// The driver does not say.
    Other,
}

/// What compiles a device's kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub enum ShaderCompiler {
    /// The driver, on every backend but DX12.
    Driver,
    /// Microsoft's older compiler for DX12, which every Windows has (`d3dcompiler_47.dll`). It
    /// compiles slowly and knows no subgroups, no 64-bit integers and no f16. Attention then takes
    /// matmul and softmax, with several launches, if a workgroup has less than 16 KiB or 128
    /// invocations.
    Fxc,
    /// Microsoft's newer compiler for DX12, which the app ships: see [`Dx12Compiler`].
    Dxc,
}

/// What a device can do, reduced to what lapidary asks.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Caps {
    /// The adapter's name, as its driver gives it; `unnamed adapter` where a browser keeps it to
    /// itself.
    pub name: String,
    /// The graphics API: `vulkan`, `metal`, `dx12`, `webgpu`, `sim`.
    pub backend: String,
    /// The driver's name and version, where it tells them.
    pub driver: String,
    /// What sort of device it is.
    pub kind: AdapterKind,
    /// What compiles its kernels. An adopted DX12 device counts as FXC's, unless its adapter offers
    /// features that only DXC can compile.
    pub compiler: ShaderCompiler,
    /// The largest buffer, in bytes: no slab, so no tensor, is larger.
    pub max_buffer_bytes: u64,
    /// The largest range that one binding shows to a kernel; larger operands get several windows.
    pub max_binding_bytes: u64,
    /// Storage buffers that one dispatch may bind, as far as its compiler copes with them. We use
    /// one fewer: some drivers miscount.
    pub max_storage_bindings: u32,
    /// Alignment of a storage binding's offset: the granule that slabs are carved in.
    pub offset_alignment_bytes: u64,
    /// Alignment of a uniform binding's offset.
    pub uniform_alignment_bytes: u64,
    /// Bytes of immediates; 0 where parameters go through a uniform buffer.
    pub max_immediate_bytes: u32,
    /// Workgroups in one dimension of a dispatch.
    pub max_groups: u32,
    /// Invocations in one workgroup, along x.
    pub max_invocations: u32,
    /// Bytes of workgroup memory.
    pub max_workgroup_bytes: u32,
    /// Lanes of a subgroup, least and most; none where kernels cannot use subgroups.
    pub subgroup_lanes: Option<(u32, u32)>,
    /// Rows, and columns, of the squares of f16 that a subgroup multiplies at once with sums in f32
    /// (cooperative matrices, `VK_KHR_cooperative_matrix`), 8 or 16; none where kernels cannot, or
    /// subgroups vary in size.
    pub cooperative_size: Option<u32>,
    /// Kernels load and store two words at once, as one of 64 bits: a software rasterizer takes as
    /// long for each element that it loads, however wide it is.
    pub wide_words: bool,
    /// Slabs can be mapped: host and device share memory, and transfers need no staging.
    pub maps_slabs: bool,
    /// What one submission is given to do, at most: multiply-adds, or bytes of operands, whichever
    /// are more. Systems take a device for dead that is busy for two seconds.
    pub most_work: u64,
    /// The device computes on the host by the reference kernels (the simulation).
    pub runs_reference_kernels: bool,
}

impl Caps {
    /// Does it gain by being given work before all of it is recorded? A software adapter computes
    /// on the cores that record, and each submission costs it what several kernels do.
    pub(crate) fn begins_early(&self) -> bool {
        self.kind != AdapterKind::Cpu
    }
}

/// A dispatch that was timed: how long before the end of its submission was noticed it began and
/// ended.
#[derive(Clone, Debug)]
pub(crate) struct KernelRun {
    pub(crate) ns: u64,
    pub(crate) began_before_ns: u64,
    pub(crate) ended_before_ns: u64,
}

/// Why a driver refused. The engine turns it into the crate's error, with tags and numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DriverError {
    /// There is no memory for it now.
    OutOfMemory,
    /// There may be memory, but the budget says no.
    OverBudget,
    /// The device is gone, with the reason.
    Lost(String),
    /// The device says that the request is wrong, in its own words.
    Invalid(String),
    /// A kernel is wrong, at a place in its text.
    #[cfg_attr(
        not(any(test, feature = "sim")),
        allow(dead_code, reason = "only a simulated device looks at what kernels do")
    )]
    Kernel(Arc<KernelError>),
}

/// What somebody is told who waits for something that a device owed which was replaced since.
const REPLACED: &str = "the device was replaced before it was done";

pub(crate) type DriverResult<T> = Result<T, DriverError>;

/// A device.
pub(crate) trait Driver: Shared + fmt::Debug {
    /// What it can do; the same for its whole life.
    fn caps(&self) -> &Caps;

    /// Creates a buffer of `size_bytes` (a multiple of 4) that reads as zeros.
    fn create_buffer(
        &self,
        kind: BufferKind,
        size_bytes: u64,
        label: &str,
    ) -> BoxFuture<'_, DriverResult<BufferId>>;

    /// Creates a buffer for uploads that is mapped already, without a wait: in a browser, where an
    /// upload may not wait for a mapping. `None` from all others. What is wrong with it, such as
    /// that there is no memory for it, may become known later.
    fn create_mapped(&self, size_bytes: u64, label: &str) -> Option<DriverResult<BufferId>> {
        let _ = (size_bytes, label);
        None
    }

    /// Gives a buffer back. Its memory returns when the submissions that use it are done.
    /// No op submitted later may name it. An unknown id is ignored.
    fn destroy_buffer(&self, buffer: BufferId);

    /// Compiles a kernel.
    fn create_pipeline(&self, desc: PipelineDesc) -> BoxFuture<'_, DriverResult<PipelineId>>;

    /// Forgets a kernel.
    fn destroy_pipeline(&self, pipeline: PipelineId);

    /// Binds ranges to a kernel's bindings, in order.
    fn create_bind_group(
        &self,
        pipeline: PipelineId,
        bindings: &[Binding],
    ) -> DriverResult<BindGroupId>;

    /// Forgets a bind group.
    fn destroy_bind_group(&self, group: BindGroupId);

    /// Encodes the ops and gives them to the device. `params` is what the dispatches' ranges
    /// point into. An error refuses the whole submission.
    fn submit(&self, ops: &[Op], params: &[u8]) -> DriverResult<Submission>;

    /// The highest serial whose submission is done, and so all before it.
    fn completed(&self) -> u64;

    /// Buffers created so far, of every kind.
    fn buffers_created(&self) -> u64;

    /// Lets finished work be noticed; never waits.
    fn poll(&self) -> DriverResult<()>;

    /// Waits for a signal: blocks the thread at its first poll natively, is woken in a browser.
    fn wait<'a>(&'a self, signal: &'a Signal) -> BoxFuture<'a, DriverResult<()>>;

    /// Asks for a buffer's range (offset a multiple of 8, size of 4) to be mapped as soon as no
    /// submission uses it. Until [`unmap`](Driver::unmap) no submission may name the buffer.
    fn map(
        &self,
        buffer: BufferId,
        mode: MapMode,
        offset_bytes: u64,
        size_bytes: u64,
    ) -> DriverResult<Signal>;

    /// Copies into a mapped range.
    fn write_mapped(&self, buffer: BufferId, offset_bytes: u64, bytes: &[u8]) -> DriverResult<()>;

    /// Shows a mapped range (offset a multiple of 8, size of 4) to `look`.
    fn read_mapped(
        &self,
        buffer: BufferId,
        offset_bytes: u64,
        size_bytes: u64,
        look: &mut dyn FnMut(&[u8]),
    ) -> DriverResult<()>;

    /// [`map`](Driver::map), [`wait`](Driver::wait), [`write_mapped`](Driver::write_mapped) and
    /// [`unmap`](Driver::unmap) in one step, for a buffer that no submission uses: `bytes` to an
    /// offset that is a multiple of 4, with up to 3 bytes of room behind them. `None`, and nothing
    /// has happened, where it takes those four.
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

    /// Why the device is gone, once it is.
    fn lost(&self) -> Option<String>;

    /// Declares the device gone: the app noticed before we did.
    fn declare_lost(&self, reason: &str);

    /// Puts a new device into the place of one that was lost, opened the same way. It begins empty:
    /// ids from before name nothing, and are ignored or refused. Serials go on, all up to now
    /// count as done; signals that the old device owed have failed, and waiting for one is `Lost`.
    ///
    /// Refuses, and changes nothing, with `Lost` when no device can be had now, so that it is worth
    /// another try; with `Invalid` when the device is not lost, is the app's, or can do less than
    /// the one before, since [`caps`](Driver::caps) stay what they were.
    fn reopen(&self) -> BoxFuture<'_, DriverResult<()>>;

    /// What the operating system lets this process use of the device's memory, asked now; none
    /// where it does not tell. A question to the driver: ask seldom.
    fn os_budget(&self) -> Option<OsBudget>;

    /// Bytes that the driver's own allocator holds of the device's memory, for us and for the app;
    /// none where there is no such allocator, or it does not tell.
    fn driver_reserved_bytes(&self) -> Option<u64> {
        None
    }

    /// Do its buffers hold bytes? Where they have sizes only, nobody need keep what they would
    /// hold.
    fn has_contents(&self) -> bool {
        true
    }

    /// Do creations and waits return before they are done, as in a browser? Elsewhere they block.
    fn may_wait(&self) -> bool {
        cfg!(target_arch = "wasm32")
    }

    /// Times kernels by the device's own clock from now on, or no longer; refused where it has
    /// none.
    fn time_kernels(&self, on: bool) -> DriverResult<()> {
        match on {
            true => Err(DriverError::Invalid("it has no clock".to_owned())),
            false => Ok(()),
        }
    }

    /// The first dispatches of the last submission, in order, if kernels are timed and these were
    /// not taken yet.
    fn take_kernel_runs(&self) -> Vec<KernelRun> {
        Vec::new()
    }

    /// The wgpu objects behind it, if it is wgpu.
    fn as_wgpu(&self) -> Option<&WgpuDriver> {
        None
    }
}
