//! Appending commands and starting passes: the calls of the other layers, in the order of the
//! program.

use std::collections::VecDeque;
use std::panic::Location;
use std::sync::Arc;

use parking_lot::MutexGuard;

use super::handle::Engine;
use super::kernel::fused::Fused;
use super::kernel::{Launch, Methods, Role};
use super::pass::Pass;
use super::queue::cmd::Cmd;
use super::queue::fusion::Fuse;
use super::queue::staging_loss::StagingLoss;
use super::state::State;
use super::{block_on, direct, read, upload};
use crate::driver::BoxFuture;
use crate::error::{Error, Result};
use crate::memory::{MadeFor, Storage};
use crate::transfer::{FEED_BYTES, Piece, Sink};

impl Engine {
    /// Submits every later command alone and compacts after each one.
    #[cfg(any(test, feature = "sim"))]
    pub(crate) fn compact_always(&self) {
        self.lock().pace.submit_each();
    }

    /// Names a storage. If the storage has a block, the block's owner changes too.
    pub fn name(&self, storage: &Storage, name: &str) {
        // A loan keeps its owner's name.
        if storage.share() != self.share_id() {
            return;
        }
        storage.set_name(name);
        if storage.slot().is_some() {
            self.lock().memory.renamed(storage);
        }
    }

    /// Appends the launch of a kernel.
    ///
    /// # Errors
    /// - `Foreign` for a storage of another engine.
    /// - `Lent` for a write to a storage of another share.
    /// - `NeverFits` if the operands need more bindings than a dispatch may have.
    /// - `Driver` for more workgroups than a dispatch may have.
    /// - `DeviceLost`.
    #[track_caller]
    pub fn launch(self: &Arc<Self>, mut launch: Launch) -> Result<()> {
        launch.methods = Methods::from_buf([MadeFor::method_now()]);
        if let Err(error) = self.check_launch(&launch) {
            let at = MadeFor::or(Location::caller());
            let operation = self.lock().operation;
            let by = || {
                let name = launch.name(operation);
                format!("{name} at {}:{}", at.file(), at.line())
            };
            return Err(error.asked_by(by));
        }
        let at = Location::caller();
        self.append(|list, _| {
            // A thread that sees the new version appends its reads after this command.
            launch.bump_versions(at);
            list.push_back(Cmd::Launch(launch));
        })
    }

    /// Appends a clear of the whole storage to zero.
    pub fn clear(self: &Arc<Self>, storage: &Arc<Storage>) -> Result<()> {
        self.check_may_write(storage)?;
        // Not by `push_one`: a short command would be moved at the size of a launch.
        self.append(|list, _| {
            list.push_back(Cmd::Clear {
                dst: storage.clone(),
                method: MadeFor::method_now(),
            });
        })
    }

    /// Runs all appended commands. Returns once they are submitted, before the device has run them.
    /// Commands that find no room stay queued. Only the users of their results get the error.
    pub(crate) async fn flush(self: &Arc<Self>) -> Result<()> {
        self.check_lost()?;
        let work = move |pass: Pass| async move { pass.execute().await };
        let is_done = || {
            let least = self.least_priority();
            self.lock().is_none_left(least)
        };
        in_span!("flush", {}, Pass::run_unless(self, is_done, work)).await
    }

    /// Runs the commands that `storage` needs. The error is the storage's own.
    pub async fn force(self: &Arc<Self>, storage: &Arc<Storage>) -> Result<()> {
        let storage = storage.clone();
        let wanted = storage.clone();
        self.check_lost()?;
        let work = move |pass: Pass| async move {
            pass.execute_for(std::slice::from_ref(&storage), &[])
                .await?;
            // The next pass, which may be another thread's, forgets which commands this one left
            // behind.
            pass.error_of(&storage)
        };
        let is_done = || {
            let (state, least) = (self.lock(), self.least_priority());
            let is_none_left =
                state.is_none_left(least) && !state.leaves(std::slice::from_ref(&wanted), &[]);
            drop(state);
            is_none_left && self.error_of(&wanted).is_ok()
        };
        Pass::run_unless(self, is_done, work).await
    }

    /// Waits until the device has run all appended commands.
    pub async fn finish(self: &Arc<Self>) -> Result<()> {
        self.flush().await?;
        self.wait_idle().await
    }

    /// Appends commands, without any other between them. `add` runs under the lock, and also gets
    /// the loss of staged bytes.
    pub(super) fn append(
        self: &Arc<Self>,
        add: impl FnOnce(&mut VecDeque<Cmd>, &StagingLoss),
    ) -> Result<()> {
        self.check_lost()?;
        let mut state = self.lock();
        let is_recording = self.is_recording();
        let all = &mut *state;
        add(all.queue.append_list(is_recording), &all.staging_loss);
        self.after_append(state, is_recording);
        Ok(())
    }

