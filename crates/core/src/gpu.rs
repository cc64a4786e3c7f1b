//! The handle: opens or adopts a device, and offers what can be asked of it.
//!
//! A [`Gpu`] is cheap to clone. Buffers made by it keep what they need of it alive, so it may be
//! dropped before them.

mod diagnose;
#[cfg(any(test, feature = "sim"))]
mod dummy_operator;
mod memory_limits;
mod observe;
mod recovery;
mod share;
#[cfg(test)]
mod tests;
mod timing;
mod tuning;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

#[cfg(not(target_arch = "wasm32"))]
use crate::driver::AdapterSummary;
use crate::driver::wgpu::{OpenRequest, WgpuDriver};
use crate::driver::{Caps, Driver, Dx12Compiler};
use crate::engine::fusion::Fuse;
use crate::engine::{Diagnostics, Engine, Launch, Setup, block_on};
use crate::error::{Error, Result};
use crate::memory::Budget;
use crate::transfer::SpillOptions;

use diagnose::Handles;
pub use memory_limits::Compacted;
pub use share::{Access, Bound, BoundRange};
pub use tuning::{Tune, Tuned};

/// What a crate above this one adds to the engine: the one that has operations, and fuses them.
#[derive(Clone, Copy, Debug)]
pub struct Layer {
    /// Makes the pass that fuses commands, for a device whose options ask for it.
    pub fuse: Option<fn(&Engine) -> Fuse>,
    /// What a launch computes, as whoever called for it would say.
    pub operation: fn(&Launch) -> String,
}

/// No layer above: kernels go by their own names.
const NONE: Layer = Layer {
    fuse: None,
    operation: |launch| launch.program.name().to_owned(),
};

/// How to open a device. `Options::default()` is the best adapter there is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Which adapter: an index of [`adapters`], a part of a name (`"nvidia"`), a backend
    /// (`"vulkan"`, `"dx12"`, `"metal"`), or a kind (`"cpu"`, `"integrated"`, `"discrete"`).
    /// `None`: what the environment variable `LAPIDARY_ADAPTER` says, else the fastest.
    pub adapter: Option<String>,
    /// Rather the GPU that saves power than the fastest one.
    pub low_power: bool,
    /// What compiles kernels on DX12. `None`: what the environment variable `WGPU_DX12_COMPILER`
    /// says (`fxc`, `dxc`, `staticdxc` or `auto`), else [`Dx12Compiler::Auto`]. For an adopted
    /// device the app chose it when it made wgpu's instance, and nothing is chosen here. The guide
    /// "embed in your app" says what to ship.
    ///
    /// A DLL that is missing or too old is an [`Error::Option`] with wgpu's own words, if it was
    /// named here or in the environment.
    pub dx12_compiler: Option<Dx12Compiler>,
    /// How much memory there may be. `None`: what the environment variable `LAPIDARY_BUDGET` says
    /// (`512MiB`, or `device=512MiB,host=2GiB`), else what the operating system leaves to this
    /// process, where it says so.
    pub budget: Option<Budget>,
    /// The folder for the file that tensors are evicted to when neither the device nor the host's
    /// share has room. `None`: what the environment variable `LAPIDARY_SPILL_FOLDER` says, else the
    /// system's folder for temporary files (which on some systems is kept in memory, and then saves
    /// none).
    ///
    /// Nothing is touched before the first tensor is evicted. The folder is then made if it is not
    /// there, and in it a file that nobody else can open and that is gone when the process ends,
    /// however it ends. A folder that cannot be used is an [`Error::Spill`] for the tensor that
    /// should have left, and is tried again for the next one.
    pub spill_folder: Option<PathBuf>,
    /// Compress what is evicted to disk, where it becomes smaller by that: for disks that are
    /// slower than a core. Needs the feature `lz4`.
    pub spill_compress: bool,
    /// The folder for what makes the next start faster: compiled pipelines, on a driver that hands
    /// them out (Vulkan's do), and what trials found ([`Options::tune`]). `None`: what the
    /// environment variable `LAPIDARY_CACHE_FOLDER` says, else nothing is kept. The folder is made
    /// if it is not there; a file in it that is broken, or another device's, is not used, and one
    /// that cannot be written is done without: both are warnings to the crate `log`. Whoever can
    /// write to that folder can make the driver crash: it should be the user's own, such as the
    /// app's folder for caches.
    pub cache_folder: Option<PathBuf>,
    /// Live tensors stay where they are for as long as they are on the device: nothing is moved to
    /// keep the high-water mark low, nor by [`Gpu::compact`]. More memory is held for it (on
    /// recorded programs 1.06 times what is live at the peak, where moving needs 1.02), and a
    /// budget that is nearly full is met by evicting tensors. For apps that want no copies but
    /// their own, and to find out whether a trouble comes from moving.
    pub never_move: bool,
    /// Fuse elementwise operations of the crate `lapidary`: `relu(a * b + c)` becomes one kernel,
    /// and what nobody holds of it is never written to memory. `None`: what the environment
    /// variable `LAPIDARY_FUSE` says (`on` or `off`), else yes. The results are the same to the
    /// bit.
    pub fuse: Option<bool>,
    /// Whether the fastest variant of a kernel is found out by trying. `None`: what the environment
    /// variable `LAPIDARY_TUNE` says (`off` or `first-use`), else no.
    pub tune: Option<Tune>,
    /// Which bugs are looked for while the program runs. `None`: what the environment variable
    /// `LAPIDARY_DIAGNOSTICS` says (`all`, or names of [`Diagnostics`] with commas between them),
    /// else none.
    pub diagnostics: Option<Diagnostics>,
}

