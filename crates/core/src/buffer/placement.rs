//! Where a buffer's bytes should be: hints and commands.

use std::sync::Arc;

use super::{Buffer, check_source};
use crate::driver::MaybeShared;
use crate::engine::{Handle, block_on};
use crate::error::{Error, Result};
use crate::memory::{Advice, Source, Storage};

/// The operation's name in errors.
const RECOMPUTE: &str = "recompute_with";

/// Keeps a buffer at its place on the device until this is dropped: see [`Buffer::pin`].
#[derive(Debug)]
#[must_use = "the bytes may move again as soon as this is dropped"]
pub struct Pin(Arc<Storage>);

impl Drop for Pin {
    fn drop(&mut self) {
        self.0.unpin();
    }
}

impl Buffer {
    /// Evicts the buffer now, with all buffers that share its bytes: to the host's memory, a store
    /// or the disk. If another copy is valid, nothing is moved. The next command that uses the
    /// buffer restores it.
    ///
    /// # Errors
    /// [`Error::Pinned`] for a pinned or imported buffer; [`Error::Spill`] when neither the host, a
    /// store nor the disk has room; the errors of [`force`](Self::force). After an error the buffer
    /// stays where it is.
    ///
    /// ```no_run
    /// # fn main() -> lapidary_core::Result<()> {
    /// # let gpu = lapidary_core::Gpu::open(Default::default())?;
    /// use lapidary_core::Residency;
    ///
    /// let buffer = gpu.buffer_from(&[1.0_f32, 2.0])?;
    /// buffer.evict()?;
    /// assert_ne!(buffer.residency(), Residency::Device);
    /// assert_eq!(buffer.to_vec::<f32>()?, [1.0, 2.0]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn evict(&self) -> Result<()> {
        block_on("Buffer::evict", self.evict_async())
    }

    /// As [`evict`](Self::evict), as a future: the only form in a browser.
    pub async fn evict_async(&self) -> Result<()> {
        self.engine.here().evict(&self.storage.here()).await
    }

    /// Asks for the buffer to be on the device soon. The queue restores it before the work that is
    /// recorded next. It is a hint: if there is no room, nothing happens.
    ///
    /// # Errors
    /// [`Error::DeviceLost`].
    pub fn prefetch(&self) -> Result<()> {
        self.engine.here().prefetch(&self.storage.here())
    }

    /// Says when the buffer is used next, where its past uses would mislead. The advice only
    /// affects the order of eviction; the last advice counts.
    pub fn advise(&self, advice: Advice) {
        self.storage.here().advise(advice);
    }

    /// Restores the buffer to the device, and keeps it at its place until the [`Pin`] is dropped:
    /// it is neither evicted nor moved. Keep a pin short, because it obstructs compaction and
    /// eviction.
    ///
    /// # Errors
    /// The errors of [`force`](Self::force).
    pub fn pin(&self) -> Result<Pin> {
        block_on("Buffer::pin", self.pin_async())
    }

    /// As [`pin`](Self::pin), as a future: the only form in a browser.
    pub async fn pin_async(&self) -> Result<Pin> {
        let (engine, storage) = (self.engine.here(), self.storage.here().clone());
        if storage.len_bytes() == 0 {
            // An empty buffer has no place.
            engine.force(&storage).await?;
            storage.pin();
        } else {
            let pinned = engine.pin(std::slice::from_ref(&storage), &[]).await?;
            storage.pin();
            drop(pinned);
        }
        Ok(Pin(storage))
    }

    /// Registers a function that can compute the buffer's current bytes again. When memory is
    /// short, the engine drops the bytes. When a command uses the buffer, it computes them again
    /// from `inputs`.
    ///
    /// The function gets the inputs, and returns a new buffer of this size. It runs while work is
    /// under way: it may record commands, but calls that wait return [`Error::Reentered`]. It
    /// should not hold buffers. After a write to an input the bytes are no longer dropped. If they
    /// were dropped before the write, they are lost: [`Error::Recompute`].
    ///
    /// # Errors
    /// [`Error::Buffer`] for a slice, [`Error::Foreign`], [`Error::Pinned`] for an imported buffer,
    /// [`Error::Recompute`] if the buffer is one of the inputs; the errors of
    /// [`force`](Self::force).
    #[cfg(not(target_arch = "wasm32"))]
    pub fn recompute_with(
        &self,
        inputs: &[&Buffer],
        compute: impl Fn(&[Buffer]) -> Result<Buffer> + MaybeShared + 'static,
    ) -> Result<()> {
        block_on(RECOMPUTE, self.recompute_with_async(inputs, compute))
    }

    /// As [`recompute_with`](Self::recompute_with), as a future: the only form in a browser.
    pub async fn recompute_with_async(
        &self,
        inputs: &[&Buffer],
        compute: impl Fn(&[Buffer]) -> Result<Buffer> + MaybeShared + 'static,
    ) -> Result<()> {
        self.check_whole(RECOMPUTE)?;
        let mut parts = Vec::new();
        for input in inputs {
            if !self.engine.may_read(&input.engine, &input.storage) {
                return Err(Error::foreign(RECOMPUTE));
            }
            parts.push((input.offset_bytes, input.size_bytes));
        }
        let storages = inputs.iter().map(|input| input.storage.here().clone());
        let storages = storages.collect();
        let (size_bytes, made_at) = (self.size_bytes, self.tag());
        let engine = self.engine.downgrade();
        let rematerializer = move |storages: &[Arc<Storage>]| {
            // Weak, because the engine owns this function. It is alive while it calls it.
            let gone = || Error::recompute(&made_at, "its device is gone");
            let engine = &engine.upgrade().ok_or_else(gone)?;
            let inputs = parts.iter().zip(storages);
            let inputs = inputs.map(|((offset_bytes, size_bytes), storage)| {
                let storage = Handle::new(storage.clone());
                Buffer::part(engine, storage, *offset_bytes, *size_bytes)
            });
            let made = compute(&inputs.collect::<Vec<_>>())?;
            let is_whole = made.check_whole(RECOMPUTE).is_ok();
            let storage = made.storage.here();
            match is_whole && made.size_bytes == size_bytes && engine.here().owns(&storage) {
                true => Ok(storage.clone()),
                false => {
                    let reason =
                        format!("the function must make {size_bytes} bytes, and made {made}");
                    Err(Error::recompute(&made_at, reason))
                }
            }
        };
        let (storage, rematerializer) = (self.storage.here(), Arc::new(rematerializer));
        (self.engine.here())
            .recompute_with(&storage, storages, rematerializer)
            .await
    }

    /// Gives the buffer a source that has its current bytes. Until the next write to the buffer,
    /// its eviction then costs nothing. The bytes are not compared.
    ///
    /// # Errors
    /// [`Error::Buffer`] for a slice or a source that is too short, [`Error::Pinned`] for an
    /// imported buffer; the errors of [`force`](Self::force).
    pub fn backed_by(&self, source: Source) -> Result<()> {
        block_on("Buffer::backed_by", self.backed_by_async(source))
    }

    /// As [`backed_by`](Self::backed_by), as a future: the only form in a browser.
    pub async fn backed_by_async(&self, source: Source) -> Result<()> {
        const OPERATION: &str = "backed_by";
        self.check_whole(OPERATION)?;
        check_source(OPERATION, &source, self.size_bytes)?;
        self.engine.here().back(&self.storage.here(), source).await
    }
}
