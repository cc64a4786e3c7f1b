//! Appending commands, and having the queue run: what the other layers ask of the engine, and what
//! comes of it in the order of the calls.

use std::collections::VecDeque;
use std::sync::{Arc, MutexGuard};

use super::block_on;
use super::cmd::Cmd;
use super::fused::Fused;
use super::fusion::Fuse;
use super::handle::Engine;
use super::kernel::Launch;
#[cfg(any(test, feature = "sim"))]
use super::kernel::Role;
use super::pass::Pass;
use super::state::State;
use super::{direct, read, upload};
use crate::driver::BoxFuture;
use crate::error::{Error, Result};
use crate::memory::Storage;
use crate::transfer::{FEED_BYTES, Piece, Sink, refusal};

impl Engine {
    /// From now on every command is submitted alone, and all that can be moved is moved after it.
    #[cfg(any(test, feature = "sim"))]
    pub(crate) fn compact_always(&self) {
        self.lock().pace.submit_each();
    }

    /// A storage was given a name: if it has a block already, that is another holder's now.
    pub fn renamed(&self, storage: &Storage) {
        if storage.slot().is_some() {
            self.lock().memory.renamed(storage);
        }
    }

    /// Appends a kernel.
    ///
    /// # Errors
    /// `Foreign` for a storage of another engine, `NeverFits` when the operands need more bindings
    /// than a dispatch has, `Driver` for more workgroups than one takes, `DeviceLost`.
    pub fn launch(self: &Arc<Self>, launch: Launch) -> Result<()> {
        self.check_launch(&launch)?;
        let mut state = self.to_append()?;
        // With the lock: whoever sees the new version appends its reads after this.
        launch.bump_versions();
        self.end_of(&mut state).push_back(Cmd::Launch(launch));
        self.appended(state);
        Ok(())
    }

    /// Appends a clear of the whole storage to zero.
    pub fn clear(self: &Arc<Self>, storage: &Arc<Storage>) -> Result<()> {
        // Spelled out, a short command is not moved as if it were a long one.
        let mut state = self.to_append()?;
        self.end_of(&mut state)
            .push_back(Cmd::Clear(storage.clone()));
        self.appended(state);
        Ok(())
    }

    /// Runs all that was appended. Returns once it is submitted, not once it is done. Commands
    /// that find no room stay queued: their error is for those who want their results.
    pub(crate) async fn flush(self: &Arc<Self>) -> Result<()> {
        self.check_lost()?;
        let work = move |pass: Pass| async move { pass.execute().await };
        in_span!("flush", {}, Pass::run(self, work)).await
    }

    /// Runs what `storage` needs; the error is the storage's own.
    pub async fn force(self: &Arc<Self>, storage: &Arc<Storage>) -> Result<()> {
        self.check_lost()?;
        let storage = storage.clone();
        let work = move |pass: Pass| async move {
            pass.execute().await?;
            // The next execution pass, of whichever thread, will forget what this one has left
            // behind.
            pass.error_of(&storage)
        };
        Pass::run(self, work).await
    }

    /// Waits until everything submitted so far is done.
    pub(super) async fn wait_idle(&self) -> Result<()> {
        let last = self.lock().pace.last().cloned();
        if let Some(submission) = last {
            let waited = self.driver.wait(&submission.done).await;
            self.check_lost()?;
            waited.map_err(|error| refusal("to wait for a submission", error))?;
        }
        self.driver.settle();
        Ok(())
    }

    /// Waits until the device has done everything that was appended.
    pub async fn finish(self: &Arc<Self>) -> Result<()> {
        self.flush().await?;
        self.wait_idle().await
    }

    /// Appends commands, with nobody's between them.
    pub(super) fn push(self: &Arc<Self>, cmds: impl IntoIterator<Item = Cmd>) -> Result<()> {
        self.push_with(|_| cmds)
    }

