//! Statistics, history, snapshots and measurements of the memory.

#[cfg(doc)]
use super::Gpu;
use super::GpuMemory;
use crate::engine::{MemoryStats, block_on};
use crate::error::Result;
use crate::memory::History;
use crate::observe::{Measure, Sampler, Snapshot, Suggestion};

impl GpuMemory<'_> {
    /// Memory statistics; they print as a report.
    pub fn stats(self) -> MemoryStats {
        self.engine.here().report()
    }

    /// Passes all [numbers](MemoryStats::numbers) of [`stats`](GpuMemory::stats) to the app's
    /// recorder of the crate `metrics`. `lapidary_live_bytes` and similar names are gauges;
    /// `lapidary_submissions_total` and similar names are counters. All have the label `adapter`
    /// with the adapter's name. The bytes that a reclaim step freed have the step's name as the
    /// label `step`.
    /// `lapidary_watermarks_total` counts the calls of [`on_watermark`](GpuMemory::on_watermark)
    /// callbacks, by `share` and `percent`. Call it before an export or once a frame; nothing is
    /// recorded at other times.
    ///
    /// # Shares
    ///
    /// The label `share` is the path of a share. Shares that have one path at the same time are
    /// added up, their peaks too. `(jobs)` are all jobs of the device, and `app/(jobs)` those of
    /// the share `app`. A device has at most 256 labels: what comes later is added up as
    /// `(others)`. So a recorder keeps no series for each job or each user.
    ///
    /// When the last share of a label has ended, its gauges are 0, and its counters stay. The next
    /// share of the label counts on from there. `lapidary_share_ceiling_bytes` is 0 while a share
    /// of the label has no ceiling; if none ever had one, there is no such gauge.
    #[cfg(feature = "metrics")]
    pub fn record_metrics(self) {
        self.engine.own().record_metrics();
    }

    /// Resets the peaks of [`stats`](GpuMemory::stats) to the current values.
    pub fn reset_peaks(self) {
        self.engine.here().reset_peaks();
    }

    /// Starts to measure the memory use of a part of the program, which also becomes a
    /// [`scope`](Gpu::scope). Work recorded before runs first. Measurements may be nested. The
    /// inner one must end first; otherwise the names of both stay in the tags.
    ///
    /// The measurement includes what other threads do meanwhile, because all share one memory.
    ///
    /// ```
    /// # fn demo(gpu: &lapidary_core::Gpu) -> lapidary_core::Result<()> {
    /// let forward = gpu.memory().measure("forward")?;
    /// let y = gpu.buffer_zeroed(1 << 20)?;
    /// println!("{}", forward.end()?);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`flush`](Gpu::flush).
    pub fn measure(self, name: &str) -> Result<Measure> {
        block_on("GpuMemory::measure", self.measure_async(name))
    }

    /// As [`measure`](GpuMemory::measure), as a future.
    pub async fn measure_async(self, name: &str) -> Result<Measure> {
        Measure::begin(self.engine.clone().resolved(), name).await
    }

    /// Keeps the last `events` events from now on, for [`history`](GpuMemory::history). 0, the
    /// default, keeps none. An event takes 64 bytes.
    pub fn keep_history(self, events: usize) {
        self.engine.here().keep_history(events);
    }

    /// The last events in memory, up to the number set by
    /// [`keep_history`](GpuMemory::keep_history).
    pub fn history(self) -> History {
        self.engine.here().history()
    }

    /// The state of the memory now: the numbers, every block with its maker, and the history if one
    /// is kept. Never waits. Takes microseconds per thousand blocks and events.
    pub fn snapshot(self) -> Snapshot {
        Snapshot::take(&self.engine.here())
    }

    /// Saves a [`snapshot`](GpuMemory::snapshot) to this file when a request next finds no memory,
    /// that is, with the next [`Error::OutOfMemory`](crate::Error::OutOfMemory) or
    /// [`Error::NeverFits`](crate::Error::NeverFits) of the budget. The snapshot has the memory as
    /// it was then, and the history if one is kept. Only one is saved; call this again for another.
    /// A file that cannot be written is a warning of the crate `log`.
    ///
    /// ```
    /// # #[cfg(feature = "sim")] {
    /// use lapidary_core::{Budget, Gpu, stats::Snapshot};
    ///
    /// # let path = std::env::temp_dir().join(format!("oom-{}.json", std::process::id()));
    /// let (gpu, _) = Gpu::simulated(Default::default())?;
    /// gpu.memory().snapshot_at_out_of_memory(&path);
    /// gpu.memory().set_budget(Budget::device(2 << 20))?;
    /// let weights = gpu.buffer_zeroed(1500 << 10)?.named("weights");
    /// let _pin = weights.pin()?;
    /// gpu.buffer_zeroed(1 << 20)?.force().unwrap_err();
    ///
    /// let snapshot = Snapshot::read_json(std::fs::File::open(&path).unwrap())?;
    /// assert!(snapshot.stats.holders[0].tag.contains("weights"));
    /// # std::fs::remove_file(path).unwrap();
    /// # }
    /// # Ok::<(), lapidary_core::Error>(())
    /// ```
    #[cfg(all(feature = "snapshot", not(target_arch = "wasm32")))]
    pub fn snapshot_at_out_of_memory(self, path: impl Into<std::path::PathBuf>) {
        let path = path.into();
        self.engine.here().at_shortage(Box::new(move |engine| {
            if let Err(error) = Snapshot::take(engine).save(&path) {
                log::warn!("lapidary: no snapshot in {}: {error}", path.display());
            }
        }));
    }

    /// Takes memory statistics on any thread, for an observer. The sampler does not keep the device
    /// alive.
    ///
    /// ```no_run
    /// # let gpu = lapidary_core::Gpu::open(Default::default())?;
    /// let sampler = gpu.memory().sampler();
    /// std::thread::spawn(move || {
    ///     while let Some(stats) = sampler.memory() {
    ///         println!("{}", stats.live_bytes.now);
    ///         std::thread::sleep(std::time::Duration::from_secs(1));
    ///     }
    /// });
    /// # Ok::<(), lapidary_core::Error>(())
    /// ```
    pub fn sampler(self) -> Sampler {
        Sampler::new(self.engine.own())
    }

    /// Suggests changes so that the memory goes further, in sentences with figures. Empty if there
    /// is nothing to improve.
    ///
    /// ```no_run
    /// # let gpu = lapidary_core::Gpu::open(Default::default())?;
    /// for suggestion in gpu.memory().advice() {
    ///     println!("{suggestion}");
    /// }
    /// # Ok::<(), lapidary_core::Error>(())
    /// ```
    pub fn advice(self) -> Vec<Suggestion> {
        self.snapshot().advice()
    }
}
