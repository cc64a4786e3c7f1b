//! Dry runs: how much memory a program takes, before it takes any.

use std::ops::RangeInclusive;
use std::sync::Arc;

use super::{Gpu, Layer, NONE};
use crate::driver::DryDriver;
use crate::engine::{DryRunGuard, Handle, block_on};
use crate::error::{Error, Result};
use crate::memory::Budget;
use crate::observe::{DryRun, Fit};

impl Gpu {
    /// Finds out how much memory a program takes, and what the budget would evict, without running
    /// it. The calls of `program` are recorded, fused, placed and counted as on this device.
    /// Nothing is computed. It takes milliseconds, and neither touches the device nor evicts to the
    /// disk.
    ///
    /// `program` gets a device like this one: same limits, same choice of kernels, and a budget of
    /// the bytes that are allowed now. To ask about another budget, set it there; a budget without
    /// a limit is unlimited there. All that is alive on this device counts from the start to the
    /// end. The program may use it, by this handle too. Writes to it do not show outside. What this
    /// handle tells the program, such as statistics, is of the dry run.
    ///
    /// What `program` returns lives until the end, and counts. So return what is needed later: a
    /// result that the program drops before it is computed takes no memory.
    ///
    /// ```no_run
    /// # fn main() -> lapidary_core::Result<()> {
    /// # let gpu = lapidary_core::Gpu::open(Default::default())?;
    /// use lapidary_core::Budget;
    ///
    /// let found = gpu.dry_run(|gpu| {
    ///     gpu.memory().set_budget(Budget::device(1 << 30))?;
    ///     gpu.buffer_zeroed(256 << 20)
    /// })?;
    /// assert!(found.fits());
    /// println!("{found}");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # What it counts
    ///
    /// - The peaks of tensors and slabs are within 2 % of those of a run, and mostly equal. For
    ///   that the program must wait for the device at the same places. A dry run takes the device
    ///   to be busy.
    /// - Staging is counted for a device that is two submissions behind the program.
    /// - A [heap](crate::Options::host_heap) in the host's memory is that of the device: the same
    ///   slabs, with the same buffers in them.
    /// - Only the calling thread's calls are redirected. Other threads work on the device itself.
    ///   Futures must end within the program.
    /// - The checks of the diagnostics are left out.
    /// - Shares that exist already keep their limits. A program that closes, cancels or resizes
    ///   shares, or admits jobs, makes them by the handle that it gets.
    /// - Sources and files of state or models are opened as usual. A tensor's own source is not
    ///   read.
    ///
    /// # Errors
    /// [`Error::DryRunRead`], with the line, if the program reads a value. [`Error::OutOfMemory`]
    /// or [`Error::NeverFits`] for work that finds no room, with the numbers. All errors of
    /// `program`. [`Error::Buffer`] for calls that need the device's own buffers, such as
    /// [`with_bound`](Gpu::with_bound). [`Error::Share`] for changes of the device's shares and
    /// jobs. A panic of the program reaches the caller. After any of them the device is as before.
    pub fn dry_run<T>(&self, program: impl FnOnce(&Gpu) -> Result<T>) -> Result<DryRun> {
        self.dry_run_below(&NONE, program)
    }

    /// As [`dry_run`](Gpu::dry_run), with a layer above.
    #[doc(hidden)]
    pub fn dry_run_below<T>(
        &self,
        layer: &Layer,
        program: impl FnOnce(&Gpu) -> Result<T>,
    ) -> Result<DryRun> {
        let real = &*self.engine.here();
        let driver = Arc::new(DryDriver::new(real.caps().clone()));
        let gpu = Gpu::over(driver.clone(), real.dry_setup(), real.fuses(), layer)?;
        let guard = DryRunGuard::begin(real, gpu.engine.own(), driver)?;
        let gpu = Gpu {
            engine: Handle::new(gpu.engine.own().of_share(real.share().cloned())),
            ..gpu
        };
        // Its result may hold tensors, which belong to the memory at the end.
        let _made = program(&gpu)?;
        guard.end().map(DryRun::new)
    }

    /// Whether this is the device of a [dry run](Gpu::dry_run). A program asks it to leave out what
    /// needs values, such as a line of a log.
    pub fn is_dry(&self) -> bool {
        self.engine.here().is_dry()
    }