    /// Appends commands that depend on the state of then.
    pub(super) fn push_with<C: IntoIterator<Item = Cmd>>(
        self: &Arc<Self>,
        make: impl FnOnce(&State) -> C,
    ) -> Result<()> {
        let mut state = self.to_append()?;
        let cmds = make(&state);
        self.end_of(&mut state).extend(cmds);
        self.appended(state);
        Ok(())
    }

    pub(super) fn push_one(self: &Arc<Self>, cmd: Cmd) -> Result<()> {
        let mut state = self.to_append()?;
        self.end_of(&mut state).push_back(cmd);
        self.appended(state);
        Ok(())
    }

    /// The state, for commands to be appended.
    fn to_append(&self) -> Result<MutexGuard<'_, State>> {
        self.check_lost()?;
        Ok(self.lock())
    }

    /// Where this thread's commands go.
    fn end_of<'a>(&self, state: &'a mut State) -> &'a mut VecDeque<Cmd> {
        state.queue.end(self.is_recording())
    }

    /// Commands were appended: lets them run if it is time.
    fn appended(self: &Arc<Self>, mut state: MutexGuard<'_, State>) {
        state.notice_pending();
        if self.is_recording() {
            return;
        }
        let State {
            queue,
            pace,
            driver,
            ..
        } = &mut *state;
        if !queue.is_time_to_run(|| driver.caps().begins_early() && pace.is_idle(driver)) {
            return;
        }
        let is_full = queue.is_full();
        drop(state);
        self.run_appended(is_full);
    }

    /// It is time that what waits runs. Who fills the queue waits for that.
    #[cold]
    fn run_appended(self: &Arc<Self>, is_full: bool) {
        if is_full {
            // Whatever goes wrong here belongs to the tensors concerned.
            let _ = block_on("a full queue", self.flush());
            return;
        }
        self.run_if_nobody_does();
        self.lock().queue.wait_for_more();
    }

    /// Lets what was appended run, unless somebody does anyway.
    pub(super) fn run_if_nobody_does(self: &Arc<Self>) {
        if let Some(pass) = Pass::try_begin(self) {
            let _ = block_on("an automatic flush", pass.execute_early());
        }
    }

    /// Has the device done everything that was appended so far?
    pub(super) fn is_idle(&self) -> bool {
        let state = self.lock();
        state.queue.is_empty() && state.is_device_idle()
    }

    /// How many bindings of storages a dispatch has, at most.
    pub fn most_windows(&self) -> u64 {
        // One fewer than the limit: some drivers miscount. A layout counts up to 255.
        let most = self.caps().max_storage_bindings.saturating_sub(1);
        u64::from(most.min(u8::MAX.into()))
    }

    fn check_launch(&self, launch: &Launch) -> Result<()> {
        let caps = self.caps();
        let mut are_single = true;
        for (index, arg) in launch.args.iter().enumerate() {
            if !self.owns(&arg.storage) {
                return Err(Error::Foreign {
                    operation: "a kernel",
                });
            }
            are_single &= launch.shown_bytes(index) <= caps.max_binding_bytes;
        }
        let most = self.most_windows();
        // As nearly always: one window an operand.
        let is_small = are_single && launch.args.len() as u64 <= most;
        if !is_small && launch.windows(caps.max_binding_bytes) > most {
            // Each window counts whole: what it leaves unused is no use to another operand.
            return Err(Error::NeverFits {
                what: "what the bindings of one kernel show",
                requested_bytes: launch.windows(caps.max_binding_bytes) * caps.max_binding_bytes,
                limit_bytes: most * caps.max_binding_bytes,
                hint: "Work on slices of them",
            });
        }
        if launch.groups.iter().any(|&groups| groups > caps.max_groups) {
            return Err(Error::Driver {
                what: "a dispatch",
                message: format!(
                    "{:?} workgroups, at most {}",
                    launch.groups, caps.max_groups
                ),
            });
        }
        Ok(())
    }

    /// Appends a dummy operator with these operands, each storage once.
    #[cfg(any(test, feature = "sim"))]
    pub(crate) fn touch(self: &Arc<Self>, operands: Vec<(Arc<Storage>, Role)>) -> Result<()> {
        self.push_one(Cmd::Touch(operands))
    }

    /// From now on commands go through `fuse`.
    pub fn fuse_with(&self, fuse: Fuse) {
        self.lock().queue.fuse_with(fuse);
    }

    /// The fused kernels that were compiled and are still kept.
    pub fn fused(&self) -> Vec<Arc<Fused>> {
        self.lock().queue.fused_kernels()
    }

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
        block_on(
            upload::WHAT,
            upload::stage_whole(self, dst, offset_bytes, bytes, upload::BLOCKS),
        )
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
        upload::stage_whole(self, dst, offset_bytes, bytes, true).await
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
        direct::upload_in_place(self, dst, offset_bytes, bytes)
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
        let staged = upload::stage_all(
            self,
            dst,
            offset_bytes,
            bytes,
            whole,
            &mut begun,
            upload::BLOCKS,
        );
        block_on(upload::WHAT, staged)?;
        if offset_bytes / FEED_BYTES != end_bytes / FEED_BYTES {
            self.run_if_nobody_does();
        }
        Ok(())
    }

    /// Reads bytes (any offset and length), once everything appended before has run, and hands them
    /// to `sink` piece by piece, in order. The read is appended at the call, not at the first poll.
    /// The sink is called from whichever thread executes the queue, and must not call the engine.
    pub(crate) fn read_to(
        self: &Arc<Self>,
        src: &Arc<Storage>,
        whole: Piece,
        sink: Sink,
    ) -> Result<BoxFuture<'static, Result<()>>> {
        let wanted = read::begin_read(self, src, whole, self.readbacks.piece_bytes(), sink)?;
        let (engine, src) = (self.clone(), src.clone());
        Ok(Box::pin(async move {
            read::finish_read(&engine, &src, &wanted).await
        }))
    }

    /// Shows bytes of a storage where they lie, once everything appended before has run. `false`
    /// where that cannot be: then `look` was not called, and a read does it. The execution lock is
    /// held meanwhile.
    #[cfg(not(target_arch = "wasm32"))]
    pub(crate) fn show_in_place(
        self: &Arc<Self>,
        src: &Arc<Storage>,
        piece: Piece,
        look: &mut dyn FnMut(&[u8]),
    ) -> Result<bool> {
        direct::show_in_place(self, src, piece, look)
    }

    /// Shows bytes (any offset and length) to `look` where they lie or arrive, once everything
    /// appended before has run; where they cannot be seen there, hands them to `sink` instead, as
    /// [`read_to`](Self::read_to) does, and returns `false`. What waits for the device is refused
    /// inside `look`, on this thread.
    #[cfg(not(target_arch = "wasm32"))]
    pub(crate) fn show(
        self: &Arc<Self>,
        src: &Arc<Storage>,
        whole: Piece,
        sink: Sink,
        look: &mut dyn FnMut(&[u8]),
    ) -> Result<bool> {
        let mut look = |bytes: &[u8]| self.call_theirs(|| look(bytes));
        if self.show_in_place(src, whole, &mut look)? {
            return Ok(true);
        }
        let (_, size_bytes) = whole.words();
        let shows = !self.caps().maps_slabs && self.readbacks.shows(size_bytes);
        let piece_bytes = match shows {
            true => size_bytes,
            false => self.readbacks.piece_bytes(),
        };
        let wanted = read::begin_read(self, src, whole, piece_bytes, sink)?;
        block_on("a read", async {
            if !shows {
                read::finish_read(self, src, &wanted).await?;
                return Ok(false);
            }
            // What is to be shown is left where it arrives.
            read::submit_read(self, src, &wanted, false).await?;
            let shown = self.readbacks.show(&wanted, &mut look).await;
            self.check_lost()?;
            let is_shown = shown.map_err(|error| refusal("a read", error))?;
            if !is_shown {
                read::take_in(self, &wanted).await?;
            }
            Ok(is_shown)
        })
    }
}
