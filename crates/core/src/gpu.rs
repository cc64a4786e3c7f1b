//! The handle [`Gpu`]: opens or adopts a device, and gives access to all its functions.
//!
//! A [`Gpu`] is cheap to clone. Its buffers keep alive what they need of it, so the handle may be
//! dropped before them.

#[cfg(not(target_arch = "wasm32"))]
mod device_store;
mod diagnose;
mod dry_run;
#[cfg(any(test, feature = "sim"))]
mod dummy_operator;
mod interop;
mod kernels;
mod memory_limits;
mod observe;
mod options;
mod recovery;
mod shares;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;

#[cfg(not(target_arch = "wasm32"))]
use crate::driver::AdapterSummary;
use crate::driver::wgpu::WgpuDriver;
use crate::driver::{Caps, Device, Driver, NOT_SHARED};
use crate::engine::queue::fusion::Fuse;
use crate::engine::{Engine, Handle, Launch, Setup, block_on};
use crate::error::{Error, Result};
use crate::jobs::JobList;
use crate::memory::Scope;

#[cfg(not(target_arch = "wasm32"))]
pub use device_store::DeviceStore;
pub use diagnose::GpuDiagnostics;
use diagnose::Handles;
pub use interop::{Access, Bound, BoundRange, wanted_features};
pub use kernels::GpuKernels;
pub use memory_limits::Compacted;
use options::Chosen;
pub use options::Options;
pub use shares::Share;

/// What a crate above this one adds to the engine: operations and their fusion.
#[derive(Clone, Copy, Debug)]
pub struct Layer {
    /// Makes the pass that fuses commands, for a device whose options ask for it.
    pub fuse: Option<fn(&Engine) -> Fuse>,
    /// Describes what a launch computes, in the words of the operation's caller.
    pub operation: fn(&Launch) -> String,
}

/// No layer above: kernels are reported by their own names.
const NONE: Layer = Layer {
    fuse: None,
    operation: |launch| launch.program.name().to_owned(),
};

/// A device, its memory, and the queue of work for it.
///
/// ```no_run
/// use lapidary_core::{Gpu, Options};
///
/// let gpu = Gpu::open(Options::default())?;
/// let numbers = gpu.buffer_from(&[1.0_f32, 2.0, 3.0])?;
/// assert_eq!(numbers.to_vec::<f32>()?, [1.0, 2.0, 3.0]);
/// println!("{}", gpu.memory().stats());
/// # Ok::<(), lapidary_core::Error>(())
/// ```
#[derive(Clone)]
pub struct Gpu {
    engine: Handle<Engine>,
    _handles: Arc<Handles>,
}

