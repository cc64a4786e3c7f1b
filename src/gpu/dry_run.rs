//! Dry runs of programs of tensors.

use std::ops::RangeInclusive;

use lapidary_core::Result;
use lapidary_core::stats::{DryRun, Fit};

use super::{Gpu, LAYER};
use crate::tensor::history::DryGuard;

impl Gpu {
    /// Finds out how much memory a program takes, and what the budget would evict, without running
    /// it. It takes milliseconds, and neither touches the device nor evicts to the disk. Files that
    /// the program opens are opened and read as usual. [`lapidary_core::Gpu::dry_run`] says what is
    /// counted and how.
    ///
    /// The program may use tensors of this device, and parameters among them. Their sizes count,
    /// and [`backward`](crate::Tensor::backward) gives their gradients. Writes to them do not show
    /// outside.
    ///
    /// ```
    /// # #[cfg(feature = "sim")] {
    /// # let (gpu, _) = lapidary::Gpu::simulated(Default::default())?;
    /// use lapidary::DType;
    ///
    /// let w = gpu.rand_normal(&[784, 512], 0.0, 0.05, 1, DType::F32)?.requires_grad()?;
    /// let found = gpu.dry_run(|gpu| {
    ///     let x = gpu.zeros(&[256, 784], DType::F32)?;
    ///     let loss = x.matmul(&w)?.gelu()?.sum_all()?;
    ///     loss.backward()
    /// })?;
    /// println!("{found}");
    /// assert!(found.peak_live_bytes > w.size_bytes());
    /// # }
    /// # Ok::<(), lapidary::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`lapidary_core::Gpu::dry_run`].
    pub fn dry_run<T>(&self, program: impl FnOnce(&Gpu) -> Result<T>) -> Result<DryRun> {
        let _histories = DryGuard::begin();
        self.0
            .dry_run_below(&LAYER, |core| program(&Gpu(core.clone())))
    }

    /// The largest batch with which a program stays within the budget and evicts nothing, found by
    /// a few [dry runs](Gpu::dry_run).
    ///
    /// The search halves the range, so it takes a dry run for each power of two. It relies on a
    /// larger batch taking at least as much memory as a smaller one.
    ///
    /// ```
    /// # #[cfg(feature = "sim")] {
    /// # let (gpu, _) = lapidary::Gpu::simulated(Default::default())?;
    /// use lapidary::{Budget, DType};
    ///
    /// gpu.memory().set_budget(Budget::device(64 << 20))?;
    /// let w = gpu.rand_normal(&[784, 512], 0.0, 0.05, 1, DType::F32)?.requires_grad()?;
    /// let fit = gpu.fit_batch(1..=1 << 20, |gpu, batch| {
    ///     let x = gpu.zeros(&[batch, 784], DType::F32)?;
    ///     x.matmul(&w)?.gelu()?.sum_all()?.backward()
    /// })?;
    /// println!("{} samples at once:\n{}", fit.batch, fit.report);
    /// # }
    /// # Ok::<(), lapidary::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`lapidary_core::Gpu::fit_batch`].
    pub fn fit_batch<T>(
        &self,
        batches: RangeInclusive<usize>,
        program: impl FnMut(&Gpu, usize) -> Result<T>,
    ) -> Result<Fit> {
        self.fit(batches, None, program)
    }

    /// As [`fit_batch`](Gpu::fit_batch), for the largest batch whose evictions and restores make
    /// the program at most `slowdown` times as slow: see [`DryRun::slowdown`]. 1.2 allows a fifth
    /// more time.
    ///
    /// # Errors
    /// As [`lapidary_core::Gpu::fit_batch_within`].
    pub fn fit_batch_within<T>(
        &self,
        batches: RangeInclusive<usize>,
        slowdown: f64,
        program: impl FnMut(&Gpu, usize) -> Result<T>,
    ) -> Result<Fit> {
        self.fit(batches, Some(slowdown), program)
    }

    fn fit<T>(
        &self,
        batches: RangeInclusive<usize>,
        slowdown: Option<f64>,
        mut program: impl FnMut(&Gpu, usize) -> Result<T>,
    ) -> Result<Fit> {
        self.0
            .fit_batch_below(&LAYER, batches, slowdown, |core, batch| {
                let _histories = DryGuard::begin();
                program(&Gpu(core.clone()), batch)
            })
    }
}
