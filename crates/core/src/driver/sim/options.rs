//! The options of the simulated device: its limits, its lateness, its faults.

use super::faults::Fault;
use crate::driver::{AdapterKind, Caps, ShaderCompiler, Speed};
use crate::error::{Error, Result};
use crate::units::{GIB, MIB};

/// Whether the simulated device holds bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SimMode {
    /// Buffers hold bytes in RAM. Copies, clears and kernels (by their reference kernels) act on
    /// them.
    Contents,
    /// Buffers have only sizes, so traces of many GiB can be replayed on a laptop. Every rule is
    /// still checked. Reads return zeros.
    SizesOnly,
}

/// The way in which the kernels of a simulated device compute.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SimKernels {
    /// The library's kernels compute on the host by their reference kernels, which is fast. So do
    /// kernels of the app with a [reference kernel](crate::Kernel::with_reference). The WGSL of all
    /// others is interpreted.
    References,
    /// The WGSL of every kernel is interpreted, invocation by invocation. A race, a barrier that
    /// some invocations do not reach, or an index beyond its end gives [`Error::Kernel`].
    Interpreted,
}

/// The options of a simulated device. Set the fields that differ from the default:
///
/// ```
/// use lapidary_core::sim::{Fault, FaultKind, SimOptions, Site};
///
/// let options = SimOptions {
///     memory_bytes: 64 << 20,
///     faults: vec![Fault::once(Site::CreateBuffer, 3, FaultKind::OutOfMemory)],
///     ..SimOptions::default()
/// };
/// assert_eq!(options.offset_alignment_bytes, 256);
/// ```
#[derive(Clone, Debug)]
pub struct SimOptions {
    /// Whether buffers hold bytes.
    pub mode: SimMode,
    /// The way in which kernels compute.
    pub kernels: SimKernels,
    /// The device's memory in bytes. Every buffer counts, also staging. A destroyed buffer counts
    /// until the submissions that use it are done. A request beyond it is out of memory.
    pub memory_bytes: u64,
    /// The budget in bytes that the operating system reports for the process. It refuses no buffer.
    /// `None` for no report. [`SimHandle::set_os_budget`](super::SimHandle::set_os_budget) changes
    /// it.
    pub os_budget_bytes: Option<u64>,
    /// See [`Caps::max_buffer_bytes`].
    pub max_buffer_bytes: u64,
    /// See [`Caps::max_binding_bytes`]; a multiple of `offset_alignment_bytes`, because windows
    /// begin there.
    pub max_binding_bytes: u64,
    /// See [`Caps::offset_alignment_bytes`]; a power of two, at least 4.
    pub offset_alignment_bytes: u64,
    /// See [`Caps::max_storage_bindings`].
    pub max_storage_bindings: u32,
    /// See [`Caps::max_immediate_bytes`]; 0, or at least 128.
    pub max_immediate_bytes: u32,
    /// See [`Caps::max_groups`]; at least 65,535.
    pub max_groups: u32,
    /// See [`Caps::max_invocations`]; at least 256.
    pub max_invocations: u32,
    /// See [`Caps::max_workgroup_bytes`]; at least 8 KiB.
    pub max_workgroup_bytes: u32,
    /// See [`Caps::most_work`].
    pub most_work: u64,
    /// See [`Caps::subgroup_lanes`]: powers of two, from 4 to 128. An interpreted dispatch has
    /// subgroups of one of these sizes. With `None` it has 4, 8, 16, 32 or 64 lanes.
    pub subgroup_lanes: Option<(u32, u32)>,
    /// See [`Caps::cooperative_size`]. Kernels that use it run only interpreted.
    pub cooperative_size: Option<u32>,
    /// See [`Caps::wide_words`].
    pub wide_words: bool,
    /// See [`Caps::compiler`].
    pub compiler: ShaderCompiler,
    /// See [`Caps::speed`]. `None` leaves the engine's first guesses for the kind of device.
    pub speed: Option<Speed>,
    /// Whether work takes the time that it takes at `speed`. Then a submission ends so much later,
    /// and whoever waits for it waits as long. The copies, clears and kernels of a device run one
    /// after the other. Bytes that kernels bind go at the speed of the memory, copies from and to
    /// the host at that of the link. Multiply-adds do not count. For benches; not in a browser.
    pub keeps_time: bool,
    /// See [`Caps::maps_slabs`].
    pub maps_slabs: bool,
    /// See [`Caps::host_heap`]. It has no effect with `maps_slabs`. The slabs of this heap do not
    /// count for `memory_bytes`.
    pub host_heap: bool,
    /// Bytes a second that the host reads from slabs of this heap. Then such a read takes its time,
    /// and the engine counts it. `None`: reads take no time. No effect in a browser.
    pub host_read_bytes_per_s: Option<u64>,
    /// See [`Caps::kind`].
    pub kind: AdapterKind,
    /// The lateness of the queue. A submission is executed after this many polls and later
    /// submissions, or when a caller waits for it or for a later one. 0 executes it at once.
    /// `u32::MAX` leaves it to waits and to [`SimHandle::run`](super::SimHandle::run).
    pub lag_submissions: u32,
    /// Draws the lag of each submission from `0..=lag_submissions` instead, by `seed`.
    pub jitter: bool,
    /// The number of times that a creation or a wait is pending before it does anything, as in a
    /// browser. With 0 it blocks, as native devices do.
    pub pauses: u32,
    /// Fills new slabs with 0xA5 instead of zeros, to find code that relies on fresh memory.
    pub dirty: bool,
    /// Parses and validates each kernel's WGSL, and compares its bindings with the description.
    /// Costs well under a millisecond per kernel.
    pub checks_shaders: bool,
    /// Submits every command alone, and then moves every block that can move, to find code that
    /// relies on a place. `None` takes `true` if the environment variable `LAPIDARY_SIM_COMPACT` is
    /// set.
    pub compact_always: Option<bool>,
    /// The seed of all random events. The same seed and the same calls give the same behaviour.
    pub seed: u64,
    /// Faults that are armed from the start. [`SimHandle::arm`](super::SimHandle::arm) arms more
    /// later.
    pub faults: Vec<Fault>,
}

