//! Where a tensor's bytes are to be: hints, and orders.

use std::sync::Arc;

use super::Tensor;
use crate::engine::block_on;
use crate::error::{Error, Result};
use crate::memory::{Source, Storage};

/// Keeps a tensor where it is on the device until this is dropped.
#[derive(Debug)]
#[must_use = "the tensor is let go as soon as this is dropped"]
pub struct Pin(Arc<Storage>);

impl Drop for Pin {
    fn drop(&mut self) {
        self.0.unpin();
    }
}

impl Tensor {
    /// Puts the tensor out now, with all its views: to the host's memory, to disk, or, if its
    /// bytes are elsewhere already, nowhere. Whoever uses it next brings it back.
    ///
    /// # Errors
    /// [`Error::Pinned`] for one that is pinned or imported; [`Error::Spill`] when neither the host
    /// nor the disk has room; what [`force`](Self::force) says. The tensor stays where it is then.
    ///
    /// ```no_run
    /// # fn main() -> lapidary::Result<()> {
    /// # let gpu = lapidary::Gpu::open(Default::default())?;
    /// use lapidary::Residency;
    ///
    /// let t = gpu.tensor(&[1.0_f32, 2.0], &[2])?;
    /// t.evict()?;
    /// assert_ne!(t.residency(), Residency::Device);
    /// assert_eq!(t.to_vec::<f32>()?, [1.0, 2.0]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn evict(&self) -> Result<()> {
        block_on("Tensor::evict", self.evict_async())
    }

    /// As [`evict`](Self::evict), for browsers.
    ///
    /// # Errors
    /// As [`evict`](Self::evict).
    pub async fn evict_async(&self) -> Result<()> {
        self.engine.evict(&self.storage).await
    }

    /// Asks for the tensor to be on the device soon: it is brought back when the queue comes to
    /// it, ahead of the work that is asked for next.
    ///
    /// # Errors
    /// [`Error::DeviceLost`].
    pub fn prefetch(&self) -> Result<()> {
        self.engine.prefetch(&self.storage)
    }

    /// Keeps the tensor at its place on the device, with all its views, until the [`Pin`] is
    /// dropped: it is neither put out nor moved.
    ///
    /// # Errors
    /// What [`force`](Self::force) says.
    pub fn pin(&self) -> Result<Pin> {
        let pinned = block_on("Tensor::pin", self.engine.pin(&[&self.storage]))?;
        self.storage.pin();
        drop(pinned);
        Ok(Pin(self.storage.clone()))
    }

    /// Lets a source stand in for the elements that the tensor has now: it costs nothing to put out
    /// from now on, until it is written to. The bytes are those of the whole tensor, in row-major order and the
    /// byte order of this machine; they are not compared.
    ///
    /// # Errors
    /// [`Error::Shape`] for a view that does not show all of its memory in order, [`Error::Length`]
    /// for a source that is too short, [`Error::Pinned`] for an imported tensor; what
    /// [`force`](Self::force) says.
    pub fn backed_by(&self, source: Source) -> Result<()> {
        const OPERATION: &str = "backed_by";
        let is_whole = self.is_contiguous()
            && self.layout.offset == 0
            && self.size_bytes() == self.storage.len_bytes();
        if !is_whole {
            return Err(Error::Shape {
                operation: OPERATION,
                reason: "a view does not show all of its memory; back the tensor that it looks at"
                    .into(),
            });
        }
        if let Some(len_bytes) = source.len_bytes() {
            if len_bytes < self.size_bytes() {
                return Err(Error::Length {
                    expected: self.len(),
                    got: (len_bytes / self.dtype.size_bytes()) as usize,
                    shape: self.shape().to_vec(),
                });
            }
        }
        block_on("Tensor::backed_by", self.engine.back(&self.storage, source))
    }
}