/// What it says when the options do not.
const FUSE_VARIABLE: &str = "LAPIDARY_FUSE";

impl Options {
    /// What they, and the environment, say of memory.
    fn memory(&self, layer: &Layer) -> Result<(Budget, Setup)> {
        let budget = match self.budget {
            Some(budget) => budget,
            None => budget_of_environment()?,
        };
        budget.check()?;
        let named = || std::env::var_os("LAPIDARY_SPILL_FOLDER").filter(|name| !name.is_empty());
        let spill = SpillOptions {
            folder: (self.spill_folder.clone()).or_else(|| named().map(PathBuf::from)),
            compress: self.spill_compress,
            ..SpillOptions::default()
        };
        let setup = Setup {
            spill,
            never_move: self.never_move,
            tuning: None,
            diagnose: self.diagnoses(layer)?,
        };
        Ok((budget, setup))
    }

    fn fuses(&self) -> Result<bool> {
        let said = match self.fuse {
            Some(fuse) => return Ok(fuse),
            None => std::env::var(FUSE_VARIABLE),
        };
        match said.as_deref() {
            Ok("on" | "1") | Err(std::env::VarError::NotPresent) => Ok(true),
            Ok("off" | "0") => Ok(false),
            _ => Err(Error::Option {
                option: FUSE_VARIABLE,
                reason: "it is neither `on` nor `off`".into(),
            }),
        }
    }

    fn caches(&self) -> Option<PathBuf> {
        let named = || std::env::var_os("LAPIDARY_CACHE_FOLDER").filter(|name| !name.is_empty());
        (self.cache_folder.clone()).or_else(|| named().map(PathBuf::from))
    }
}

/// A device, its memory, and the queue of work for it.
///
/// ```no_run
/// use lapidary_core::{Gpu, Options};
///
/// let gpu = Gpu::open(Options::default())?;
/// let numbers = gpu.buffer_from(&[1.0_f32, 2.0, 3.0])?;
/// assert_eq!(numbers.to_vec::<f32>()?, [1.0, 2.0, 3.0]);
/// println!("{}", gpu.memory());
/// # Ok::<(), lapidary_core::Error>(())
/// ```
#[derive(Clone)]
pub struct Gpu {
    engine: Arc<Engine>,
    _handles: Arc<Handles>,
}

