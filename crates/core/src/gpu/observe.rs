//! Where the memory is, who has it, what happened to it, and what a piece of a program takes.

use super::Gpu;
use crate::engine::block_on;
use crate::error::Result;
use crate::memory::Scope;
use crate::observe::{History, Measure, MemoryStats, Sampler, Snapshot, Suggestion};

impl Gpu {
    /// Where the memory is, in numbers; prints as a report.
    pub fn memory(&self) -> MemoryStats {
        MemoryStats::of(&self.engine)
    }

    /// Tells the numbers of [`memory`](Gpu::memory) to the app's recorder of `metrics`, as they are
    /// now: `lapidary_live_bytes` and its like as gauges, `lapidary_submissions_total` and its like
    /// as counters, all with the adapter's name as the label `adapter`, and what a reclaim step
    /// freed with the reclaim step's as `step`. To be called as often as they are wanted, before an
    /// export or once a frame; nothing is told at other times.
    #[cfg(feature = "metrics")]
    pub fn record_metrics(&self) {
        self.memory().record();
    }

    /// Starts the peaks of [`memory`](Gpu::memory) anew from the present.
    pub fn reset_peaks(&self) {
        self.engine.reset_peaks();
    }

    /// Until the scope is dropped, tensors that this thread makes have its name in their tags, and
    /// those of the scopes around it: `step/forward: src/net.rs:17`. On whatever `Gpu`: a thread
    /// does one thing at a time.
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

    /// Begins to measure what a piece of the program takes, which is also a [`scope`](Gpu::scope).
    /// What was asked for before runs first. Measurements may lie within each other; of two, the
    /// later one ends first, or the names of both stay on.
    ///
    /// What other threads do meanwhile counts as well: there is one memory.
    ///
    /// ```
    /// # fn demo(gpu: &lapidary_core::Gpu) -> lapidary_core::Result<()> {
    /// let forward = gpu.measure("forward")?;
    /// let y = gpu.buffer_zeroed(1 << 20)?;
    /// println!("{}", forward.end()?);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`flush`](Gpu::flush).
    pub fn measure(&self, name: &str) -> Result<Measure> {
        block_on("Gpu::measure", self.measure_async(name))
    }

    /// As [`measure`](Gpu::measure), as a future.
    ///
    /// # Errors
    /// As [`measure`](Gpu::measure).
    pub async fn measure_async(&self, name: &str) -> Result<Measure> {
        Measure::begin(self.engine.clone(), name).await
    }

    /// From now on the last so many events are kept, for [`history`](Gpu::history); 0 for none,
    /// which is how a device is opened. One takes 64 bytes.
    pub fn keep_history(&self, events: usize) {
        self.engine.keep_history(events);
    }

    /// The last things that happened to memory, as many as [`keep_history`](Gpu::keep_history) was
    /// told.
    pub fn history(&self) -> History {
        History::of(&self.engine)
    }

    /// All that there is to know of the memory now: the numbers, every block with its maker, and
    /// the history if one is kept. Waits for nobody; takes microseconds for each thousand blocks
    /// and events.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot::of(&self.engine)
    }

    /// Takes samples of the memory for somebody who looks on, on whatever thread, and does not keep
    /// the device alive by that.
    ///
    /// ```no_run
    /// # let gpu = lapidary_core::Gpu::open(Default::default())?;
    /// let sampler = gpu.sampler();
    /// std::thread::spawn(move || {
    ///     while let Some(stats) = sampler.memory() {
    ///         println!("{}", stats.live_bytes.now);
    ///         std::thread::sleep(std::time::Duration::from_secs(1));
    ///     }
    /// });
    /// # Ok::<(), lapidary_core::Error>(())
    /// ```
    pub fn sampler(&self) -> Sampler {
        Sampler::of(&self.engine)
    }

    /// What to change so that the memory goes further, in sentences with figures; empty where
    /// nothing is the matter.
    ///
    /// ```no_run
    /// # let gpu = lapidary_core::Gpu::open(Default::default())?;
    /// for suggestion in gpu.advice() {
    ///     println!("{suggestion}");
    /// }
    /// # Ok::<(), lapidary_core::Error>(())
    /// ```
    pub fn advice(&self) -> Vec<Suggestion> {
        self.snapshot().advice()
    }
}
