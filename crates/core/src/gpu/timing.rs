//! Timing of kernels.

use super::Gpu;
use crate::driver::DriverError;
use crate::engine::KernelTime;
use crate::error::{Error, Result};

impl Gpu {
    /// Turns the timing of every kernel by the device's clock on or off.
    ///
    /// Use it to find out where the time goes. While it is on, the engine waits for every
    /// submission, so the device idles in between. It takes 64 KiB of memory that no budget counts.
    /// A device that replaces a lost one starts with timing off.
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
    /// [`Error::Option`] if the device has no timestamps, or the app opened it without
    /// `wgpu::Features::TIMESTAMP_QUERY`; [`Error::DeviceLost`]; [`Error::Driver`] if the device
    /// has no memory for timestamps.
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

    /// Runs all recorded work. Returns how long each kernel took since
    /// [`time_kernels`](Gpu::time_kernels) or the last call of this function, the longest total
    /// first. Dispatches share an entry if they run the same kernel with operands of the same
    /// sizes, for buffers made at the same place. To tell two layers apart that call one line, use
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
