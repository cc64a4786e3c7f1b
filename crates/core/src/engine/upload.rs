//! Uploads: the bytes go to staging memory at the call, and to their storage in program order.

use std::sync::Arc;

use super::cmd::Cmd;
use super::{Engine, block_on, refusal};
use crate::driver::DriverError;
use crate::error::{Error, Result};
use crate::memory::Storage;
use crate::transfer::FEED_BYTES;

const WHAT: &str = "an upload";

/// A call may wait here: it blocks its thread, which nothing may in a browser.
const BLOCKS: bool = cfg!(not(target_arch = "wasm32"));

/// A wait in the middle of an upload, as far as it gets without waiting if it may not.
async fn or_refuse<T>(may_wait: bool, wait: impl Future<Output = Result<T>>) -> Result<T> {
    match may_wait {
        true => wait.await,
        false => block_on(WHAT, wait),
    }
}

/// An upload of several pieces. If it does not end well, or is dropped while it waits, its storage
/// has no value any more.
struct Writing<'a> {
    engine: &'a Arc<Engine>,
    dst: &'a Arc<Storage>,
    begun: bool,
    ended: Option<Result<()>>,
}

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        if !self.begun {
            return;
        }
        let dropped = || Error::Driver {
            what: WHAT,
            message: "it was dropped before its end".into(),
        };
        let ended = self.ended.take().unwrap_or_else(|| Err(dropped()));
        if let Err(error) = ended {
            // In order, as the pieces are: what comes before them still sees the old value.
            let (dst, cause) = (self.dst.clone(), Arc::new(error));
            // A device that is lost takes no commands, and says so to whoever reads.
            let _ = self.engine.push_one(Cmd::Poison { dst, cause });
        }
        self.dst.end_write();
    }
}

impl Engine {
    /// Appends an upload: the bytes are copied before this returns. Offset a multiple of 4; a
    /// length that is not is padded with zeros to 4.
    ///
    /// After an error nothing was written, unless the upload is more than what is fed to the device
    /// at once, or was left waiting for staging memory: then the storage has no value any more.
    pub fn upload(
        self: &Arc<Self>,
        dst: &Arc<Storage>,
        offset_bytes: u64,
        bytes: &[u8],
    ) -> Result<()> {
        if self.begin_upload(dst, offset_bytes, bytes)? {
            return Ok(());
        }
        block_on(WHAT, self.stage_whole(dst, offset_bytes, bytes, BLOCKS))
    }

    /// As [`upload`](Self::upload), for a browser too: it waits for staging memory without
    /// blocking.
    pub async fn upload_async(
        self: &Arc<Self>,
        dst: &Arc<Storage>,
        offset_bytes: u64,
        bytes: &[u8],
    ) -> Result<()> {
        if self.begin_upload(dst, offset_bytes, bytes)? {
            return Ok(());
        }
        self.stage_whole(dst, offset_bytes, bytes, true).await
    }

    /// Uploads in place where that can be done.
    fn begin_upload(
        self: &Arc<Self>,
        dst: &Arc<Storage>,
        offset_bytes: u64,
        bytes: &[u8],
    ) -> Result<bool> {
        debug_assert!(offset_bytes.is_multiple_of(4));
        debug_assert!(offset_bytes + bytes.len() as u64 <= dst.size_bytes());
        self.check_lost()?;
        self.upload_in_place(dst, offset_bytes, bytes)
    }

    async fn stage_whole(
        self: &Arc<Self>,
        dst: &Arc<Storage>,
        offset_bytes: u64,
        bytes: &[u8],
        may_wait: bool,
    ) -> Result<()> {
        let mut writing = Writing {
            engine: self,
            dst,
            begun: false,
            ended: None,
        };
        let whole = offset_bytes == 0 && bytes.len() as u64 >= dst.len_bytes();
        let begun = &mut writing.begun;
        let staged = self.stage_all(dst, offset_bytes, bytes, whole, begun, may_wait);
        let staged = staged.await;
        writing.ended = Some(staged.clone());
        drop(writing);
        staged
    }

    /// Appends the next part of an upload that began with offset 0, to a storage that nobody knows
    /// of before all of it is there. A multiple of 4 bytes, but for the last part.
    pub fn upload_more(
        self: &Arc<Self>,
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
        let (whole, mut begun) = (offset_bytes == 0, true);
        let staged = self.stage_all(dst, offset_bytes, bytes, whole, &mut begun, BLOCKS);
        block_on(WHAT, staged)?;
        if offset_bytes / FEED_BYTES != end_bytes / FEED_BYTES {
            self.run_if_nobody_does();
        }
        Ok(())
    }

    /// `whole`: it is the first part of what replaces all there is. `begun`: the first pieces are
    /// in the queue. Unless it `may_wait`, what would wait is refused.
    async fn stage_all(
        self: &Arc<Self>,
        dst: &Arc<Storage>,
        offset_bytes: u64,
        bytes: &[u8],
        mut whole: bool,
        begun: &mut bool,
        may_wait: bool,
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
            // What the driver refuses at once is asked for below, where room is made for it.
            if matches!(self.uploads.grow_now(rest.len() as u64), Ok(true)) {
                continue;
            }
            if may_wait && self.driver.may_wait() {
                // The app may keep this unpolled from here on. What is staged then runs with the
                // next execution pass, or it would keep its chunks from everybody.
                self.push_begun(dst, begun, &mut staged)?;
                waiting_bytes = 0;
            }
            // An error shows again below, to those that make room.
            let wait = async { Ok(matches!(self.uploads.wait().await, Ok(true))) };
            if is_idle && self.uploads.has_enough() && or_refuse(may_wait, wait).await? {
                continue;
            }
            let grown = async { Ok(self.uploads.grow(rest.len() as u64).await) };
            match or_refuse(may_wait, grown).await? {
                Ok(true) => continue,
                Ok(false) | Err(DriverError::OutOfMemory | DriverError::OverBudget) => {}
                Err(error) => return Err(self.refused("staging memory", error, dst)),
            }
            self.push_begun(dst, begun, &mut staged)?;
            waiting_bytes = 0;
            let wait = self.more_staging(dst, rest.len() as u64, tries);
            or_refuse(may_wait, wait).await?;
            tries += 1;
        }
        self.push_staged(dst, staged)
    }

    /// Appends the first pieces of an upload, with more to come.
    fn push_begun(
        self: &Arc<Self>,
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
    fn push_staged(
        self: &Arc<Self>,
        dst: &Arc<Storage>,
        staged: impl IntoIterator<Item = Cmd>,
    ) -> Result<()> {
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
    async fn more_staging(
        self: &Arc<Self>,
        dst: &Arc<Storage>,
        wanted_bytes: u64,
        tries: u32,
    ) -> Result<()> {
        self.check_lost()?;
        let execution_lock = self.lock_execution().await?;
        let dst = dst.clone();
        let work = move |engine: Arc<Self>| async move {
            engine.find_staging(&dst, wanted_bytes, tries).await
        };
        self.with_execution_lock(execution_lock, work).await
    }

    /// The same, for who has the execution lock.
    async fn find_staging(&self, dst: &Arc<Storage>, wanted_bytes: u64, tries: u32) -> Result<()> {
        let refused = |error| self.refused("staging memory", error, dst);
        self.lock().counters.staging_waits += 1;
        self.execute().await?;
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
            // Another thread has a chunk, or has staged what runs with the next execution pass.
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