    pub(super) fn push_one(self: &Arc<Self>, cmd: Cmd) -> Result<()> {
        self.append(|list, _| list.push_back(cmd))
    }

    /// Starts a pass if enough commands were appended. `is_recording`: this thread runs a
    /// rematerializer, which starts none.
    fn after_append(self: &Arc<Self>, mut state: MutexGuard<'_, State>, is_recording: bool) {
        state.counters.peak_pending_bytes = state.pending_bytes().peak;
        if is_recording {
            return;
        }
        let all = &mut *state;
        let may_begin = || all.driver.caps().begins_early() && all.pace.is_idle(&all.driver);
        if all.queue.is_time_to_run(may_begin) {
            let is_full = all.queue.is_full();
            drop(state);
            self.run_queue(is_full);
        }
    }

    /// Runs the queue. A thread that fills the queue waits for it.
    #[cold]
    fn run_queue(self: &Arc<Self>, is_full: bool) {
        if is_full {
            // An error belongs to the tensors that it concerns, so it is not returned here.
            let _ = block_on("a full queue", self.flush());
            return;
        }
        self.try_run_queue();
        self.lock().queue.wait_for_more();
    }

    /// Runs the queue, unless another thread is running it. Errors belong to the storages that they
    /// concern.
    pub(crate) fn try_run_queue(self: &Arc<Self>) {
        if let Some(lock) = Pass::try_lock(self) {
            let work = move |pass: Pass| async move { pass.execute_early().await };
            let _ = block_on("an automatic flush", Pass::run_locked(self, lock, work));
        }
    }

    /// Whether the device has run all appended commands.
    pub(super) fn is_idle(&self) -> bool {
        let state = self.lock();
        state.queue.is_empty() && state.is_device_idle()
    }

    /// Whether the device has finished all submissions. The queue may have commands.
    pub fn is_device_idle(&self) -> bool {
        // Only polling shows what has finished. `check_lost` reports a loss.
        let _ = self.driver.poll();
        self.lock().is_device_idle()
    }

    /// The most bytes that the staging of uploads may take now.
    pub fn staging_limit_bytes(&self) -> u64 {
        self.uploads.limit_bytes()
    }

    /// The most bindings of storages in a dispatch.
    pub fn most_windows(&self) -> u64 {
        u64::from(self.caps().most_windows())
    }

    /// Refuses a read in a dry run, which has no values.
    #[track_caller]
    pub fn check_has_values(&self) -> Result<()> {
        if !self.is_dry() {
            return Ok(());
        }
        let at = Location::caller();
        Err(Error::DryRunRead {
            at: format!("{}:{}", at.file(), at.line()),
        })
    }

    /// Counts the bytes of an upload, in a dry run.
    fn count_upload(&self, bytes: &[u8]) {
        if self.is_dry() {
            if let Some(account) = &mut self.lock().dry {
                account.uploaded_bytes += bytes.len() as u64;
            }
        }
    }

    fn check_launch(&self, launch: &Launch) -> Result<()> {
        let caps = self.caps();
        let mut are_single = true;
        for (index, arg) in launch.args.iter().enumerate() {
            if !arg.storage.belongs_to(self.dead_list()) {
                return Err(Error::foreign("a launch"));
            }
            if launch.program.role(index) != Role::Read {
                self.check_may_write(&arg.storage)?;
            }
            are_single &= launch.shown_bytes(index) <= caps.max_binding_bytes;
        }
        for page in launch.page_storages() {
            if !page.belongs_to(self.dead_list()) {
                return Err(Error::foreign("a launch"));
            }
        }
        // Pages may need more than the one that their operand counts.
        let pages = launch.pages.as_ref();
        let more = pages.map_or(0, |pages| pages.together() as u64 - 1);
        let most = self.most_windows().saturating_sub(more);
        // Nearly always each operand has one window.
        let is_small = are_single && launch.args.len() as u64 <= most;
        if !is_small && launch.windows(caps.max_binding_bytes) > most {
            // Each window counts whole, because no other operand can use the rest of it.
            return Err(Error::never_fits(
                "a total binding size",
                launch.windows(caps.max_binding_bytes) * caps.max_binding_bytes,
                most * caps.max_binding_bytes,
                "Work on slices of the operands",
            ));
        }
        if launch.groups.iter().any(|&groups| groups > caps.max_groups) {
            return Err(Error::driver(
                "a dispatch",
                format!(
                    "{:?} workgroups, but the device allows at most {} in each direction",
                    launch.groups, caps.max_groups
                ),
            ));
        }
        Ok(())
    }