impl Gpu {
    /// Opens a device.
    ///
    /// # Errors
    /// [`Error::NoAdapter`] when there is no matching adapter; the error says what to install.
    /// [`Error::Option`] for a contradictory budget, for compression without the feature, or for a
    /// DX12 compiler that cannot be used. [`Error::Option`] with a limit's name when the adapter's
    /// limit is too low for the engine, as [`adopt`](Gpu::adopt) describes.
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
        Self::open_with_layer(options, &NONE).await
    }

    /// As [`open_async`](Gpu::open_async), with a layer above.
    #[doc(hidden)]
    pub async fn open_with_layer(options: Options, layer: &Layer) -> Result<Gpu> {
        let chosen = options.chosen()?;
        let driver = WgpuDriver::open(&options.request()).await?;
        let driver = driver.with_cache(chosen.cache_folder.clone());
        Self::begin(Arc::new(driver), chosen, layer)
    }

    /// Opens a device on each adapter of this machine, in the order of their indices. A software
    /// adapter is among them only if there is no other. Where several graphics APIs show the same
    /// adapters, all are of the API that shows most.
    ///
    /// The options hold for each device, the budget too. [`Options::adapter`] limits the choice to
    /// the adapters that it fits: `"discrete"` leaves an integrated one out.
    ///
    /// ```no_run
    /// use lapidary_core::{Gpu, Options};
    ///
    /// for gpu in Gpu::open_all(Options::default())? {
    ///     println!("{}", gpu.caps().name);
    /// }
    /// # Ok::<(), lapidary_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`open`](Gpu::open). If one adapter does not open, [`Error::Device`] says which.
    #[cfg(not(target_arch = "wasm32"))]
    pub fn open_all(options: Options) -> Result<Vec<Gpu>> {
        Self::open_all_with_layer(options, &NONE)
    }

    /// The indices of the adapters that [`open_all`](Gpu::open_all) opens.
    ///
    /// # Errors
    /// As [`open`](Gpu::open).
    #[doc(hidden)]
    #[cfg(not(target_arch = "wasm32"))]
    pub fn indices_of_all(options: &Options) -> Result<Vec<usize>> {
        crate::driver::wgpu::all_indices(&options.request())
    }

    /// As [`open_all`](Gpu::open_all), with a layer above.
    #[doc(hidden)]
    #[cfg(not(target_arch = "wasm32"))]
    pub fn open_all_with_layer(options: Options, layer: &Layer) -> Result<Vec<Gpu>> {
        let indices = Self::indices_of_all(&options)?;
        let count = indices.len();
        let open = |(number, index): (usize, usize)| {
            let adapter = Some(index.to_string());
            let options = Options {
                adapter,
                ..options.clone()
            };
            let opened = block_on("Gpu::open_all", Self::open_with_layer(options, layer));
            opened.map_err(|cause| Error::Device {
                index: number,
                count,
                name: format!("adapter {index}"),
                cause: Arc::new(cause),
            })
        };
        indices.into_iter().enumerate().map(open).collect()
    }

    /// Computes on a device that the app has opened, beside the app's own work.
    ///
    /// The app's callbacks stay the app's. No error of lapidary reaches its handler for uncaptured
    /// errors. lapidary does not take the callback for a lost device. Call
    /// [`notify_lost`](Gpu::notify_lost) from that callback. Otherwise the engine notices the loss
    /// at the next call that touches the device.
    ///
    /// wgpu runs callbacks of the app inside calls of lapidary that look at the device, on the same
    /// thread. Those of `map_async` and `on_submitted_work_done` must not call lapidary, which
    /// would wait for itself: let them send a message, or set a flag.
    ///
    /// The app should open the device with `adapter.limits()`, and with these features where the
    /// adapter has them: [`wanted_features`](crate::interop::wanted_features), and those for
    /// cooperative matrices. The engine uses no others, and [`advice`](GpuMemory::advice) tells:
    ///
    /// - `wgpu::Features::IMMEDIATES | wgpu::Features::SUBGROUP`;
    /// - `MAPPABLE_PRIMARY_BUFFERS`: on a device that shares the host's memory, transfers become
    ///   several times faster; on others, nobody waits for evictions and restores;
    /// - `SHADER_INT64` on a software adapter: kernels become faster;
    /// - `EXPERIMENTAL_COOPERATIVE_MATRIX` with `SHADER_F16` on Vulkan, if it has both: for
    ///   products of f16 by cooperative matrices. For the first, wgpu wants
    ///   `ExperimentalFeatures::enabled()`, which is `unsafe`: a promise that the app makes;
    /// - `PIPELINE_CACHE` with a [`cache_folder`](Options), `TIMESTAMP_QUERY` to time kernels.
    ///
    /// # Errors
    /// [`Error::DeviceLost`], or [`Error::Option`] with a limit's name and the value needed when
    /// that limit is too low. The engine needs 8 storage buffers of 16 KiB, and buffers of 256 KiB.
    /// It needs workgroups of 256 invocations with 8 KiB, 65,535 workgroups along an axis, and
    /// offsets aligned to at most 256 bytes. Without immediates it also needs a dynamic uniform
    /// buffer of 128 bytes. `wgpu::Limits::default()` meets all this; `downlevel_defaults()` has
    /// too few storage buffers.
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
    /// As [`adopt`](Gpu::adopt), and [`Error::Option`] as [`open`](Gpu::open).
    pub fn adopt_with(
        adapter: &wgpu::Adapter,
        device: &wgpu::Device,
        queue: &wgpu::Queue,
        options: Options,
    ) -> Result<Gpu> {
        Self::adopt_with_layer(adapter, device, queue, options, &NONE)
    }

    /// As [`adopt_with`](Gpu::adopt_with), with a layer above.
    #[doc(hidden)]
    pub fn adopt_with_layer(
        adapter: &wgpu::Adapter,
        device: &wgpu::Device,
        queue: &wgpu::Queue,
        options: Options,
        layer: &Layer,
    ) -> Result<Gpu> {
        let chosen = options.chosen()?;
        let driver = WgpuDriver::adopt(Some(adapter), device, queue, options.host_heap)?;
        let driver = driver.with_cache(chosen.cache_folder.clone());
        Self::begin(Arc::new(driver), chosen, layer)
    }

    /// A simulated device, for tests: see [`sim`](crate::sim). The environment sets the options for
    /// memory: [`Options::from_env`].
    ///
    /// # Errors
    /// [`Error::Option`] when the options contradict each other.
    #[cfg(any(test, feature = "sim"))]
    pub fn simulated(options: crate::sim::SimOptions) -> Result<(Gpu, crate::sim::SimHandle)> {
        Self::simulated_with(options, Options::from_env()?)
    }

    /// As [`simulated`](Gpu::simulated), with the [`Options`] for memory.
    ///
    /// # Errors
    /// [`Error::Option`] when the options contradict each other.
    #[cfg(any(test, feature = "sim"))]
    pub fn simulated_with(
        device: crate::sim::SimOptions,
        options: Options,
    ) -> Result<(Gpu, crate::sim::SimHandle)> {
        Self::simulated_with_layer(device, options, &NONE)
    }

    /// As [`simulated_with`](Gpu::simulated_with), with a layer above.
    #[doc(hidden)]
    #[cfg(any(test, feature = "sim"))]
    pub fn simulated_with_layer(
        mut device: crate::sim::SimOptions,
        options: Options,
        layer: &Layer,
    ) -> Result<(Gpu, crate::sim::SimHandle)> {
        let mut chosen = options.chosen()?;
        device.host_heap = options.host_heap.unwrap_or(device.host_heap);
        let is_said = || std::env::var_os("LAPIDARY_SIM_COMPACT").is_some();
        let compact_always = device.compact_always.unwrap_or_else(is_said);
        let (driver, handle) = crate::driver::sim::SimDriver::new(device.checked()?)?;
        chosen.setup.spill.faults = handle.files().clone();
        let gpu = Self::begin(Arc::new(driver), chosen, layer)?;
        if compact_always {
            gpu.engine.here().compact_always();
        }
        Ok((gpu, handle))
    }

    fn begin(driver: Arc<dyn Driver>, chosen: Chosen, layer: &Layer) -> Result<Gpu> {
        let gpu = Self::over(driver, chosen.setup, chosen.fuses, layer)?;
        gpu.engine.here().begin_budget(chosen.budget)?;
        Ok(gpu)
    }

    fn over(driver: Arc<dyn Driver>, setup: Setup, fuses: bool, layer: &Layer) -> Result<Gpu> {
        let engine = Engine::new(driver, setup)?;
        // Diagnostics of NaN and infinity name single operations, so these must not be fused.
        let is_watched = engine.diagnostics().is_some_and(|wanted| wanted.non_finite);
        if let Some(fuse) = layer.fuse.filter(|_| fuses && !is_watched) {
            engine.fuse_with(fuse(&engine));
        }
        engine.name_launches(layer.operation);
        let engine = Handle::new(engine);
        let _handles = Handles::new(engine.clone());
        Ok(Gpu { _handles, engine })
    }

    #[doc(hidden)]
    pub fn engine(&self) -> &Handle<Engine> {
        &self.engine
    }

    /// The device's capabilities.
    pub fn caps(&self) -> &Caps {
        self.engine.caps()
    }

    /// Runs all recorded work. Returns when the work is submitted, not when it is done. A read
    /// needs no call of `flush`. On the handle of a [share](Gpu::share) it leaves the work of
    /// shares with a lower priority.
    ///
    /// # Errors
    /// [`Error::DeviceLost`]. Work that finds no room stays queued. Calls that force or read its
    /// results return its error.
    pub fn flush(&self) -> Result<()> {
        block_on("Gpu::flush", self.engine.here().flush())
    }

    /// As [`flush`](Gpu::flush), as a future. Natively it blocks the thread that polls it, as
    /// [`open_async`](Gpu::open_async) says.
    pub async fn flush_async(&self) -> Result<()> {
        self.engine.here().flush().await
    }

    /// Runs all recorded work and waits until the device has finished it.
    ///
    /// # Errors
    /// As [`flush`](Gpu::flush).
    pub fn finish(&self) -> Result<()> {
        block_on("Gpu::finish", self.engine.here().finish())
    }

    /// As [`finish`](Gpu::finish), as a future. Natively it blocks the thread that polls it, as
    /// [`open_async`](Gpu::open_async) says.
    pub async fn finish_async(&self) -> Result<()> {
        self.engine.here().finish().await
    }

    /// For apps with a frame loop: call it once a frame. It notices finished work, lets the budget
    /// follow the operating system's, and admits [jobs](Gpu::jobs) that fit now. It releases slabs
    /// and staging that were unused for [a while](GpuMemory::release_idle_after). It waits in one
    /// case only: to evict what exceeds a budget that fell below the memory in use. An app that
    /// only polls might make no other call that does so.
    ///
    /// # Errors
    /// [`Error::DeviceLost`].
    pub fn poll(&self) -> Result<()> {
        for (engine, board) in self._handles.boards() {
            JobList::over(self.of_share(engine), board).look_again();
        }
        self.engine.here().poll()
    }

    /// Writes compiled pipelines to [`Options::cache_folder`] now. Dropping the last
    /// handle does so too. This call is for apps that are killed, not ended, as on phones.
    pub fn keep_caches(&self) {
        self.engine.own().driver().keep_pipelines();
    }

    /// The app reports that the device is lost, usually from its own callback. From now on every
    /// call returns [`Error::DeviceLost`]. It means the device that the `Gpu` has now, so ignore
    /// the callback of one that [`readopt`](Gpu::readopt) has replaced.
    pub fn notify_lost(&self, reason: &str) {
        self.engine.own().driver().declare_lost(reason);
    }

    /// Takes the device's only callback for its loss. A device that lapidary opened does not need
    /// it. An adopted one needs it only if the app does not use the callback.
    pub fn watch_lost(&self) {
        self.engine.own().driver().watch_lost();
    }

    /// Puts `name` into the tags of buffers that this thread makes, until the scope is dropped. The
    /// tag also has the names of outer scopes: `step/forward: src/net.rs:17`. A scope belongs to
    /// the thread, so it covers every `Gpu`.
    ///
    /// ```
    /// # fn demo(gpu: &lapidary_core::Gpu) -> lapidary_core::Result<()> {
    /// let step = gpu.scope("step");
    /// let x = {
    ///     let _forward = gpu.scope("forward");
    ///     gpu.buffer(64 << 10)?
    /// };
    /// drop(step);
    /// assert_eq!(x.tag().scope(), Some("step/forward"));
    /// # Ok(()) }
    /// ```
    pub fn scope(&self, name: &str) -> Scope {
        Scope::enter(name)
    }

    /// The memory of the device: its budget, its statistics, its history.
    pub fn memory(&self) -> GpuMemory<'_> {
        GpuMemory {
            engine: &self.engine,
        }
    }

    /// The driver, if the app may know the device as one of wgpu.
    fn shared_driver(&self, operation: &'static str) -> Result<&Device> {
        let driver = self.engine.own().driver();
        if self.engine.here().is_dry() || !driver.shares_with_app() {
            return Err(Error::buffer(operation, NOT_SHARED));
        }
        Ok(driver)
    }
}

/// The memory of a device, as [`Gpu::memory`] gives it: budgets, statistics, measurements,
/// history and snapshots.
///
/// ```no_run
/// # fn main() -> lapidary_core::Result<()> {
/// # let gpu = lapidary_core::Gpu::open(Default::default())?;
/// use lapidary_core::Budget;
///
/// let memory = gpu.memory();
/// memory.set_budget(Budget::device(512 << 20))?;
/// println!("{}", memory.stats());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct GpuMemory<'gpu> {
    engine: &'gpu Handle<Engine>,
}

impl fmt::Debug for Gpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Gpu").field(&self.caps().name).finish()
    }
}

/// The compute adapters of this machine, in the order of their index. A browser shows only the
/// adapter that it picks, so this function does not exist there.
#[cfg(not(target_arch = "wasm32"))]
pub fn adapters() -> Vec<AdapterSummary> {
    crate::driver::wgpu::list()
}
