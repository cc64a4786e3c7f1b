//! Other shares and other devices: loans and copies.

use super::pieces::{Filling, Next, Pieces};
use super::{Buffer, words};
#[cfg(not(target_arch = "wasm32"))]
use crate::engine::block_on;
use crate::error::{Error, Result};
use crate::gpu::Gpu;

impl Buffer {
    /// The same bytes for kernels in another share of the device, which may read them. Nothing is
    /// copied: the memory counts for the share that lends it, and lives as long as either buffer.
    ///
    /// A command reads what the lender wrote before it. The borrower may evict and pin a loan;
    /// [`named`](Self::named) has no effect. Kernels of the borrower can reach the whole
    /// buffer, also outside of a slice.
    ///
    /// ```no_run
    /// # use lapidary_core::shares::ShareOptions;
    /// # fn demo(gpu: &lapidary_core::Gpu) -> lapidary_core::Result<()> {
    /// let table = gpu.buffer_from(&[1.0_f32, 2.0])?;
    /// let job = gpu.share("job", ShareOptions::guaranteed(16 << 20))?;
    /// let lent = table.lend_to(&job)?;
    /// let own = lent.copy()?; // in the share `job`
    /// # drop(own);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::Foreign`](crate::Error::Foreign) for the handle of another device: copy there with
    /// [`to`](Self::to). Later, each write to it is [`Error::Lent`](crate::Error::Lent).
    pub fn lend_to(&self, gpu: &Gpu) -> Result<Buffer> {
        let (here, there) = (self.engine.here(), gpu.engine().here());
        if here.is_same(&there) {
            return Ok(self.clone());
        }
        if !here.is_same_device(&there) {
            return Err(Error::foreign("lend_to"));
        }
        self.storage.here().lend();
        let (engine, storage) = (gpu.engine(), self.storage.clone());
        Ok(Self::part(
            engine,
            storage,
            self.offset_bytes,
            self.size_bytes,
        ))
    }

    /// A buffer with the same bytes in the share, or on the device, of another handle. A buffer
    /// that is there already is returned as it is; then both share their bytes.
    ///
    /// Between two shares of one device the copy stays on the device. Between two devices it goes
    /// through the host, in pieces: one is written while the next is read.
    ///
    /// ```no_run
    /// # use lapidary_core::{Gpu, Result};
    /// # fn demo(here: &Gpu, there: &Gpu) -> Result<()> {
    /// let numbers = here.buffer_from(&[1.0_f32, 2.0])?;
    /// let copy = numbers.to(there)?;
    /// assert_eq!(copy.to_vec::<f32>()?, [1.0, 2.0]);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`buffer_from`](Gpu::buffer_from) on `gpu`, and as [`to_vec_async`](Self::to_vec_async)
    /// here.
    #[cfg(not(target_arch = "wasm32"))]
    #[track_caller]
    pub fn to(&self, gpu: &Gpu) -> Result<Buffer> {
        match self.to_near(gpu)? {
            Some(buffer) => Ok(buffer),
            None => {
                let copy = gpu.buffer(self.size_bytes)?;
                block_on("Buffer::to", self.to_far(copy, true))
            }
        }
    }

    /// As [`to`](Self::to), as a future: the only form in a browser.
    #[track_caller]
    pub fn to_async(&self, gpu: &Gpu) -> impl Future<Output = Result<Buffer>> + use<> {
        let (near, from) = (self.to_near(gpu), self.clone());
        let copy = gpu.buffer(self.size_bytes);
        async move {
            match near? {
                Some(buffer) => Ok(buffer),
                None => from.to_far(copy?, false).await,
            }
        }
    }

    /// The copy, if it can stay on the device.
    #[track_caller]
    fn to_near(&self, gpu: &Gpu) -> Result<Option<Buffer>> {
        let (here, there) = (self.engine.here(), gpu.engine().here());
        if here.is_same(&there) {
            return Ok(Some(self.clone()));
        }
        // A word that is half outside of the slice has bytes that the other share must not see.
        let is_whole_words =
            self.offset_bytes.is_multiple_of(4) && self.size_bytes.is_multiple_of(4);
        if !here.is_same_device(&there) || !is_whole_words {
            return Ok(None);
        }
        let copy = gpu.buffer(self.size_bytes)?;
        if self.size_bytes > 0 {
            self.storage.here().lend();
            words::copy(self, &copy)?;
        }
        Ok(Some(copy))
    }

    /// Copies to a new buffer through the host. If it `blocks`, a piece waits for staging memory
    /// where it arrived, and not in a copy.
    async fn to_far(&self, copy: Buffer, blocks: bool) -> Result<Buffer> {
        if self.engine.here().is_dry() || copy.engine.here().is_dry() {
            // Nothing has a value. Only the sizes count.
            copy.clear()?;
            return Ok(copy);
        }
        let mut filling = Filling::new(copy);
        let mut pieces = Pieces::new([self.clone()])?;
        loop {
            let mut failed = None;
            let mut look = |bytes: &[u8], seen| {
                let written = match blocks {
                    true => filling.write_seen(bytes, seen),
                    false => filling.try_write(bytes),
                };
                written.unwrap_or_else(|error| {
                    failed = Some(error);
                    true
                })
            };
            let next = pieces.next(&mut look).await?;
            if let Some(error) = failed {
                return Err(error);
            }
            match next {
                Next::End => return Ok(filling.end()),
                Next::Done => {}
                Next::Kept(bytes) => {
                    filling.write(&bytes).await?;
                    pieces.take_back(bytes);
                }
            }
        }
    }
}
