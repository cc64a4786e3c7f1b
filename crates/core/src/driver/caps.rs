//! What a device can do.

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
    /// Microsoft's newer compiler for DX12, which the app ships: see
    /// [`Dx12Compiler`](crate::adapter::Dx12Compiler).
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
    /// Whether evicted buffers go to slabs in the host's memory that the device addresses. Then
    /// evictions and restores are copies in the queue, and nobody waits for them. See
    /// [`Options::host_heap`](crate::Options::host_heap).
    pub host_heap: bool,
    /// The most work of one submission: multiply-adds or bytes of operands, whichever are more.
    /// Systems reset a device that is busy for two seconds.
    pub most_work: u64,
    /// Whether the device computes on the host by the reference kernels, as the simulation does.
    pub runs_reference_kernels: bool,
    /// What makes work faster, and the adapter has, but an adopted device was opened without. Empty
    /// if the app asks for [`wanted_features`](crate::interop::wanted_features).
    pub missing_features: Vec<String>,
    /// How fast the device is, if that is known from the start. `None` on every real device, which
    /// the engine measures.
    pub speed: Option<Speed>,
}

/// How fast a device moves bytes and computes. By it the engine decides which tensors to evict, and
/// whether to keep their bytes or to compute them again.
///
/// The default is a graphics card behind PCIe 4 × 16. Set what differs:
///
/// ```
/// use lapidary_core::sim::Speed;
///
/// let faster = Speed { memory_bytes_per_s: 400_000_000_000, ..Speed::default() };
/// assert_eq!(faster.upload_bytes_per_s, 25_000_000_000);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Speed {
    /// Bytes a second from the host's memory to the device. Default 25 GB/s.
    pub upload_bytes_per_s: u64,
    /// Bytes a second from the device to the host's memory. Default 25 GB/s.
    pub download_bytes_per_s: u64,
    /// Bytes a second that kernels read and write. Copies within the device read and write, too.
    /// Default 200 GB/s.
    pub memory_bytes_per_s: u64,
    /// Multiply-adds a second. Default 5 · 10¹².
    pub multiply_adds_per_s: u64,
    /// The time of each copy beside that of its bytes, in nanoseconds. Default 5 µs.
    pub copy_ns: u32,
    /// The time of each submission beside that of its work, in nanoseconds. Default 10 µs.
    pub submission_ns: u32,
}

impl Default for Speed {
    fn default() -> Self {
        Speed {
            upload_bytes_per_s: 25_000_000_000,
            download_bytes_per_s: 25_000_000_000,
            memory_bytes_per_s: 200_000_000_000,
            multiply_adds_per_s: 5_000_000_000_000,
            copy_ns: 5_000,
            submission_ns: 10_000,
        }
    }
}

impl Caps {
    /// The most bindings of storages in a dispatch.
    pub(crate) fn most_windows(&self) -> u8 {
        // One fewer than the limit, because some drivers miscount. A layout counts up to 255.
        let most = self.max_storage_bindings.saturating_sub(1);
        most.try_into().unwrap_or(u8::MAX)
    }

    /// Follows the app's wish for a heap in the host's memory. `maps_slabs` needs the same ability
    /// of the device, and such a device has no such heap unless the app asks for it.
    pub(crate) fn choose_host_heap(&mut self, wanted: Option<bool>) {
        match wanted {
            Some(true) => {
                self.host_heap |= self.maps_slabs;
                self.maps_slabs = false;
            }
            Some(false) => self.host_heap = false,
            None => {}
        }
    }

    /// Whether the device gains if it gets work before all work is recorded. A software adapter
    /// does not: it computes on the cores that record, and a submission costs as much as several
    /// kernels.
    pub(crate) fn begins_early(&self) -> bool {
        self.kind != AdapterKind::Cpu
    }
}
