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
mod on_or_off;
mod recovery;
mod shares;
#[cfg(test)]
mod tests;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

#[cfg(not(target_arch = "wasm32"))]
use crate::driver::AdapterSummary;
use crate::driver::wgpu::{OpenRequest, WgpuDriver};
use crate::driver::{Caps, Device, Driver, Dx12Compiler, NOT_SHARED};
use crate::engine::queue::fusion::Fuse;
use crate::engine::{Diagnostics, Engine, Handle, Launch, Setup, block_on};
use crate::error::{Error, Result};
use crate::memory::{Budget, Scope};
use crate::transfer::{OpenStore, SpillOptions, StoreTier};

#[cfg(not(target_arch = "wasm32"))]
pub use device_store::DeviceStore;
pub use diagnose::GpuDiagnostics;
use diagnose::Handles;
pub use interop::{Access, Bound, BoundRange, wanted_features};
pub use kernels::GpuKernels;
pub use memory_limits::Compacted;

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

/// How to open a device. `Options::default()` takes the best adapter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// The adapter: an index of [`adapters`], a part of a name (`"nvidia"`), a backend (`"vulkan"`,
    /// `"dx12"`, `"metal"`), or a kind (`"cpu"`, `"virtual"`, `"integrated"`,
    /// `"discrete"`). `None`: the environment variable `LAPIDARY_ADAPTER`, else the fastest.
    pub adapter: Option<String>,
    /// Prefer the GPU that saves power to the fastest one.
    pub low_power: bool,
    /// The compiler of kernels on DX12. `None`: the environment variable `WGPU_DX12_COMPILER`
    /// (`fxc`, `dxc`, `staticdxc` or `auto`), else [`Dx12Compiler::Auto`]. It has no effect on an
    /// adopted device: the app chose the compiler when it made wgpu's instance. The guide "embed in
    /// your app" says which files to ship.
    ///
    /// If the chosen compiler's DLL is missing or too old, opening fails with an [`Error::Option`]
    /// that quotes wgpu.
    pub dx12_compiler: Option<Dx12Compiler>,
    /// Memory limits. `None`: the environment variable `LAPIDARY_BUDGET` (`512MiB`, or
    /// `device=512MiB,host=2GiB`), else the operating system's budget for this process, where the
    /// system reports one.
    pub budget: Option<Budget>,
    /// Tiers between the host's memory and the disk, such as the memory of another node. The engine
    /// uses the first one first. There are at most 4 [stores](crate::stores). Buffers are evicted
    /// to them when neither the device nor the host's memory has room. A browser has none.
    pub stores: Vec<StoreTier>,
    /// The folder of the spill file. Buffers are evicted to it when neither the device, the host's
    /// memory nor a store has room. `None`: the environment variable `LAPIDARY_SPILL_FOLDER`, else
    /// the system's folder for temporary files. Some systems keep that folder in memory, and then
    /// spilling saves nothing.
    ///
    /// The first eviction to disk creates the folder, if necessary, and the file. No other process
    /// can open the file, and it is gone when the process ends, however it ends. A folder that
    /// cannot be used is an [`Error::Spill`] for the buffer to be evicted. The next eviction tries
    /// the folder again.
    pub spill_folder: Option<PathBuf>,
    /// Compress buffers that are evicted to disk, where that makes them smaller. It pays on disks
    /// that are slower than one CPU core. Needs the feature `lz4`.
    pub spill_compress: bool,
    /// The folder for a file that makes the next start faster: compiled pipelines, where the driver
    /// exports them (Vulkan's drivers do). `None`: the environment variable
    /// `LAPIDARY_CACHE_FOLDER`, else nothing is kept. The folder is created if necessary. A broken
    /// file, or one of another device, is ignored. A file that cannot be written is skipped. Both
    /// give warnings to the crate `log`. Anyone who can write to the folder can crash the driver:
    /// use a folder of the user's own, such as the app's cache folder.
    pub cache_folder: Option<PathBuf>,
    /// Never move buffers while they are on the device: neither to keep the high-water mark low,
    /// nor by [`GpuMemory::compact`]. Nor move those that were evicted to slabs in the host's
    /// memory. This reserves more memory: on recorded programs 1.06 of peak
    /// live, with moving 1.02. A nearly full budget leads to evictions instead. For apps that want
    /// no copies but their own, and to find out whether moving causes a problem.
    pub never_move: bool,
    /// Keep buffers that are evicted to the host's memory where the device can address them: a heap
    /// of slabs there. Then evictions and restores are copies in the queue, and nobody waits for
    /// them. But the bytes in that heap are lost with the device. With `Some(false)` they outlive
    /// it, and each eviction waits until its bytes have arrived.
    ///
    /// `None`: the environment variable `LAPIDARY_HOST_HEAP` (`on` or `off`), else on where the
    /// device has memory of its own and wgpu's feature `MAPPABLE_PRIMARY_BUFFERS`.
    pub host_heap: Option<bool>,
    /// Fuse elementwise operations of the crate `lapidary`: `relu(a * b + c)` becomes one kernel.
    /// Intermediate values without other holders are never written to memory. `None`: the
    /// environment variable `LAPIDARY_FUSE` (`on` or `off`), else on. The results are the same to
    /// the bit.
    pub fuse: Option<bool>,
    /// The bugs that the engine looks for while the program runs. `None`: the environment variable
    /// `LAPIDARY_DIAGNOSTICS` (`all`, or names of [`Diagnostics`] with commas between them), else
    /// none.
    pub diagnostics: Option<Diagnostics>,
}

