//! The seam between the engine and a device: create, destroy, submit, wait, map.
//!
//! [`Driver`] has three implementors: `wgpu`; `sim`, a simulated device whose queue runs late and
//! which fails on command; `dry`, which only counts, for dry runs. The engine uses ids and plain
//! values ([`Op`]), so only this module holds GPU objects.
//!
//! ```text
//!   engine's pass ──► [Op, Op, Op, …] ──► Driver::submit ──► serial 17
//!                                              │
//!                      Driver::wait(&done) ◄───┘ Signal, set from a callback
//! ```
//!
//! Every implementor guarantees:
//! * Ops of one submission, and submissions, take effect in order.
//! * A created buffer reads as zeros.
//! * A call that returns an error has changed nothing. After [`DriverError::Lost`] every later call
//!   is `Lost` as well, until [`Driver::reopen`] has replaced the device, and no wait hangs.
//! * No method takes a lock that one of its callbacks may need.

mod device;
mod dry;
mod learned;
mod ledger;
mod meter;
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
#[cfg(any(test, feature = "sim"))]
use crate::error::KernelError;
pub(crate) use device::Device;
pub(crate) use dry::DryDriver;
pub(crate) use ledger::{Account, Ledger, Levels};
pub(crate) use os_budget::OsBudget;
pub(crate) use os_limit::OsLimit;
pub(crate) use signal::Signal;
pub(crate) use stack::{panic_message, with_deep_stack};

/// A future. It can move between threads natively, and cannot in a browser.
#[cfg(not(target_arch = "wasm32"))]
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;
/// A future. It can move between threads natively, and cannot in a browser.
#[cfg(target_arch = "wasm32")]
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// `Send + Sync` natively. No bound in a browser, where GPU objects belong to one thread.
#[cfg(not(target_arch = "wasm32"))]
pub trait Shared: Send + Sync {}
#[cfg(not(target_arch = "wasm32"))]
impl<T: Send + Sync + ?Sized> Shared for T {}
/// `Send + Sync` natively. No bound in a browser, where GPU objects belong to one thread.
#[cfg(target_arch = "wasm32")]
pub trait Shared {}
#[cfg(target_arch = "wasm32")]
impl<T: ?Sized> Shared for T {}

/// `Send` natively. No bound in a browser.
#[cfg(not(target_arch = "wasm32"))]
pub trait MaybeSend: Send {}
#[cfg(not(target_arch = "wasm32"))]
impl<T: Send + ?Sized> MaybeSend for T {}
/// `Send` natively. No bound in a browser.
#[cfg(target_arch = "wasm32")]
pub trait MaybeSend {}
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
    /// The ranges of buffers that a dispatch binds.
    BindGroupId
);

/// The purpose of a buffer. It decides the usages and the kind of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum BufferKind {
    /// Device memory that is carved into tensors: storage, source and target of copies. The CPU can
    /// map it if [`Caps::maps_slabs`].
    Slab,
    /// Host memory that the CPU writes and the device copies from.
    Upload,
    /// Host memory that the device copies into and the CPU reads.
    Readback,
}

/// The direction of a mapping.
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

/// A range of a buffer that is bound to a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Binding {
    /// The buffer.
    pub(crate) buffer: BufferId,
    /// A multiple of [`Caps::offset_alignment_bytes`].
    pub(crate) offset_bytes: u64,
    /// A multiple of 4, at least 4, at most [`Caps::max_binding_bytes`].
    pub(crate) size_bytes: u64,
}

