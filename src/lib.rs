//! A portable compute memory manager over wgpu.

pub mod alloc;
pub mod units;

#[cfg(feature = "gpu")]
mod driver;
#[cfg(feature = "gpu")]
mod dtype;
#[cfg(feature = "gpu")]
mod engine;
#[cfg(feature = "gpu")]
mod error;
#[cfg(feature = "gpu")]
mod gpu;
#[cfg(feature = "gpu")]
mod memory;
#[cfg(feature = "gpu")]
mod observe;
#[cfg(feature = "gpu")]
mod ops;
#[cfg(feature = "gpu")]
mod tensor;
#[cfg(feature = "gpu")]
mod transfer;

#[cfg(feature = "gpu")]
pub use self::{
    driver::{AdapterKind, AdapterSummary, Caps},
    dtype::{DType, Element},
    error::{Error, KernelError, OutOfMemory, Result},
    gpu::{Access, Bound, BoundRange, Gpu, Options, adapters},
    memory::{Holder, Residency, SlabUse, Tag, TenantId},
    observe::MemoryStats,
    ops::{Kernel, KernelCall, Scalar},
    tensor::Tensor,
};
/// The wgpu that [`Gpu::adopt`] and [`Gpu::with_bound`] speak of.
#[cfg(feature = "gpu")]
pub use wgpu;

/// A simulated device: strict about every rule, late on purpose, and failing on command. For
/// tests of programs that must survive a device that refuses, fails or goes away.
///
/// ```
/// use lapidary::Gpu;
/// use lapidary::sim::{Fault, FaultKind, SimOptions, Site};
///
/// let (gpu, sim) = Gpu::simulated(SimOptions::default())?;
/// sim.arm(Fault::once(Site::Submit, 1, FaultKind::Lost));
/// let x = gpu.tensor(&[1.0f32, 2.0], &[2])?;
/// assert!(x.to_vec::<f32>().is_err());
/// assert_eq!(sim.counters().faults, 1);
/// assert_eq!(sim.complaints(), [""; 0]);
/// # Ok::<(), lapidary::Error>(())
/// ```
#[cfg(all(feature = "gpu", any(test, feature = "sim")))]
pub mod sim {
    pub use crate::driver::sim::{
        Fault, FaultKind, Repeat, SimCounters, SimHandle, SimMode, SimOptions, Site,
    };
    pub use crate::ops::custom::HostCall;
}
