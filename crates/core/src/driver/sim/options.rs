//! What the simulated device is like: its limits, how late it runs, what goes wrong.

use super::faults::Fault;
use crate::driver::{AdapterKind, Caps, ShaderCompiler};
use crate::error::{Error, Result};
use crate::units::{GIB, MIB};

/// Whether the simulated device holds bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SimMode {
    /// Buffers hold bytes in RAM; copies, clears and kernels (by their host reference kernels) act
    /// on them.
    Contents,
    /// Buffers have sizes and nothing else, so that traces of many GiB can be replayed on a
    /// laptop. Every rule is still checked; reads give zeros.
    SizesOnly,
}

/// How the kernels of a simulated device compute.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SimKernels {
    /// The library's kernels, and yours that have a [reference
    /// kernel](crate::Kernel::with_reference), compute on the host by that, which is fast.
    /// The WGSL of all others is interpreted.
    References,
    /// The WGSL of every kernel is interpreted, invocation by invocation. A race, a barrier that
    /// some invocations do not reach, or an index beyond its end is [`Error::Kernel`].
    Interpreted,
}

/// A simulated device. Take what differs and leave the rest:
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
    /// Whether there are bytes.
    pub mode: SimMode,
    /// How kernels compute.
    pub kernels: SimKernels,
    /// All of the device's memory, in bytes. Every buffer counts, staging too, and one that was
    /// destroyed counts until the submissions that use it are done. Beyond it, out of memory.
    pub memory_bytes: u64,
    /// What the operating system lets the process use, as it says; it only says so, and refuses
    /// nothing. `None`: it says nothing.
    /// [`SimHandle::set_os_budget`](super::SimHandle::set_os_budget) changes it.
    pub os_budget_bytes: Option<u64>,
    /// See [`Caps::max_buffer_bytes`].
    pub max_buffer_bytes: u64,
    /// See [`Caps::max_binding_bytes`].
    pub max_binding_bytes: u64,
    /// See [`Caps::offset_alignment_bytes`]; a power of two, at least 4.
    pub offset_alignment_bytes: u64,
    /// See [`Caps::max_storage_bindings`].
    pub max_storage_bindings: u32,
    /// See [`Caps::max_immediate_bytes`].
    pub max_immediate_bytes: u32,
    /// See [`Caps::max_groups`].
    pub max_groups: u32,
    /// See [`Caps::max_invocations`].
    pub max_invocations: u32,
    /// See [`Caps::max_workgroup_bytes`].
    pub max_workgroup_bytes: u32,
    /// Multiply-adds, or bytes of operands, that one submission is given to do at most.
    pub most_work: u64,
    /// See [`Caps::subgroup_lanes`]: powers of two, from 4 to 128. An interpreted dispatch has
    /// subgroups of one of these sizes; where it is `None`, of 4, 8, 16, 32 or 64 lanes.
    pub subgroup_lanes: Option<(u32, u32)>,
    /// See [`Caps::cooperative_size`]; the kernels that use it only run interpreted.
    pub cooperative_size: Option<u32>,
    /// See [`Caps::wide_words`].
    pub wide_words: bool,
    /// See [`Caps::compiler`].
    pub compiler: ShaderCompiler,
    /// See [`Caps::maps_slabs`].
    pub maps_slabs: bool,
    /// See [`Caps::kind`].
    pub kind: AdapterKind,
    /// How late the queue runs: a submission is executed once this many polls and later
    /// submissions have happened since, or when somebody waits for it or for a later one. 0
    /// executes it at once; `u32::MAX` leaves it to waits and to
    /// [`SimHandle::run`](super::SimHandle::run).
    pub lag_submissions: u32,
    /// Draws each submission's lag from `0..=lag_submissions` instead, by `seed`.
    pub jitter: bool,
    /// How often a creation or a wait says "not yet" before it does anything, as a browser does.
    /// 0 is what native devices do: it blocks.
    pub pauses: u32,
    /// Fills new slabs with 0xA5 instead of zeros, to find what relies on fresh memory.
    pub dirty: bool,
    /// Parses and validates each kernel's WGSL, and compares its bindings with what they are
    /// said to be. Costs well under a millisecond a kernel.
    pub checks_shaders: bool,
    /// Submits every command alone, and moves all that can be moved after it: to find what relies
    /// on a place. `None`: if there is an environment variable `LAPIDARY_SIM_COMPACT`.
    pub compact_always: Option<bool>,
    /// Where all chance comes from: same seed and same calls, same behaviour.
    pub seed: u64,
    /// What goes wrong from the start; more can be armed later, by
    /// [`SimHandle::arm`](super::SimHandle::arm).
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
            maps_slabs: false,
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
    /// What the device says of itself, or which option cannot be.
    pub(super) fn caps(&self) -> Result<Caps> {
        let refuse = |option, reason: &str| {
            Err(Error::Option {
                option,
                reason: reason.to_string(),
            })
        };
        if !self.offset_alignment_bytes.is_power_of_two() || self.offset_alignment_bytes < 4 {
            return refuse(
                "offset_alignment_bytes",
                "it must be a power of two, at least 4",
            );
        }
        if self.max_buffer_bytes < 4 {
            return refuse("max_buffer_bytes", "no buffer would fit: at least 4");
        }
        if self.max_binding_bytes < 4 || !self.max_binding_bytes.is_multiple_of(4) {
            return refuse(
                "max_binding_bytes",
                "it must be a multiple of 4, at least 4",
            );
        }
        if self.max_storage_bindings == 0 || self.max_groups == 0 {
            return refuse(
                "max_storage_bindings, max_groups",
                "no kernel could run: at least 1",
            );
        }
        let is_size = |lanes: u32| lanes.is_power_of_two() && (4..=128).contains(&lanes);
        if let Some((least, most)) = self.subgroup_lanes {
            if !is_size(least) || !is_size(most) || least > most {
                return refuse(
                    "subgroup_lanes",
                    "powers of two from 4 to 128, the least first",
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
            most_work: self.most_work,
            runs_reference_kernels: self.mode == SimMode::Contents,
        })
    }
}