impl Default for SimOptions {
    fn default() -> Self {
        SimOptions {
            mode: SimMode::Contents,
            kernels: SimKernels::References,
            memory_bytes: GIB,
            os_budget_bytes: None,
            max_buffer_bytes: 256 * MIB,
            max_binding_bytes: 128 * MIB,
            offset_alignment_bytes: 256,
            max_storage_bindings: 8,
            max_immediate_bytes: 128,
            max_groups: 65_535,
            max_invocations: 256,
            max_workgroup_bytes: 16 << 10,
            most_work: 1 << 35,
            subgroup_lanes: None,
            cooperative_size: None,
            wide_words: false,
            compiler: ShaderCompiler::Driver,
            speed: None,
            keeps_time: false,
            maps_slabs: false,
            host_heap: false,
            host_read_bytes_per_s: None,
            kind: AdapterKind::Discrete,
            lag_submissions: 2,
            jitter: false,
            pauses: 0,
            dirty: false,
            checks_shaders: true,
            compact_always: None,
            seed: 0,
            faults: Vec::new(),
        }
    }
}

impl SimOptions {
    /// Refuses limits that are below those of every real device. Kernels would fail later.
    pub(crate) fn checked(self) -> Result<Self> {
        let immediate_bytes = match self.max_immediate_bytes {
            0 => 128,
            bytes => bytes,
        };
        let limits = [
            ("max_immediate_bytes", immediate_bytes, 128),
            ("max_groups", self.max_groups, 65_535),
            ("max_invocations", self.max_invocations, 256),
            ("max_workgroup_bytes", self.max_workgroup_bytes, 8 << 10),
        ];
        let short = limits.into_iter().find(|(_, has, needs)| has < needs);
        short.map_or(Ok(self), |(option, has, needs)| {
            let or_none = if option == "max_immediate_bytes" {
                ", or 0"
            } else {
                ""
            };
            let reason = format!("it is {has}, and kernels need at least {needs}{or_none}");
            Err(Error::option(option, reason))
        })
    }

    /// The caps of the device, or an error for an invalid option.
    pub(super) fn caps(&self) -> Result<Caps> {
        let refuse = |option, reason: &str| Err(Error::option(option, reason.to_string()));
        if !self.offset_alignment_bytes.is_power_of_two() || self.offset_alignment_bytes < 4 {
            return refuse(
                "offset_alignment_bytes",
                "it must be a power of two, at least 4",
            );
        }
        if self.max_buffer_bytes < 4 {
            return refuse("max_buffer_bytes", "it must be at least 4");
        }
        let (binding_bytes, alignment) = (self.max_binding_bytes, self.offset_alignment_bytes);
        if binding_bytes == 0 || !binding_bytes.is_multiple_of(alignment) {
            let most = (binding_bytes - binding_bytes % alignment).max(alignment);
            let reason = format!(
                "it is {binding_bytes}, and windows begin at multiples of `offset_alignment_bytes`, \
                 {alignment}: take {most}"
            );
            return refuse("max_binding_bytes", &reason);
        }
        if self.max_storage_bindings == 0 || self.max_groups == 0 {
            return refuse(
                "max_storage_bindings, max_groups",
                "it must be at least 1, or no kernel can run",
            );
        }
        if self.keeps_time && (self.speed.is_none() || cfg!(target_arch = "wasm32")) {
            return refuse(
                "keeps_time",
                "it needs `speed`, and a system on which threads can sleep",
            );
        }
        let is_size = |lanes: u32| lanes.is_power_of_two() && (4..=128).contains(&lanes);
        if let Some((least, most)) = self.subgroup_lanes {
            if !is_size(least) || !is_size(most) || least > most {
                return refuse(
                    "subgroup_lanes",
                    "they must be powers of two from 4 to 128, the least first",
                );
            }
        }
        if self
            .cooperative_size
            .is_some_and(|size| size != 8 && size != 16)
        {
            return refuse("cooperative_size", "8 or 16");
        }
        Ok(Caps {
            name: "simulated device".to_string(),
            backend: "sim".to_string(),
            driver: format!("lapidary {}", env!("CARGO_PKG_VERSION")),
            kind: self.kind,
            compiler: self.compiler,
            max_buffer_bytes: self.max_buffer_bytes,
            max_binding_bytes: self.max_binding_bytes,
            max_storage_bindings: self.max_storage_bindings,
            offset_alignment_bytes: self.offset_alignment_bytes,
            uniform_alignment_bytes: self.offset_alignment_bytes,
            max_immediate_bytes: self.max_immediate_bytes,
            max_groups: self.max_groups,
            max_invocations: self.max_invocations,
            max_workgroup_bytes: self.max_workgroup_bytes,
            subgroup_lanes: self.subgroup_lanes,
            cooperative_size: self.cooperative_size,
            wide_words: self.wide_words,
            maps_slabs: self.maps_slabs,
            host_heap: self.host_heap && !self.maps_slabs,
            most_work: self.most_work,
            runs_reference_kernels: self.mode == SimMode::Contents,
            missing_features: Vec::new(),
            speed: self.speed,
        })
    }
}