/// One operation of a submission, with all places resolved.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Op {
    /// Copies bytes between two different buffers; offsets and size are multiples of 4.
    Copy {
        /// Source buffer.
        src: BufferId,
        /// The offset in the source.
        src_offset_bytes: u64,
        /// Destination buffer, not the source.
        dst: BufferId,
        /// The offset in the destination.
        dst_offset_bytes: u64,
        /// The number of bytes.
        size_bytes: u64,
    },
    /// Sets bytes to zero; offset and size are multiples of 4.
    Clear {
        /// The buffer.
        buffer: BufferId,
        /// The offset in the buffer.
        offset_bytes: u64,
        /// The number of bytes.
        size_bytes: u64,
    },
    /// Runs a kernel.
    Dispatch {
        /// The kernel.
        pipeline: PipelineId,
        /// The ranges that it binds.
        bind_group: BindGroupId,
        /// Its parameters: a range of the submission's parameter bytes, as (start, length).
        params: (u32, u32),
        /// Workgroups in x, y, z, each at most [`Caps::max_groups`].
        groups: [u32; 3],
    },
}

/// The most bind groups that exist at once, including destroyed ones that the device still uses.
pub(crate) const MOST_BIND_GROUPS: usize = 8192;

/// The reference kernel of a kernel, as the simulated device calls it. It gets the contents of each
/// binding in order, and the parameters. It leaves the results in the read-write bindings.
pub(crate) type ReferenceKernel = Arc<dyn Fn(&mut [Vec<u8>], &[u8]) + Send + Sync>;

/// A kernel to compile.
#[derive(Clone)]
pub(crate) struct PipelineDesc {
    /// The name of the kernel in tools and errors.
    pub(crate) label: String,
    /// The whole shader. Binding `i` of group 0 has the access `bindings[i]`.
    pub(crate) wgsl: String,
    /// The entry point.
    pub(crate) entry: String,
    /// Access of each storage binding, in order.
    pub(crate) bindings: Vec<Access>,
    /// Bytes of parameters: immediates, or a uniform binding after the last storage binding.
    pub(crate) params_bytes: u32,
    /// Whether workgroup memory starts as zeros, as WGSL requires. A kernel that writes before it
    /// reads turns this off: zeros take time on every GPU, and FXC needs minutes to compile them.
    pub(crate) zeroes_workgroup: bool,
    /// Whether every loop counts its rounds and ends after 2^64 of them, whatever the kernel says.
    /// A kernel whose loops end turns this off: the counters take up to a fifth of its time.
    pub(crate) bounds_loops: bool,
    /// Bit `i`: the kernel writes all of binding `i` and does not read its earlier contents.
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

/// A submission in progress.
#[derive(Clone, Debug)]
pub(crate) struct Submission {
    /// 1, 2, 3, … in order of submission.
    pub(crate) serial: u64,
    /// Set once the device has finished the submission.
    pub(crate) done: Signal,
}

/// The kind of device. It decides which kernels and which transfers are fastest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub enum AdapterKind {
    /// A GPU with its own memory.
    Discrete,
    /// A GPU that shares the CPU's memory.
    Integrated,
    /// A GPU that the host lends to a virtual machine.
    Virtual,
    /// A software rasterizer.
    Cpu,
    /// The driver does not say.
    Other,
}

/// The compiler of a device's kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub enum ShaderCompiler {
    /// The driver, on every backend but DX12.
    Driver,
    /// Microsoft's older compiler for DX12, which every Windows has (`d3dcompiler_47.dll`). It
    /// compiles slowly and supports no subgroups, no 64-bit integers and no f16. If a workgroup has
    /// less than 16 KiB or 128 invocations, attention then uses matmul and softmax, with several
    /// launches.
    Fxc,
    /// Microsoft's newer compiler for DX12, which the app ships: see [`Dx12Compiler`].
    Dxc,
}