impl Gpu {
    /// Opens a device.
    ///
    /// # Errors
    /// [`Error::NoAdapter`] when there is none, or none like the one asked for; it says what to
    /// install. [`Error::Option`] for a budget that contradicts itself, for compression without the
    /// feature, for a compiler for DX12 that cannot be used, and with a limit's name when the
    /// adapter's is too low for the engine, as [`adopt`](Gpu::adopt) says.
    pub fn open(options: Options) -> Result<Gpu> {
        block_on("Gpu::open", Self::open_async(options))
    }

    /// As [`open`](Gpu::open), as a future: the only form in a browser.
    ///
    /// Natively this future, like that of every asynchronous form, blocks the thread that polls it
    /// while the device works, and is ready at its first poll (unless another thread is about to
    /// run the queue): the native APIs of GPUs wake nobody. On an executor's thread that must not
    /// block, run it where blocking is allowed (`spawn_blocking`). In a browser it waits without
    /// blocking.
    ///
    /// # Errors
    /// As [`open`](Gpu::open).
    pub async fn open_async(options: Options) -> Result<Gpu> {
        Self::open_below(options, &NONE).await
    }

    /// As [`open_async`](Gpu::open_async), for the layer above.
    #[doc(hidden)]
    pub async fn open_below(options: Options, layer: &Layer) -> Result<Gpu> {
        let (budget, mut setup) = options.memory(layer)?;
        let cache_folder = options.caches();
        let (fuse, tune) = (options.fuses()?, options.tunes()?);
        let request = OpenRequest {
            adapter: options.adapter,
            power: match options.low_power {
                true => wgpu::PowerPreference::LowPower,
                false => wgpu::PowerPreference::HighPerformance,
            },
            backends: None,
            dx12_compiler: options.dx12_compiler,
        };
        let driver = WgpuDriver::open(&request).await?;
        setup.tuning = tune.over(driver.caps(), cache_folder.as_deref());
        let driver = driver.with_cache(cache_folder);
        let gpu = Self::over(Arc::new(driver), setup, fuse, layer)?;
        gpu.set_budget_async(budget).await?;
        Ok(gpu)
    }

    /// Computes on a device that the app has opened, beside the app's own work.
    ///
    /// The app's callbacks stay the app's: an error of ours never reaches its handler for
    /// uncaptured errors, and the callback for a lost device is not taken. Call
    /// [`notify_lost`](Gpu::notify_lost) from there; without it the loss is noticed at the next
    /// call that touches the device.
    ///
    /// Ask for `adapter.limits()` when the device is opened, and for
    /// `wgpu::Features::IMMEDIATES | wgpu::Features::SUBGROUP` where the adapter has them; on one
    /// that shares the host's memory for `MAPPABLE_PRIMARY_BUFFERS` too, which makes transfers
    /// several times faster; on a software adapter for `SHADER_INT64`, which makes kernels faster;
    /// on Vulkan, for products of f16 by cooperative matrices, for
    /// `EXPERIMENTAL_COOPERATIVE_MATRIX` and `SHADER_F16`, if it has both (wgpu wants
    /// `ExperimentalFeatures::enabled()` for the first, which is `unsafe`: a promise of the app's
    /// own); with an [`Options::cache_folder`] for `PIPELINE_CACHE`, and to [time
    /// kernels](Gpu::time_kernels) for `TIMESTAMP_QUERY`. What the device was not opened with
    /// cannot be used.
    ///
    /// # Errors
    /// [`Error::DeviceLost`], or [`Error::Option`] with a limit's name and the value needed when
    /// that limit is too low for the engine: it needs 8 storage buffers of 16 KiB, buffers of 256
    /// KiB, workgroups of 256 invocations with 8 KiB, 65,535 workgroups along an axis, and offsets
    /// aligned to at most 256 bytes; without immediates also a dynamic uniform buffer of 128 bytes.
    /// `wgpu::Limits::default()` has all that, `downlevel_defaults()` has too few storage buffers.
    pub fn adopt(
        adapter: &wgpu::Adapter,
        device: &wgpu::Device,
        queue: &wgpu::Queue,
    ) -> Result<Gpu> {
        Self::adopt_with(adapter, device, queue, Options::default())
    }