    /// The largest batch with which a program stays within the budget and evicts nothing, found by
    /// a few [dry runs](Gpu::dry_run).
    ///
    /// The search halves the range, so it takes a dry run for each power of two. It relies on a
    /// larger batch taking at least as much memory as a smaller one.
    ///
    /// ```no_run
    /// # fn main() -> lapidary_core::Result<()> {
    /// # let gpu = lapidary_core::Gpu::open(Default::default())?;
    /// let fit = gpu.fit_batch(1..=256, |gpu, batch| gpu.buffer_zeroed((batch as u64) << 20))?;
    /// println!("{} at once:\n{}", fit.batch, fit.report);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::NeverFits`] if even the smallest batch does not fit, with the bytes that it takes.
    /// For a program that sets a budget itself, these are at most all bytes that it had anywhere;
    /// or the error is that of its first command without room. [`Error::Option`] for an empty
    /// range. Those of [`dry_run`](Gpu::dry_run), except that a larger batch that finds no room
    /// counts as one that does not fit.
    pub fn fit_batch<T>(
        &self,
        batches: RangeInclusive<usize>,
        program: impl FnMut(&Gpu, usize) -> Result<T>,
    ) -> Result<Fit> {
        self.fit_batch_below(&NONE, batches, None, program)
    }

    /// As [`fit_batch`](Gpu::fit_batch), for the largest batch whose evictions and restores make
    /// the program at most `slowdown` times as slow: see [`DryRun::slowdown`]. 1.2 allows a fifth
    /// more time.
    ///
    /// # Errors
    /// As [`fit_batch`](Gpu::fit_batch), and [`Error::Option`] unless the slowdown is a number of
    /// at least 1.
    pub fn fit_batch_within<T>(
        &self,
        batches: RangeInclusive<usize>,
        slowdown: f64,
        program: impl FnMut(&Gpu, usize) -> Result<T>,
    ) -> Result<Fit> {
        self.fit_batch_below(&NONE, batches, Some(slowdown), program)
    }

    /// As [`fit_batch_within`](Gpu::fit_batch_within), with a layer above; or without evictions.
    #[doc(hidden)]
    pub fn fit_batch_below<T>(
        &self,
        layer: &Layer,
        batches: RangeInclusive<usize>,
        slowdown: Option<f64>,
        mut program: impl FnMut(&Gpu, usize) -> Result<T>,
    ) -> Result<Fit> {
        let (mut least, mut most) = (*batches.start(), *batches.end());
        check_search(least, most, slowdown)?;
        let mut run = |batch| self.dry_run_below(layer, |gpu| program(gpu, batch));
        let allows = |report: &DryRun| match slowdown {
            None => report.fits(),
            Some(most) => report.refusals == 0 && report.slowdown() <= most,
        };
        let report = match run(least) {
            Ok(report) if allows(&report) => report,
            Err(error) if !is_too_large(&error) => return Err(error),
            refused => {
                let unlimited = self.dry_run_below(layer, |gpu| {
                    block_on("a dry run", gpu.engine.here().set_budget(Budget::default()))?;
                    program(gpu, least)
                })?;
                let is_slow = refused.as_ref().is_ok_and(|report| report.refusals == 0);
                let (needed_bytes, limit_bytes) = match (refused, unlimited.budget_bytes) {
                    // The program sets a budget of its own, so it never ran without one.
                    (Err(error), Some(_)) => return Err(error),
                    (Ok(report), Some(limit_bytes)) => (report.held_bytes(), limit_bytes),
                    (_, None) => {
                        let limit_bytes = self.engine.here().slab_limit_bytes();
                        (unlimited.peak_device_bytes, limit_bytes)
                    }
                };
                return Err(Error::never_fits(
                    "the smallest batch",
                    needed_bytes,
                    limit_bytes,
                    match slowdown {
                        Some(_) if is_slow => "Allow a larger slowdown, or raise the budget",
                        _ => "Recompute activations, or raise the budget",
                    },
                ));
            }
        };
        let mut best = Fit {
            batch: least,
            report,
        };
        while least < most {
            // Rounded up, so that each round ends with a smaller range.
            let batch = least + (most - least).div_ceil(2);
            match run(batch) {
                Ok(report) if allows(&report) => {
                    best = Fit { batch, report };
                    least = batch;
                }
                Err(error) if !is_too_large(&error) => return Err(error),
                _ => most = batch - 1,
            }
        }
        Ok(best)
    }
}

/// Whether a program failed because its batch is too large.
fn is_too_large(error: &Error) -> bool {
    matches!(
        error,
        Error::OutOfMemory(_) | Error::NeverFits { .. } | Error::Overflow { .. }
    )
}

fn check_search(least: usize, most: usize, slowdown: Option<f64>) -> Result<()> {
    let refuse = |option, reason: String| Err(Error::option(option, reason));
    if least > most {
        return refuse("batches", format!("{least}..={most} has no batch"));
    }
    match slowdown {
        Some(slowdown) if !(slowdown >= 1.0 && slowdown.is_finite()) => {
            refuse("slowdown", format!("{slowdown} is no number of at least 1"))
        }
        _ => Ok(()),
    }
}