impl Options {
    /// What an engine needs of the options, with the environment's defaults.
    fn chosen(&self) -> Result<Chosen> {
        let budget = match self.budget {
            Some(budget) => budget,
            None => budget_of_environment()?,
        };
        budget.check()?;
        let spill = SpillOptions {
            folder: folder(&self.spill_folder, "LAPIDARY_SPILL_FOLDER"),
            compress: self.spill_compress,
            ..SpillOptions::default()
        };
        StoreTier::check_all(&self.stores)?;
        let setup = Setup {
            spill,
            stores: self.stores.iter().cloned().map(OpenStore::new).collect(),
            never_move: self.never_move,
            is_dry: false,
            diagnostics: self.diagnoses()?,
        };
        Ok(Chosen {
            budget,
            setup,
            fuses: self.fuses()?,
            cache_folder: folder(&self.cache_folder, "LAPIDARY_CACHE_FOLDER"),
        })
    }

    fn request(&self) -> Result<OpenRequest> {
        Ok(OpenRequest {
            adapter: self.adapter.clone(),
            power: match self.low_power {
                true => wgpu::PowerPreference::LowPower,
                false => wgpu::PowerPreference::HighPerformance,
            },
            backends: None,
            dx12_compiler: self.dx12_compiler.clone(),
            host_heap: self.has_host_heap()?,
        })
    }
}

/// The folder that the app says, else the environment.
fn folder(said: &Option<PathBuf>, variable: &str) -> Option<PathBuf> {
    let named = || std::env::var_os(variable).filter(|name| !name.is_empty());
    said.clone().or_else(|| named().map(PathBuf::from))
}

/// The options of an engine.
struct Chosen {
    budget: Budget,
    setup: Setup,
    fuses: bool,
    cache_folder: Option<PathBuf>,
}

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
    ///
    /// # Errors
    /// As [`open`](Gpu::open).
    pub async fn open_async(options: Options) -> Result<Gpu> {
        Self::open_with_layer(options, &NONE).await
    }

    /// As [`open_async`](Gpu::open_async), with a layer above.
    #[doc(hidden)]
    pub async fn open_with_layer(options: Options, layer: &Layer) -> Result<Gpu> {
        let chosen = options.chosen()?;
        let driver = WgpuDriver::open(&options.request()?).await?;
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
        crate::driver::wgpu::all_indices(&options.request()?)
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
        let host_heap = options.has_host_heap()?;
        let driver = WgpuDriver::adopt(Some(adapter), device, queue, host_heap)?;
        let driver = driver.with_cache(chosen.cache_folder.clone());
        Self::begin(Arc::new(driver), chosen, layer)
    }

    /// A simulated device, for tests: see [`sim`](crate::sim).
    ///
    /// # Errors
    /// [`Error::Option`] when the options contradict each other.
    #[cfg(any(test, feature = "sim"))]
    pub fn simulated(options: crate::sim::SimOptions) -> Result<(Gpu, crate::sim::SimHandle)> {
        Self::simulated_with(options, Options::default())
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
        device.host_heap = options.has_host_heap()?.unwrap_or(device.host_heap);
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
    ///
    /// # Errors
    /// As [`flush`](Gpu::flush).
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
    ///
    /// # Errors
    /// As [`flush`](Gpu::flush).
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
        self.poll_jobs();
        self.engine.here().poll()
    }

    /// Writes compiled pipelines to [`Options::cache_folder`] now. Dropping the last
    /// handle does so too. This call is for apps that are killed, not ended, as on phones.
    pub fn keep_caches(&self) {
        self.engine.own().driver().keep_pipelines();
    }

    /// The app reports that the device is lost, usually from its own callback. From now on every
    /// call returns [`Error::DeviceLost`].
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

/// The budget in `LAPIDARY_BUDGET`.
fn budget_of_environment() -> Result<Budget> {
    use std::env::VarError;
    match std::env::var("LAPIDARY_BUDGET") {
        Ok(text) => text
            .parse()
            .map_err(|error: Error| Error::option("LAPIDARY_BUDGET", error.to_string())),
        Err(VarError::NotPresent) => Ok(Budget::default()),
        Err(VarError::NotUnicode(_)) => Err(Error::option(
            "LAPIDARY_BUDGET",
            "the value is not valid UTF-8",
        )),
    }
}

/// The compute adapters of this machine, in the order of their index. A browser shows only the
/// adapter that it picks, so this function does not exist there.
#[cfg(not(target_arch = "wasm32"))]
pub fn adapters() -> Vec<AdapterSummary> {
    crate::driver::wgpu::list()
}