    /// As [`adopt`](Gpu::adopt), with what [`Options`] say of memory; the adapter has been chosen.
    ///
    /// # Errors
    /// As [`adopt`](Gpu::adopt), and [`Error::Option`] as [`open`](Gpu::open).
    pub fn adopt_with(
        adapter: &wgpu::Adapter,
        device: &wgpu::Device,
        queue: &wgpu::Queue,
        options: Options,
    ) -> Result<Gpu> {
        Self::adopt_below(adapter, device, queue, options, &NONE)
    }

    /// As [`adopt_with`](Gpu::adopt_with), for the layer above.
    #[doc(hidden)]
    pub fn adopt_below(
        adapter: &wgpu::Adapter,
        device: &wgpu::Device,
        queue: &wgpu::Queue,
        options: Options,
        layer: &Layer,
    ) -> Result<Gpu> {
        let (budget, mut setup) = options.memory(layer)?;
        let cache_folder = options.caches();
        let (fuse, tune) = (options.fuses()?, options.tunes()?);
        let driver = WgpuDriver::adopt(Some(adapter), device, queue)?;
        setup.tuning = tune.over(driver.caps(), cache_folder.as_deref());
        let driver = driver.with_cache(cache_folder);
        let gpu = Self::over(Arc::new(driver), setup, fuse, layer)?;
        gpu.set_budget(budget)?;
        Ok(gpu)
    }

    /// A device that is not there, for tests: see [`sim`](crate::sim).
    ///
    /// # Errors
    /// [`Error::Option`] when the options contradict each other.
    #[cfg(any(test, feature = "sim"))]
    pub fn simulated(options: crate::sim::SimOptions) -> Result<(Gpu, crate::sim::SimHandle)> {
        Self::simulated_with(options, Options::default())
    }

    /// As [`simulated`](Gpu::simulated), with what [`Options`] say of memory.
    ///
    /// # Errors
    /// [`Error::Option`] when the options contradict each other.
    #[cfg(any(test, feature = "sim"))]
    pub fn simulated_with(
        device: crate::sim::SimOptions,
        options: Options,
    ) -> Result<(Gpu, crate::sim::SimHandle)> {
        Self::simulated_below(device, options, &NONE)
    }

    /// As [`simulated_with`](Gpu::simulated_with), for the layer above.
    #[doc(hidden)]
    #[cfg(any(test, feature = "sim"))]
    pub fn simulated_below(
        device: crate::sim::SimOptions,
        options: Options,
        layer: &Layer,
    ) -> Result<(Gpu, crate::sim::SimHandle)> {
        let (budget, mut setup) = options.memory(layer)?;
        let is_said = || std::env::var_os("LAPIDARY_SIM_COMPACT").is_some();
        let compact_always = device.compact_always.unwrap_or_else(is_said);
        let (fuse, tune) = (options.fuses()?, options.tunes()?);
        let (driver, handle) = crate::driver::sim::SimDriver::new(device)?;
        setup.tuning = tune.over(driver.caps(), options.caches().as_deref());
        setup.spill.faults = handle.files().clone();
        let gpu = Self::over(Arc::new(driver), setup, fuse, layer)?;
        if compact_always {
            gpu.engine.compact_always();
        }
        gpu.set_budget(budget)?;
        Ok((gpu, handle))
    }

    fn over(driver: Arc<dyn Driver>, setup: Setup, fuses: bool, layer: &Layer) -> Result<Gpu> {
        let engine = Engine::new(driver, setup)?;
        // What is computed is to be named, operation by operation.
        let is_watched = engine.diagnostics().is_some_and(|wanted| wanted.non_finite);
        if let Some(fuse) = layer.fuse.filter(|_| fuses && !is_watched) {
            engine.fuse_with(fuse(&engine));
        }
        let handles = Arc::new(Handles(engine.clone()));
        Ok(Gpu {
            engine,
            _handles: handles,
        })
    }

