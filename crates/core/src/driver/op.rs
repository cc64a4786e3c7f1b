//! What the engine asks of a device, as ids and plain values.

use std::sync::Arc;

use super::signal::Signal;
use super::table;

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident),*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub(crate) struct $name(pub(crate) table::TableKey);
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
    /// map it if [`Caps::maps_slabs`](super::Caps::maps_slabs).
    Slab,
    /// Host memory that is carved into evicted tensors: source and target of copies. The CPU can
    /// read it. Only where [`Caps::host_heap`](super::Caps::host_heap) says so.
    HostSlab,
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
pub(crate) enum BindingAccess {
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
    /// A multiple of [`Caps::offset_alignment_bytes`](super::Caps::offset_alignment_bytes).
    pub(crate) offset_bytes: u64,
    /// A multiple of 4, at least 4, at most
    /// [`Caps::max_binding_bytes`](super::Caps::max_binding_bytes).
    pub(crate) size_bytes: u64,
}

/// A place in a buffer, with its offset in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct At(pub(crate) BufferId, pub(crate) u64);

/// One operation of a submission, with all places resolved.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Op {
    /// Copies so many bytes from one place to another, in another buffer. Offsets and size are
    /// multiples of 4.
    Copy(At, At, u64),
    /// Sets so many bytes to zero; offset and size are multiples of 4.
    Clear(At, u64),
    /// Writes bytes that the host knows now: a range of the submission's parameter bytes, as
    /// (start, length). Offset and length are multiples of 4.
    Write(At, (u32, u32)),
    /// Runs a kernel.
    Dispatch {
        /// The kernel.
        pipeline: PipelineId,
        /// The ranges that it binds.
        bind_group: BindGroupId,
        /// Its parameters: a range of the submission's parameter bytes, as (start, length).
        params: (u32, u32),
        /// Workgroups in x, y, z, each at most [`Caps::max_groups`](super::Caps::max_groups).
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
    pub(crate) bindings: Vec<BindingAccess>,
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

debug_by_name!(PipelineDesc {
    label,
    bindings,
    params_bytes
});

/// A submission in progress.
#[derive(Clone, Debug)]
pub(crate) struct Submission {
    /// 1, 2, 3, … in order of submission.
    pub(crate) serial: u64,
    /// Set once the device has finished the submission.
    pub(crate) done: Signal,
}
