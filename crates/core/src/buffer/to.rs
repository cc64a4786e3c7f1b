//! Copies to other shares and other devices.

use super::{Buffer, words};
#[cfg(not(target_arch = "wasm32"))]
use crate::engine::block_on;
use crate::error::Result;
use crate::gpu::Gpu;
use crate::units::MIB;

/// Bytes go from one device to another in pieces of this size. While the host writes one, the
/// device reads the next.
const PIECE_BYTES: u64 = 4 * MIB;

impl Buffer {
    /// A buffer with the same bytes in the share, or on the device, of another handle. A buffer
    /// that is there already is returned as it is; then both share their bytes.
    ///
    /// Between two shares of one device the copy stays on the device. Between two devices it goes
    /// through the host, in pieces: one is written while the next is read.
    ///
    /// ```no_run
    /// # fn demo(here: &lapidary_core::Gpu, there: &lapidary_core::Gpu) ->
    /// lapidary_core::Result<()> { let numbers = here.buffer_from(&[1.0_f32, 2.0])?; let copy =
    /// numbers.to(there)?; assert_eq!(copy.to_vec::<f32>()?, [1.0, 2.0]);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`buffer_from`](Gpu::buffer_from) on `gpu`, and as [`read`](Self::read) here.
    #[cfg(not(target_arch = "wasm32"))]
    #[track_caller]
    pub fn to(&self, gpu: &Gpu) -> Result<Buffer> {
        match self.to_near(gpu)? {
            Some(buffer) => Ok(buffer),
            None => {
                let buffer = gpu.buffer(self.size_bytes)?;
                block_on("Buffer::to", self.to_far(&buffer))?;
                Ok(buffer)
            }
        }
    }

    /// As [`to`](Self::to), as a future: the only form in a browser.
    ///
    /// # Errors
    /// As [`to`](Self::to).
    #[track_caller]
    pub fn to_async(&self, gpu: &Gpu) -> impl Future<Output = Result<Buffer>> + use<> {
        let (near, made, from) = (self.to_near(gpu), gpu.buffer(self.size_bytes), self.clone());
        async move {
            match near? {
                Some(buffer) => Ok(buffer),
                None => {
                    let buffer = made?;
                    from.to_far(&buffer).await?;
                    Ok(buffer)
                }
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
        let copy = there.storage(self.size_bytes)?;
        if self.size_bytes > 0 {
            words::copy(&here, &self.storage, self.offset_bytes, &copy)?;
        }
        Ok(Some(Self::whole(&there, copy)))
    }

    /// Copies to a new buffer through the host. All reads are queued at once, so they see one
    /// value.
    async fn to_far(&self, to: &Buffer) -> Result<()> {
        if self.engine.is_dry() || to.engine.is_dry() {
            // Nothing has a value. Only the sizes count.
            return to.engine.clear(&to.storage);
        }
        let mut pieces = Vec::new();
        let mut at_bytes = 0;
        while at_bytes < self.size_bytes {
            let end_bytes = self.size_bytes.min(at_bytes + PIECE_BYTES);
            let read = self
                .slice(at_bytes..end_bytes)?
                .start_read::<u8>(Vec::new())?;
            pieces.push((read, at_bytes..end_bytes));
            at_bytes = end_bytes;
        }
        for (read, range) in pieces {
            let bytes = read.elements().await?;
            to.slice(range)?.write_async(&bytes).await?;
        }
        Ok(())
    }
}
