//! Uploads: the bytes go to staging memory at the call, and to their storage in program order.

use std::sync::Arc;

use super::cmd::Cmd;
use super::{Engine, block_on, refusal};
use crate::driver::DriverError;
use crate::error::Result;
use crate::memory::Storage;
use crate::transfer::FEED_BYTES;

impl Engine {
    /// Appends an upload: the bytes are copied before this returns. Offset a multiple of 4; a
    /// length that is not is padded with zeros to 4.
    ///
    /// After an error nothing was written, unless the upload is more than what is fed to the device at
    /// once: then the storage has no value any more.
    pub(crate) fn upload(&self, dst: &Arc<Storage>, offset_bytes: u64, bytes: &[u8]) -> Result<()> {
        debug_assert!(offset_bytes.is_multiple_of(4));
        debug_assert!(offset_bytes + bytes.len() as u64 <= dst.size_bytes());
        self.check_lost()?;
        if self.upload_in_place(dst, offset_bytes, bytes)? {
            return Ok(());
        }
        let mut begun = false;
        let whole = offset_bytes == 0 && bytes.len() as u64 >= dst.len_bytes();
        let staged = self.stage_all(dst, offset_bytes, bytes, whole, &mut begun);
        let staged = block_on("an upload", staged);
        self.end_upload(dst, begun, staged)
    }

    /// As [`upload`](Self::upload), waiting for staging without blocking. Dropped while it waits it
    /// leaves a part of the bytes: it is for storages that nobody knows of before.
    #[cfg(feature = "safetensors")]
    pub(crate) async fn upload_async(
        &self,
        dst: &Arc<Storage>,
        offset_bytes: u64,
        bytes: &[u8],
    ) -> Result<()> {
        debug_assert!(offset_bytes.is_multiple_of(4));
        debug_assert!(offset_bytes + bytes.len() as u64 <= dst.size_bytes());
        self.check_lost()?;
        if self.upload_in_place(dst, offset_bytes, bytes)? {
            return Ok(());
        }
        let mut begun = false;
        let whole = offset_bytes == 0 && bytes.len() as u64 >= dst.len_bytes();
        let staged = self.stage_all(dst, offset_bytes, bytes, whole, &mut begun);
        let staged = staged.await;
        self.end_upload(dst, begun, staged)
    }

    /// `begun`: the first pieces are in the queue.
    fn end_upload(&self, dst: &Arc<Storage>, begun: bool, staged: Result<()>) -> Result<()> {
        if !begun {
            return staged;
        }
        let ended = staged.or_else(|error| {
            // In order, as the pieces are: what comes before them still sees the old value.
            let (dst, cause) = (dst.clone(), Arc::new(error.clone()));
            self.push_one(Cmd::Poison { dst, cause })?;
            Err(error)
        });
        dst.end_write();
        ended
    }

    /// Appends the next part of an upload that began with offset 0, to a storage that nobody knows
    /// of before all of it is there. A multiple of 4 bytes, but for the last part.
    pub(crate) fn upload_more(
        &self,
        dst: &Arc<Storage>,
        offset_bytes: u64,
        bytes: &[u8],
    ) -> Result<()> {
        let end_bytes = offset_bytes + bytes.len() as u64;
        if offset_bytes == 0 && end_bytes >= dst.len_bytes() {
            return self.upload(dst, offset_bytes, bytes);
        }
        self.check_lost()?;
        // Nothing stays in hand while the app works on the next part: others may need the chunk.
        let mut begun = true;
        let staged = self.stage_all(dst, offset_bytes, bytes, offset_bytes == 0, &mut begun);
        block_on("an upload", staged)?;
        if offset_bytes / FEED_BYTES != end_bytes / FEED_BYTES {
            self.run_if_nobody_does();
        }
        Ok(())
    }

