//! The times of the kernels, by the device's clock.

use std::cmp::Reverse;

use super::Gpu;
use crate::driver::DriverError;
use crate::engine::{Engine, Handle, KernelTime, block_on};
use crate::error::{Error, Result};

/// The kernels of a device and their times, as [`Gpu::kernels`] gives them.
#[derive(Clone, Copy, Debug)]
pub struct GpuKernels<'gpu> {
    engine: &'gpu Handle<Engine>,
}

impl Gpu {
    /// The kernels as the device runs them, and their times.
    pub fn kernels(&self) -> GpuKernels<'_> {
        GpuKernels {
            engine: &self.engine,
        }
    }
}

impl GpuKernels<'_> {
    /// Turns the timing of every kernel by the device's clock on or off.
    ///
    /// Use it to find out where the time goes. While it is on, the engine waits for every
    /// submission, so the device idles in between. It takes 64 KiB of memory that no budget counts.
    /// A device that replaces a lost one starts with timing off.
    ///
    /// ```no_run
    /// # let gpu = lapidary_core::Gpu::open(Default::default())?;
    /// gpu.kernels().time(true)?;
    /// // … work …
    /// for time in gpu.kernels().times()? {
    ///     println!("{time}");
    /// }
    /// gpu.kernels().time(false)?;
    /// # Ok::<(), lapidary_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Option`] if the device has no timestamps, or the app opened it without
    /// `wgpu::Features::TIMESTAMP_QUERY`; [`Error::DeviceLost`]; [`Error::Driver`] if the device
    /// has no memory for timestamps.
    pub fn time(self, on: bool) -> Result<()> {
        let timed = self.engine.here().time_kernels(on);
        timed.map_err(|error| match error {
            DriverError::Invalid(reason) => Error::option("GpuKernels::time", reason),
            DriverError::Lost(reason) => Error::DeviceLost { reason },
            #[cfg(any(test, feature = "sim"))]
            DriverError::Kernel(fault) => Error::Kernel(fault),
            DriverError::OutOfMemory | DriverError::OverBudget => {
                Error::driver("timestamps", "the device has no memory for them")
            }
        })
    }

    /// Runs all recorded work. Returns how long each kernel took, in nanoseconds, since
    /// [`time`](Self::time) or the last call of this function. The longest total is first.
    /// Dispatches share an entry if they run the same kernel with operands of the same sizes, for
    /// buffers made at the same place. To tell two layers apart that call one line, use
    /// [`named`](crate::Buffer::named) or [`scope`](Gpu::scope).
    ///
    /// # Errors
    /// As [`flush`](Gpu::flush).
    pub fn times(self) -> Result<Vec<KernelTime>> {
        block_on("GpuKernels::times", self.times_async())
    }

    /// As [`times`](Self::times), as a future. A browser refuses to time kernels.
    ///
    /// # Errors
    /// As [`flush`](Gpu::flush).
    pub async fn times_async(self) -> Result<Vec<KernelTime>> {
        let engine = self.engine.here();
        engine.flush().await?;
        let mut times = engine.take_kernel_times();
        times.sort_by_key(|time| Reverse(time.total_ns));
        Ok(times)
    }
}
