//! Recovery: replaces a lost device.

use super::Gpu;
use crate::engine::block_on;
use crate::error::Result;
use crate::memory::Recovered;

impl Gpu {
    /// Replaces a lost device by a new one, opened the same way. All handles stay valid. Buffers
    /// with a copy in memory of the host alone, in a store, on disk or at a source are restored
    /// when a command uses them. Buffers that were only on the device are
    /// [`Poisoned`](crate::Error::Poisoned) until they are written again, and the result lists
    /// them. Work that had not begun runs on the new device, as far as its operands still exist.
    /// Work under way has no results.
    ///
    /// What was evicted to a heap in the host's memory that the device addresses
    /// ([`Caps::host_heap`](crate::Caps::host_heap)) is lost with it, too:
    /// [`gone_with_heap_bytes`](Recovered::gone_with_heap_bytes). Most cards with memory of their
    /// own have such a heap by default.
    ///
    /// To prepare for a loss, turn that heap off by
    /// [`Options::host_heap`](crate::Options::host_heap). Then [`evict`](crate::Buffer::evict) data
    /// once that must survive and is only read afterwards: the copy stays valid until the next
    /// write. Or give it a [`source`](crate::Buffer::backed_by). Save data that changes from time
    /// to time.
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
    /// [`DeviceLost`](crate::Error::DeviceLost) when no device is available now: try again later.
    /// [`Option`](crate::Error::Option) when the device is not lost.
    /// [`Driver`](crate::Error::Driver) when the new device can do less than the old one, or when
    /// the device was adopted: see [`readopt`](Gpu::readopt).
    pub fn reopen(&self) -> Result<Recovered> {
        block_on("Gpu::reopen", self.reopen_async())
    }

    /// As [`reopen`](Gpu::reopen), as a future: the only form in a browser.
    pub async fn reopen_async(&self) -> Result<Recovered> {
        self.engine.own().reopen().await
    }

    /// As [`reopen`](Gpu::reopen), for an adopted device: the app opens the new one. If the app
    /// called [`watch_lost`](Gpu::watch_lost), it must call that again.
    ///
    /// ```no_run
    /// # use lapidary_core::wgpu;
    /// # async fn open() -> (wgpu::Adapter, wgpu::Device, wgpu::Queue) { unimplemented!() }
    /// # async fn example(gpu: lapidary_core::Gpu) -> lapidary_core::Result<()> {
    /// let (adapter, device, queue) = open().await;
    /// let recovered = gpu.readopt_async(&adapter, &device, &queue).await?;
    /// println!("{} buffers are still there", recovered.kept);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`DeviceLost`](crate::Error::DeviceLost) when the new device accepts no calls.
    /// [`Option`](crate::Error::Option) when the old one is not lost.
    /// [`Driver`](crate::Error::Driver) when the new one can do less than the old one.
    pub fn readopt(
        &self,
        adapter: &wgpu::Adapter,
        device: &wgpu::Device,
        queue: &wgpu::Queue,
    ) -> Result<Recovered> {
        block_on("Gpu::readopt", self.readopt_async(adapter, device, queue))
    }

    /// As [`readopt`](Gpu::readopt), as a future: the only form in a browser.
    pub async fn readopt_async(
        &self,
        adapter: &wgpu::Adapter,
        device: &wgpu::Device,
        queue: &wgpu::Queue,
    ) -> Result<Recovered> {
        let driver = self.shared_driver("readopt")?;
        let readopt = || driver.readopt(Some(adapter), device, queue);
        self.engine.own().reopen_by(readopt).await
    }
}
