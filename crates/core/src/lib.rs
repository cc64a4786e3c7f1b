//! Managed GPU buffers for WGSL kernels of your own.
//!
#![doc = include_str!("../README.md")]

#[macro_use]
mod telemetry;

mod buffer;
mod cache_file;
mod driver;
mod dtype;
mod engine;
mod error;
mod excerpt;
mod gpu;
#[doc(hidden)]
pub mod internal;
mod kernel;
mod memory;
mod observe;
mod parallel;
mod printable;
mod shortage;
mod transfer;
mod tuning;
pub mod units;

pub use lapidary_alloc as alloc;

#[cfg(not(target_arch = "wasm32"))]
pub use self::gpu::adapters;
pub use self::{
    buffer::{Buffer, Pin},
    driver::{AdapterKind, AdapterSummary, Caps, Dx12Compiler, ShaderCompiler},
    dtype::{DType, Element},
    engine::{Diagnostics, Finding, Findings, KernelTime, Leak, Pressure, PressureGuard},
    error::{Error, KernelError, ModelFailure, Result, SpillError, SpillFailure, StateFailure},
    gpu::{Access, Bound, BoundRange, Compacted, Gpu, GpuMemory, Options, Tune, Tuned},
    kernel::{Kernel, KernelCall},
    memory::{
        Advice, Block, BlockState, Budget, ClassUse, Event, EvictedStorage, Moment, Recovered,
        Residency, Scope, SlabMap, SlabUse, Source, Tag, TagUse,
    },
    observe::{
        History, Measure, Measured, MemoryStats, Picture, Sampler, Snapshot, Suggestion, Topic,
    },
    shortage::{Holder, OutOfMemory, ReclaimStep, ReclaimStepUse},
};

/// The version of wgpu that [`Gpu::adopt`] and [`Gpu::with_bound`] use.
pub use wgpu;

/// A simulated device. It checks every rule, delays results deliberately, and fails on command. For
/// tests of programs that must survive a device that refuses, fails or is lost.
///
/// ```
/// use lapidary_core::Gpu;
/// use lapidary_core::sim::{Fault, FaultKind, SimOptions, Site};
///
/// let (gpu, sim) = Gpu::simulated(SimOptions::default())?;
/// sim.arm(Fault::once(Site::Submit, 1, FaultKind::Lost));
/// let buffer = gpu.buffer_from(&[1.0_f32, 2.0])?;
/// assert!(buffer.to_vec::<f32>().is_err());
/// assert_eq!(sim.counters().faults, 1);
/// assert_eq!(sim.complaints(), [""; 0]);
/// # Ok::<(), lapidary_core::Error>(())
/// ```
#[cfg(any(test, feature = "sim"))]
pub mod sim {
    pub use crate::driver::sim::{
        Fault, FaultKind, FileFault, FileFaultKind, FileFaults, FileSite, Repeat, SimCounters,
        SimHandle, SimKernels, SimMode, SimOptions, Site,
    };
    pub use crate::kernel::CustomReferenceCall;
}
