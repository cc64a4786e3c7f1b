//! The handle [`Gpu`]: wraps the core's, and makes tensors.
//!
//! A [`Gpu`] is cheap to clone. Its tensors keep alive what they need of it, so the handle may be
//! dropped before them.

mod create;
mod dry_run;
mod fusion;
mod interop;
#[cfg(feature = "ndarray")]
mod ndarray;
mod shares;
#[cfg(test)]
mod tests;
mod to;
mod upload_with;

use std::fmt;
use std::ops::Deref;

use lapidary_core::internal::{Layer, block_on};
use lapidary_core::{Options, Result, wgpu};

use crate::{fuse, ops};

pub use fusion::FusedKernel;
pub use upload_with::Upload;

/// What this crate adds to the core's engine: operations and their fusion.
const LAYER: Layer = Layer {
    fuse: Some(fuse::fuse),
    operation: ops::name_of,
};

/// A device, its memory, and the queue of work for it.
///
/// It has all methods of the core's handle, [`lapidary_core::Gpu`]: budgets, statistics, snapshots,
/// diagnostics, buffers. The methods here make tensors. [`files`](Gpu::files) saves and loads them,
/// and [`jobs`](Gpu::jobs) admits work when its memory is free.
///
/// ```no_run
/// use lapidary::{Gpu, Options};
///
/// let gpu = Gpu::open(Options::default())?;
/// let a = gpu.tensor(&[1.0_f32, 2.0, 3.0], &[3])?;
/// let b = (&a + &a)?;
/// assert_eq!(b.to_vec::<f32>()?, [2.0, 4.0, 6.0]);
/// println!("{}", gpu.memory().stats());
/// # Ok::<(), lapidary::Error>(())
/// ```
#[derive(Clone)]
pub struct Gpu(lapidary_core::Gpu);

/// Gives access to all methods of the core's handle.
impl Deref for Gpu {
    type Target = lapidary_core::Gpu;

    fn deref(&self) -> &lapidary_core::Gpu {
        &self.0
    }
}

impl Gpu {
    /// Opens a device.
    ///
    /// # Errors
    /// As [`lapidary_core::Gpu::open`].
    pub fn open(options: Options) -> Result<Gpu> {
        block_on("Gpu::open", Self::open_async(options))
    }

    /// As [`open`](Gpu::open), as a future: the only form in a browser.
    ///
    /// Natively this future blocks the thread that polls it while the device works, because the
    /// native APIs of GPUs wake no task. So do all asynchronous forms. It is ready at its first
    /// poll, unless another thread is about to run the queue. An executor whose threads must not
    /// block should run it where blocking is allowed (`spawn_blocking`). In a browser it waits
    /// without blocking.
    pub async fn open_async(options: Options) -> Result<Gpu> {
        let core = lapidary_core::Gpu::open_with_layer(options, &LAYER).await?;
        Ok(Gpu(core))
    }

    /// Opens a device on each adapter of this machine: see [`lapidary_core::Gpu::open_all`]. With
    /// [`devices`](crate::devices) they compute together.
    ///
    /// # Errors
    /// As [`lapidary_core::Gpu::open_all`].
    #[cfg(not(target_arch = "wasm32"))]
    pub fn open_all(options: Options) -> Result<Vec<Gpu>> {
        let all = lapidary_core::Gpu::open_all_with_layer(options, &LAYER)?;
        Ok(all.into_iter().map(Gpu).collect())
    }

    /// Computes on a device that the app has opened, beside the app's own work: see
    /// [`lapidary_core::Gpu::adopt`].
    ///
    /// # Errors
    /// As [`lapidary_core::Gpu::adopt`].
    pub fn adopt(
        adapter: &wgpu::Adapter,
        device: &wgpu::Device,
        queue: &wgpu::Queue,
    ) -> Result<Gpu> {
        Self::adopt_with(adapter, device, queue, Options::default())
    }

    /// As [`adopt`](Gpu::adopt), with [`Options`]. The option for the adapter has no effect.
    ///
    /// # Errors
    /// As [`lapidary_core::Gpu::adopt_with`].
    pub fn adopt_with(
        adapter: &wgpu::Adapter,
        device: &wgpu::Device,
        queue: &wgpu::Queue,
        options: Options,
    ) -> Result<Gpu> {
        lapidary_core::Gpu::adopt_with_layer(adapter, device, queue, options, &LAYER).map(Gpu)
    }

    /// A simulated device, for tests: see [`sim`](crate::sim). The environment sets the options for
    /// memory: [`Options::from_env`].
    ///
    /// # Errors
    /// [`Error::Option`](crate::Error::Option) when the options contradict each other.
    #[cfg(any(test, feature = "sim"))]
    pub fn simulated(options: crate::sim::SimOptions) -> Result<(Gpu, crate::sim::SimHandle)> {
        Self::simulated_with(options, Options::from_env()?)
    }

    /// As [`simulated`](Gpu::simulated), with the [`Options`] for memory.
    ///
    /// # Errors
    /// [`Error::Option`](crate::Error::Option) when the options contradict each other.
    #[cfg(any(test, feature = "sim"))]
    pub fn simulated_with(
        device: crate::sim::SimOptions,
        options: Options,
    ) -> Result<(Gpu, crate::sim::SimHandle)> {
        let (core, handle) = lapidary_core::Gpu::simulated_with_layer(device, options, &LAYER)?;
        Ok((Gpu(core), handle))
    }
}

impl Gpu {
    /// The handle over one of the core.
    pub(crate) fn over(core: lapidary_core::Gpu) -> Gpu {
        Gpu(core)
    }
}

impl fmt::Debug for Gpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