    #[doc(hidden)]
    pub fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    /// What the device can do.
    pub fn caps(&self) -> &Caps {
        self.engine.caps()
    }

    /// Runs all that was asked for so far: returns once it is submitted, not once it is done.
    /// There is no need to call it before a read.
    ///
    /// # Errors
    /// [`Error::DeviceLost`]. Work that finds no room stays queued; its error is for whoever
    /// forces or reads its results.
    pub fn flush(&self) -> Result<()> {
        block_on("Gpu::flush", self.engine.flush())
    }

    /// As [`flush`](Gpu::flush), as a future. Natively it blocks the thread that polls it, as
    /// [`open_async`](Gpu::open_async) says.
    ///
    /// # Errors
    /// As [`flush`](Gpu::flush).
    pub async fn flush_async(&self) -> Result<()> {
        self.engine.flush().await
    }

    /// Runs all that was asked for so far and waits until the device has done it.
    ///
    /// # Errors
    /// As [`flush`](Gpu::flush).
    pub fn finish(&self) -> Result<()> {
        block_on("Gpu::finish", self.engine.finish())
    }

    /// As [`finish`](Gpu::finish), as a future. Natively it blocks the thread that polls it, as
    /// [`open_async`](Gpu::open_async) says.
    ///
    /// # Errors
    /// As [`flush`](Gpu::flush).
    pub async fn finish_async(&self) -> Result<()> {
        self.engine.finish().await
    }

    /// For apps with a frame loop, once a frame: lets finished work be noticed, the budget follow
    /// what the operating system leaves, and slabs and staging go that nobody has used for
    /// [a while](Gpu::release_idle_after). Waits only to evict what passes a budget that fell below
    /// what is held: whoever polls may do nothing else that would.
    ///
    /// # Errors
    /// [`Error::DeviceLost`].
    pub fn poll(&self) -> Result<()> {
        self.engine.poll()
    }

    /// Writes what makes the next start faster into [`Options::cache_folder`] now. The end of the
    /// last handle does so too; this is for apps that are killed rather than ended, as on phones.
    pub fn keep_caches(&self) {
        if let Some(driver) = self.engine.driver().as_wgpu() {
            driver.keep_pipelines();
        }
    }

    /// The device is gone, says the app, whose callback it was that heard of it. From now on
    /// every call is [`Error::DeviceLost`].
    pub fn notify_lost(&self, reason: &str) {
        self.engine.driver().declare_lost(reason);
    }

    /// Takes the device's one callback for its loss. Not needed for a device that we opened; for
    /// an adopted one, only if the app has no use for the callback.
    pub fn watch_lost(&self) {
        if let Some(driver) = self.engine.driver().as_wgpu() {
            driver.watch_lost();
        }
    }

    fn wgpu(&self, operation: &'static str) -> Result<&WgpuDriver> {
        self.engine.driver().as_wgpu().ok_or_else(|| Error::Buffer {
            operation,
            reason: "the device is simulated and has no wgpu buffers".into(),
        })
    }
}

impl fmt::Debug for Gpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Gpu").field(&self.caps().name).finish()
    }
}

/// What `LAPIDARY_BUDGET` says.
fn budget_of_environment() -> Result<Budget> {
    use std::env::VarError;
    match std::env::var("LAPIDARY_BUDGET") {
        Ok(text) => text.parse().map_err(|error: Error| Error::Option {
            option: "LAPIDARY_BUDGET",
            reason: error.to_string(),
        }),
        Err(VarError::NotPresent) => Ok(Budget::default()),
        Err(VarError::NotUnicode(_)) => Err(Error::Option {
            option: "LAPIDARY_BUDGET",
            reason: "it is no text".into(),
        }),
    }
}

/// The adapters of this machine that compute, in the order of their index. A browser shows only
/// the one that it picks, and there is no such function.
#[cfg(not(target_arch = "wasm32"))]
pub fn adapters() -> Vec<AdapterSummary> {
    crate::driver::wgpu::list()
}