    /// `whole`: it is the first part of what replaces all there is. `begun`: the first pieces are in
    /// the queue.
    async fn stage_all(
        &self,
        dst: &Arc<Storage>,
        offset_bytes: u64,
        bytes: &[u8],
        mut whole: bool,
        begun: &mut bool,
    ) -> Result<()> {
        let (mut rest, mut at) = (bytes, offset_bytes);
        let mut staged = Vec::new();
        let is_idle = self.is_idle();
        let (mut tries, mut waiting_bytes) = (0, 0);
        while !rest.is_empty() {
            let piece = self.uploads.stage(rest);
            let piece = piece.map_err(|error| refusal("to write to staging memory", error))?;
            if let Some((region, taken)) = piece {
                let next = at + region.size_bytes;
                staged.push(Cmd::Upload {
                    dst: dst.clone(),
                    offset_bytes: at,
                    region,
                    whole: std::mem::take(&mut whole),
                });
                (rest, at, tries) = (&rest[taken..], next, 0);
                waiting_bytes += taken as u64;
                if waiting_bytes >= FEED_BYTES && !rest.is_empty() {
                    waiting_bytes = 0;
                    self.push_begun(dst, begun, &mut staged)?;
                    self.run_if_nobody_does();
                }
                continue;
            }
            // An error shows again below, to those that make room.
            if is_idle && self.uploads.has_enough() && matches!(self.uploads.wait().await, Ok(true))
            {
                continue;
            }
            match self.uploads.grow(rest.len() as u64).await {
                Ok(true) => continue,
                Ok(false) | Err(DriverError::OutOfMemory | DriverError::OverBudget) => {}
                Err(error) => return Err(self.refused("staging memory", error, dst)),
            }
            self.push_begun(dst, begun, &mut staged)?;
            waiting_bytes = 0;
            self.more_staging(dst, rest.len() as u64, tries).await?;
            tries += 1;
        }
        self.push_staged(dst, staged)
    }

    /// Appends the first pieces of an upload, with more to come.
    fn push_begun(
        &self,
        dst: &Arc<Storage>,
        begun: &mut bool,
        staged: &mut Vec<Cmd>,
    ) -> Result<()> {
        if !staged.is_empty() && !std::mem::replace(begun, true) {
            dst.begin_write();
        }
        self.push_staged(dst, staged.drain(..))
    }

    /// Appends uploads. What was staged on a device that has been replaced since is lost.
    fn push_staged(&self, dst: &Arc<Storage>, staged: impl IntoIterator<Item = Cmd>) -> Result<()> {
        self.push_with(|state| {
            // With the lock: whoever sees the new version appends its reads after this.
            dst.bump_version();
            let (epoch, lost) = (state.staging_epoch, state.staging_lost.clone());
            staged.into_iter().map(move |mut cmd| {
                cmd.lose_staged(epoch, &lost);
                cmd
            })
        })
    }

    /// Waits for room in the staging memory: for a chunk that comes back when its submission is
    /// done, or for memory that others give back. There was none so many times already.
    async fn more_staging(&self, dst: &Arc<Storage>, wanted_bytes: u64, tries: u32) -> Result<()> {
        let refused = |error| self.refused("staging memory", error, dst);
        self.check_lost()?;
        let _turn = self.take_turn().await?;
        self.lock().counters.staging_waits += 1;
        self.walk().await?;
        self.uploads.sweep().map_err(refused)?;
        if self.uploads.wait().await.map_err(refused)? || self.uploads.has_room() {
            return Ok(());
        }
        let tries_again = self.make_way(wanted_bytes, tries).await?;
        match self.uploads.grow(wanted_bytes).await {
            Ok(true) => return Ok(()),
            Ok(false) | Err(DriverError::OutOfMemory | DriverError::OverBudget) => {}
            Err(error) => return Err(refused(error)),
        }
        let left_behind = self.lock().uploads_left_behind();
        if self.uploads.has_idle() || self.uploads.pending_regions() > left_behind {
            // Another thread has a chunk, or has staged what runs with the next walk.
            std::thread::yield_now();
            return Ok(());
        }
        if tries_again || self.was_lowered().await? {
            return Ok(());
        }
        // Everything staged waits for commands that found no room.
        let left = self.lock().left.first_error();
        Err(left.unwrap_or_else(|| refused(DriverError::OutOfMemory)))
    }
}