    /// Appends a test operator with these operands, each storage once.
    #[cfg(any(test, feature = "sim"))]
    pub(crate) fn touch(self: &Arc<Self>, operands: Vec<(Arc<Storage>, Role)>) -> Result<()> {
        self.push_one(Cmd::Touch(operands))
    }

    /// Sends all later commands through `fuse`.
    pub fn fuse_with(&self, fuse: Fuse) {
        self.lock().queue.fuse_with(fuse);
    }

    /// The compiled fused kernels that still have holders.
    pub fn fused(&self) -> Vec<Arc<Fused>> {
        self.lock().queue.fused_kernels()
    }

    /// Appends an upload. The bytes are copied before the call returns. The offset is a multiple of
    /// 4. Zeros pad the length to a multiple of 4.
    ///
    /// After an error nothing was written, with two exceptions. The upload may be longer than one
    /// feed to the device, or may have waited for staging memory. Then the storage is poisoned.
    pub fn upload(
        self: &Arc<Self>,
        dst: &Arc<Storage>,
        offset_bytes: u64,
        bytes: &[u8],
    ) -> Result<()> {
        if self.begin_upload(dst, offset_bytes, bytes)? {
            return Ok(());
        }
        upload::stage_now(self, dst, offset_bytes, bytes)
    }

    /// As [`upload`](Self::upload), but asynchronous, and so for browsers too: it waits for staging
    /// memory without blocking.
    pub async fn upload_async(
        self: &Arc<Self>,
        dst: &Arc<Storage>,
        offset_bytes: u64,
        bytes: &[u8],
    ) -> Result<()> {
        if self.begin_upload(dst, offset_bytes, bytes)? {
            return Ok(());
        }
        upload::stage_whole(self, dst, offset_bytes, bytes, true).await
    }

    /// Uploads in place if that is possible. Returns whether it was.
    fn begin_upload(
        self: &Arc<Self>,
        dst: &Arc<Storage>,
        offset_bytes: u64,
        bytes: &[u8],
    ) -> Result<bool> {
        debug_assert!(offset_bytes.is_multiple_of(4));
        debug_assert!(offset_bytes + bytes.len() as u64 <= dst.size_bytes());
        self.check_lost()?;
        self.check_may_write(dst)?;
        self.count_upload(bytes);
        direct::upload_in_place(self, dst, offset_bytes, bytes)
    }

    /// Appends the next part of an upload that began at offset 0. Nothing else may use the storage
    /// until all of it is uploaded. Each part but the last has a multiple of 4 bytes.
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
        self.count_upload(bytes);
        let staged = upload::stage_part(self, dst, offset_bytes, bytes, upload::BLOCKS);
        block_on(upload::WHAT, staged)?;
        if offset_bytes / FEED_BYTES != end_bytes / FEED_BYTES {
            self.try_run_queue();
        }
        Ok(())
    }

    /// Reads bytes (any offset and length) after all earlier commands, and hands them to `sink` in
    /// order, piece by piece. The read is appended at the call, not at the first poll. The thread
    /// that executes the queue calls the sink, and the sink must not call the engine.
    #[track_caller]
    pub(crate) fn read_to(
        self: &Arc<Self>,
        src: &Arc<Storage>,
        whole: Piece,
        sink: Sink,
    ) -> Result<BoxFuture<'static, Result<()>>> {
        self.check_has_values()?;
        let wanted = read::begin_read(self, src, whole, self.readbacks.piece_bytes(), sink)?;
        let (engine, src) = (self.clone(), src.clone());
        Ok(Box::pin(async move {
            read::finish_read(&engine, &src, &wanted).await
        }))
    }
}

/// The next bytes of a storage that is filled in order, from offset 0 on. Nothing else may use the
/// storage until all of it is there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UploadPart<'a> {
    pub(crate) offset_bytes: u64,
    /// A multiple of 4 bytes, except for the last part.
    pub(crate) bytes: &'a [u8],
}

impl UploadPart<'_> {
    /// Writes the bytes to the storage's slab, if that needs no wait for another thread. Otherwise
    /// returns `false`, and nothing is written.
    pub(crate) fn write_in_place(self, engine: &Arc<Engine>, dst: &Arc<Storage>) -> Result<bool> {
        engine.begin_upload(dst, self.offset_bytes, self.bytes)
    }

    /// Writes the bytes through staging memory.
    pub(crate) async fn stage(self, engine: &Arc<Engine>, dst: &Arc<Storage>) -> Result<()> {
        upload::stage_part(engine, dst, self.offset_bytes, self.bytes, true).await?;
        engine.try_run_queue();
        Ok(())
    }
}
