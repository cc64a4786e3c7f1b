//! How long kernels run.

use super::Gpu;
use crate::driver::DriverError;
use crate::engine::KernelTime;
use crate::error::{Error, Result};

impl Gpu {
    /// Times every kernel from now on by the device's own clock, or no longer.
    ///
    /// For finding out where the time goes: while it is on, every submission is waited for, so that
    /// the device idles in between, and 64 KiB of memory are taken that no budget counts. A device
    /// that takes the place of a lost one starts without.
    ///
    /// ```no_run
    /// # let gpu = lapidary_core::Gpu::open(Default::default())?;
    /// gpu.time_kernels(true)?;
    /// // … work …
    /// for time in gpu.kernel_times()? {
    ///     println!("{time}");
    /// }
    /// gpu.time_kernels(false)?;
    /// # Ok::<(), lapidary_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Option`] where the device has no timestamps, or was opened by the app without
    /// `wgpu::Features::TIMESTAMP_QUERY`; [`Error::DeviceLost`], and
    /// [`Error::Driver`] where it has no memory for them.
    pub fn time_kernels(&self, on: bool) -> Result<()> {
        self.engine.time_kernels(on).map_err(|error| match error {
            DriverError::Invalid(reason) => Error::Option {
                option: "time_kernels",
                reason,
            },
            DriverError::Lost(reason) => Error::DeviceLost { reason },
            DriverError::Kernel(fault) => Error::Kernel(fault),
            DriverError::OutOfMemory | DriverError::OverBudget => Error::Driver {
                what: "timestamps",
                message: "the device has no memory for them".to_owned(),
            },
        })
    }

    /// Runs all that was asked for so far, and says how long each kernel took since
    /// [`time_kernels`](Gpu::time_kernels), or since this was last asked: the longest in all first.
    /// Dispatches share an entry if they run the same kernel, with operands of the same sizes, for
    /// tensors made at the same place: two layers that call one line are told apart by
    /// [`named`](crate::Buffer::named) or [`scope`](Gpu::scope).
    ///
    /// # Errors
    /// As [`flush`](Gpu::flush).
    pub fn kernel_times(&self) -> Result<Vec<KernelTime>> {
        self.flush()?;
        let mut times = self.engine.take_kernel_times();
        times.sort_by_key(|time| std::cmp::Reverse(time.total_ns));
        Ok(times)
    }
}