/// The abilities of a device that lapidary uses.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Caps {
    /// The adapter's name, as its driver gives it; `unnamed adapter` if a browser hides it.
    pub name: String,
    /// The graphics API: `vulkan`, `metal`, `dx12`, `webgpu`, `sim`.
    pub backend: String,
    /// The driver's name and version, if it tells them.
    pub driver: String,
    /// The kind of device.
    pub kind: AdapterKind,
    /// The compiler of its kernels. An adopted DX12 device counts as one with FXC, unless its
    /// adapter offers features that only DXC can compile.
    pub compiler: ShaderCompiler,
    /// The largest buffer in bytes. No slab, and so no tensor, is larger.
    pub max_buffer_bytes: u64,
    /// The largest range in bytes that one binding shows to a kernel. Larger operands get several
    /// windows.
    pub max_binding_bytes: u64,
    /// The storage buffers that one dispatch may bind, if its compiler can handle them. The engine
    /// uses one fewer, because some drivers miscount.
    pub max_storage_bindings: u32,
    /// The alignment in bytes of a storage binding's offset. It is the granule of slabs.
    pub offset_alignment_bytes: u64,
    /// The alignment in bytes of a uniform binding's offset.
    pub uniform_alignment_bytes: u64,
    /// The bytes of immediates; 0 if parameters go through a uniform buffer.
    pub max_immediate_bytes: u32,
    /// The most workgroups in one dimension of a dispatch.
    pub max_groups: u32,
    /// The most invocations in one workgroup, along x.
    pub max_invocations: u32,
    /// The bytes of workgroup memory.
    pub max_workgroup_bytes: u32,
    /// The least and the most lanes of a subgroup. `None` if kernels cannot use subgroups.
    pub subgroup_lanes: Option<(u32, u32)>,
    /// The rows, and columns, of the square matrices of f16 that a subgroup multiplies at once with
    /// sums in f32. 8 or 16 (cooperative matrices, `VK_KHR_cooperative_matrix`). `None` if kernels
    /// cannot use them, or subgroups vary in size.
    pub cooperative_size: Option<u32>,
    /// Whether kernels load and store two words at once, as one 64-bit word. A software rasterizer
    /// needs the same time for each element that it loads, whatever its width.
    pub wide_words: bool,
    /// Whether slabs can be mapped. Then host and device share memory, and transfers need no
    /// staging.
    pub maps_slabs: bool,
    /// The most work of one submission: multiply-adds or bytes of operands, whichever are more.
    /// Systems reset a device that is busy for two seconds.
    pub most_work: u64,
    /// Whether the device computes on the host by the reference kernels, as the simulation does.
    pub runs_reference_kernels: bool,
    /// How fast the device is, if that is known from the start. `None` on every real device, which
    /// the engine measures.
    pub speed: Option<Speed>,
}

/// How fast a device moves bytes and computes. By it the engine decides which tensors to evict, and
/// whether to keep their bytes or to compute them again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Speed {
    /// Bytes a second between the host's memory and the device.
    pub link_bytes_per_s: u64,
    /// Bytes a second that kernels read and write.
    pub memory_bytes_per_s: u64,
    /// Multiply-adds a second.
    pub multiply_adds_per_s: u64,
}

impl Caps {
    /// Whether the device gains if it gets work before all work is recorded. A software adapter
    /// does not: it computes on the cores that record, and a submission costs as much as several
    /// kernels.
    pub(crate) fn begins_early(&self) -> bool {
        self.kind != AdapterKind::Cpu
    }
}

/// The times of a dispatch. Its begin and end count backwards from the moment at which the engine
/// noticed the end of its submission.
#[derive(Clone, Debug)]
pub(crate) struct KernelRun {
    pub(crate) ns: u64,
    pub(crate) began_before_ns: u64,
    pub(crate) ended_before_ns: u64,
}

/// The reason for a driver's refusal. The engine turns it into the crate's error, with tags and
/// numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DriverError {
    /// The device has no memory for it now.
    OutOfMemory,
    /// The device may have memory, but the budget has no room.
    OverBudget,
    /// The device is lost, with the reason.
    Lost(String),
    /// The device calls the request invalid, with its message.
    Invalid(String),
    /// A kernel is wrong at a place in its text. Only a simulated device looks at what kernels do.
    #[cfg(any(test, feature = "sim"))]
    Kernel(Arc<KernelError>),
}

/// The reason for a waiting caller whose device was replaced before the event.
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

    /// Replaces the device, if it is not one of wgpu's: see [`Device::reopen`].
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
