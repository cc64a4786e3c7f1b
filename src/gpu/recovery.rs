//! After a lost device: another one in its place.

use super::Gpu;
use crate::engine::block_on;
use crate::error::Result;
use crate::memory::Recovered;

impl Gpu {
    /// Puts a new device into the place of one that was lost, opened the same way. Tensors that
    /// the host's memory, the disk or a source still has come back when somebody uses them; those
    /// that were only on the device are [`Poisoned`](crate::Error::Poisoned) until they are
    /// written anew, and are listed. All handles stay good. Work that had not begun runs on the
    /// new device, as far as what it needs is still there.
    ///
    /// So it pays to [`evict`](crate::Tensor::evict) what must survive, or to give it a
    /// [source](crate::Tensor::backed_by).
    ///
    /// ```no_run
    /// # fn main() -> lapidary::Result<()> {
    /// # let gpu = lapidary::Gpu::open(Default::default())?;
    /// use lapidary::Error;
    ///
    /// if let Err(Error::DeviceLost { .. }) = gpu.flush() {
    ///     let recovered = gpu.reopen()?;
    ///     for (made_at, bytes) in &recovered.gone {
    ///         eprintln!("{bytes} bytes of {made_at} are gone");
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`DeviceLost`](crate::Error::DeviceLost) when no device can be had now: try again later.
    /// [`Option`](crate::Error::Option) when the device is not lost,
    /// [`Driver`](crate::Error::Driver) when the new one can do less than the old one, or the device
    /// was adopted: see [`readopt`](Gpu::readopt).
    pub fn reopen(&self) -> Result<Recovered> {
        block_on("Gpu::reopen", self.reopen_async())
    }

    /// As [`reopen`](Gpu::reopen), for browsers.
    ///
    /// # Errors
    /// As [`reopen`](Gpu::reopen).
    pub async fn reopen_async(&self) -> Result<Recovered> {
        let driver = self.engine.driver();
        self.engine.reopen(driver.reopen()).await
    }

    /// As [`reopen`](Gpu::reopen), for an adopted device: the app has opened another one.
    /// [`watch_lost`](Gpu::watch_lost) is to be called again, if it was.
    ///
    /// # Errors
    /// As [`reopen`](Gpu::reopen).
    pub fn readopt(
        &self,
        adapter: &wgpu::Adapter,
        device: &wgpu::Device,
        queue: &wgpu::Queue,
    ) -> Result<Recovered> {
        let driver = self.wgpu("readopt")?;
        let readopted = async { driver.readopt(Some(adapter), device, queue) };
        block_on("Gpu::readopt", self.engine.reopen(readopted))
    }
}
