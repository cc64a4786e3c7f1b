//! Copies to other shares and other devices.

use std::sync::Arc;

use super::pieces::{Filling, Next, Pieces};
use super::{Buffer, words};
use crate::engine::Engine;
#[cfg(not(target_arch = "wasm32"))]
use crate::engine::block_on;
use crate::error::Result;
use crate::gpu::Gpu;
use crate::memory::Storage;

impl Buffer {
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
    /// As [`buffer_from`](Gpu::buffer_from) on `gpu`, and as [`read`](Self::read) here.
    #[cfg(not(target_arch = "wasm32"))]
    #[track_caller]
    pub fn to(&self, gpu: &Gpu) -> Result<Buffer> {
        match self.to_near(gpu)? {
            Some(buffer) => Ok(buffer),
            None => {
                let engine = gpu.engine().here();
                let copy = engine.storage(self.size_bytes)?;
                block_on("Buffer::to", self.to_far(&engine, copy))
            }
        }
    }

    /// As [`to`](Self::to), as a future: the only form in a browser.
    ///
    /// # Errors
    /// As [`to`](Self::to).
    #[track_caller]
    pub fn to_async(&self, gpu: &Gpu) -> impl Future<Output = Result<Buffer>> + use<> {
        let (near, from) = (self.to_near(gpu), self.clone());
        let engine = gpu.engine().here().clone();
        let copy = engine.storage(self.size_bytes);
        async move {
            match near? {
                Some(buffer) => Ok(buffer),
                None => from.to_far(&engine, copy?).await,
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

    /// Copies to a new storage through the host.
    async fn to_far(&self, engine: &Arc<Engine>, copy: Arc<Storage>) -> Result<Buffer> {
        if self.engine.is_dry() || engine.is_dry() {
            // Nothing has a value. Only the sizes count.
            engine.clear(&copy)?;
            return Ok(Self::whole(engine, copy));
        }
        let mut filling = Filling::new(engine, copy);
        let mut pieces = Pieces::new([self.clone()])?;
        loop {
            let mut failed = None;
            let mut look = |bytes: &[u8]| {
                filling.try_write(bytes).unwrap_or_else(|error| {
                    failed = Some(error);
                    true
                })
            };
            let next = pieces.next(&mut look).await?;
            if let Some(error) = failed {
                return Err(error);
            }
            match next {
                Next::End => return Ok(Self::whole(engine, filling.end())),
                Next::Done => {}
                Next::Kept(bytes) => {
                    filling.write(&bytes).await?;
                    pieces.take_back(bytes);
                }
            }
        }
    }
}
