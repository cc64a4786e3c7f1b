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
    /// new device, as far as what it needs is still there; what was under way has no results.
    ///
    /// So it pays to [`evict`](crate::Buffer::evict) once what must survive and is only read from
    /// then on (the copy stays good until it is written to), or to give it a
    /// [`source`](crate::Buffer::backed_by); and to save now and then what changes.
    ///
    /// ```no_run
    /// # fn main() -> lapidary_core::Result<()> {
    /// # let gpu = lapidary_core::Gpu::open(Default::default())?;
    /// use lapidary_core::Error;
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
    /// [`Driver`](crate::Error::Driver) when the new one can do less than the old one, or the
    /// device was adopted: see [`readopt`](Gpu::readopt).
    pub fn reopen(&self) -> Result<Recovered> {
        block_on("Gpu::reopen", self.reopen_async())
    }

    /// As [`reopen`](Gpu::reopen), as a future: the only form in a browser.
    ///
    /// # Errors
    /// As [`reopen`](Gpu::reopen).
    pub async fn reopen_async(&self) -> Result<Recovered> {
        self.engine.reopen().await
    }

    /// As [`reopen`](Gpu::reopen), for an adopted device: the app has opened another one.
    /// [`watch_lost`](Gpu::watch_lost) is to be called again, if it was.
    ///
    /// ```no_run
    /// # use lapidary_core::wgpu;
    /// # async fn open() -> (wgpu::Adapter, wgpu::Device, wgpu::Queue) { unimplemented!() }
    /// # async fn example(gpu: lapidary_core::Gpu) -> lapidary_core::Result<()> {
    /// let (adapter, device, queue) = open().await;
    /// let recovered = gpu.readopt(&adapter, &device, &queue)?;
    /// println!("{} tensors are still there", recovered.kept);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`DeviceLost`](crate::Error::DeviceLost) when the new device takes no calls,
    /// [`Option`](crate::Error::Option) when the old one is not lost,
    /// [`Driver`](crate::Error::Driver) when the new one can do less than the old one.
    pub fn readopt(
        &self,
        adapter: &wgpu::Adapter,
        device: &wgpu::Device,
        queue: &wgpu::Queue,
    ) -> Result<Recovered> {
        let driver = self.wgpu("readopt")?;
        let readopt = || driver.readopt(Some(adapter), device, queue);
        block_on("Gpu::readopt", self.engine.reopen_by(readopt))
    }
}
