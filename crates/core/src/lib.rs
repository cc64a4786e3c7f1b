//! Managed GPU buffers for WGSL kernels of your own.
//!
#![doc = include_str!("../README.md")]

#[macro_use]
mod debug;
#[macro_use]
mod telemetry;

mod buffer;
mod driver;
mod dtype;
mod engine;
mod error;
mod excerpt;
mod finally;
mod gpu;
#[doc(hidden)]
pub mod internal;
pub mod jobs;
mod kernel;
mod memory;
mod number_map;
mod observe;
mod parallel;
mod printable;
mod shortage;
mod transfer;
pub mod units;
mod waits;
mod worker;

pub use lapidary_alloc as alloc;

pub use self::{
    buffer::Buffer,
    driver::Caps,
    dtype::{DType, Element},
    error::{Error, Result},
    gpu::{Gpu, GpuMemory, Options},
    kernel::{Kernel, KernelCall},
    memory::{Advice, Budget, Residency, Source},
};

/// What [`GpuMemory`] tells of the memory: statistics, measurements, history, snapshots, and the
/// errors and callbacks of a shortage. And what a dry run tells.
pub mod stats {
    pub use crate::engine::{MemoryStats, Number, NumberValue, Pressure, PressureGuard};
    pub use crate::gpu::Compacted;
    pub use crate::memory::{
        Block, BlockState, ClassUse, Event, EvictedStorage, History, Moment, Recovered, Scope,
        SlabMap, SlabUse, Tag, TagUse,
    };
    pub use crate::observe::{
        DryRun, Fit, Measure, Measured, Picture, Sampler, Snapshot, Suggestion, Topic,
    };
    pub use crate::shortage::{Holder, OutOfMemory, ReclaimStep, ReclaimStepUse};
    pub use crate::waits::{MakerWaits, Waited, Waits};
}

/// Memory of other nodes, or any other place that keeps bytes under keys, as tiers of evicted
/// buffers: see [`Options::stores`].
pub mod stores {
    pub use crate::error::StoreFailure;
    #[cfg(not(target_arch = "wasm32"))]
    pub use crate::gpu::DeviceStore;
    #[cfg(feature = "redis")]
    pub use crate::transfer::RedisStore;
    pub use crate::transfer::{Key, MOST_VALUE_BYTES, Store, StoreTier, StoreUse};
}

/// Shares of a device's memory, with guarantees and ceilings: see [`Gpu::share`].
pub mod shares {
    pub use crate::engine::{Watermark, WatermarkGuard};
    pub use crate::gpu::Share;
    pub use crate::memory::{Amount, ShareOptions};
    pub use crate::shortage::ShareUse;
}

/// Buffers in the app's own passes: see [`Gpu::with_bound`]. And [`Pin`](interop::Pin), which keeps
/// a buffer at its place.
pub mod interop {
    pub use crate::buffer::Pin;
    pub use crate::gpu::{Access, Bound, BoundRange, wanted_features};
}

/// Bugs that the engine looks for, buffers that are still alive, and the times of kernels.
pub mod diagnostics {
    pub use crate::engine::{Diagnostics, Finding, Findings, KernelTime, Leak};
    pub use crate::gpu::{GpuDiagnostics, GpuKernels};
}

/// Adapters, and their compilers of kernels.
pub mod adapter {
    pub use crate::driver::{AdapterKind, AdapterSummary, Dx12Compiler, ShaderCompiler};
    #[cfg(not(target_arch = "wasm32"))]
    pub use crate::gpu::adapters;
}

/// Details of an [`Error`]. Those of a store's calls are [`StoreFailure`](stores::StoreFailure).
pub mod failure {
    pub use crate::error::{
        KernelError, ModelFailure, SpillError, SpillFailure, StateFailure, StoreError,
    };
}

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
    pub use crate::driver::Speed;
    pub use crate::driver::sim::{
        Fault, FaultKind, FileFault, FileFaultKind, FileFaults, FileSite, Repeat, SimCounters,
        SimHandle, SimKernels, SimMode, SimOptions, Site,
    };
    pub use crate::kernel::CustomReferenceCall;
}
