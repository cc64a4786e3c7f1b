//! Transfers without staging, where host and device share memory: a slab is mapped where it lies.
//!
//! While a slab is mapped no submission may name it, so both directions need the slab idle and the
//! execution lock: nobody else encodes meanwhile. In exchange the bytes are copied once, at the
//! speed of memory.

use std::sync::Arc;

use super::cmd::Cmd;
use super::state::State;
use super::{Engine, block_on, refusal};
use crate::driver::{BufferId, DriverResult, MapMode};
use crate::error::Result;
use crate::memory::{Place, Storage};
use crate::transfer::{Piece, Reading};

/// Uploads from this on ask the device whether a slab is idle by now; those below go by what is
/// known, since their copy out of staging costs hardly more than the question.
const LARGE_BYTES: usize = 32 << 10;

/// A slab that is mapped, or about to be, until this is dropped: also if the execution pass is
/// dropped while it waits.
pub(super) struct Mapped<'a>(pub(super) &'a Engine, pub(super) BufferId);

impl Drop for Mapped<'_> {
    fn drop(&mut self) {
        self.0.driver.unmap(self.1);
    }
}

impl Engine {
    /// Uploads by mapping the place of a storage, or the one it gets. `false` where that cannot be:
    /// then nothing is lost, and staging does it.
    pub(super) fn upload_in_place(
        &self,
        dst: &Arc<Storage>,
        offset_bytes: u64,
        bytes: &[u8],
    ) -> Result<bool> {
        // What is looked for is looked for by ops, in the order of the queue.
        if !self.caps().maps_slabs || bytes.is_empty() || self.wanted.is_some() {
            return Ok(false);
        }
        let Some(_execution_lock) = self.execution_lock.try_lock() else {
            return Ok(false);
        };
        let is_fresh = dst.slot().is_none() && Arc::strong_count(dst) == 1;
        let fresh = match is_fresh {
            true if offset_bytes > 0 => return Ok(false),
            true => self.place_now(dst)?,
            false => None,
        };
        let find = || {
            let mut state = self.lock();
            let completed = self.driver.completed();
            let place = match is_fresh {
                true => fresh.filter(|&place| state.memory.idle(place, completed) == Some(true)),
                false => state.begin_write_in_place(dst, completed),
            };
            if place.is_some() {
                state.memory.uploaded(dst, bytes.len() as u64);
            }
            place
        };
        let mut found = find();
        if found.is_none() && bytes.len() >= LARGE_BYTES {
            // What was finished meanwhile makes slabs idle; a loss shows below.
            let _ = self.driver.poll();
            self.check_lost()?;
            found = find();
        }
        let Some(place) = found else {
            return Ok(false);
        };
        let at = place.offset_bytes + offset_bytes;
        let written = match self.driver.write_now(place.buffer, at, bytes) {
            Some(written) => written,
            None => block_on("an upload", async {
                Ok(self.write_in_place(place.buffer, at, bytes).await)
            })?,
        };
        self.check_lost()?;
        Ok(written.is_ok())
    }

    /// A place for a storage without waiting for its first command.
    fn place_now(&self, storage: &Arc<Storage>) -> Result<Option<Place>> {
        for _ in 0..2 {
            {
                let mut state = self.lock();
                state.free_dead();
                let placed = state.memory.place(storage);
                state.memory.anywhere = false;
                if let Ok(Some(place)) = placed {
                    return Ok(Some(place));
                }
            }
            if block_on("an upload", self.make_room(storage))?.is_err() {
                break;
            }
        }
        self.lock().memory.anywhere = false;
        Ok(None)
    }

    async fn write_in_place(&self, buffer: BufferId, at: u64, bytes: &[u8]) -> DriverResult<()> {
        // A mapping starts at a multiple of 8.
        let (map_at, end) = (at & !7, (at + bytes.len() as u64).next_multiple_of(4));
        let signal = self
            .driver
            .map(buffer, MapMode::Write, map_at, end - map_at)?;
        let _mapped = Mapped(self, buffer);
        self.driver.wait(&signal).await?;
        self.driver.write_mapped(buffer, at, bytes)
    }

    /// Maps a range of an idle slab and hands it to the reading at the head of the queue.
    pub(super) async fn read_in_place(
        &self,
        reading: &Arc<Reading>,
        piece: Piece,
        place: Place,
    ) -> Result<()> {
        if !self.lock().batch.is_empty() {
            // A refusal would leave nothing to read: look again.
            return self.submit();
        }
        if self.lock().memory.idle(place, self.driver.completed()) == Some(false) {
            let waited = self.wait_idle().await;
            self.check_lost()?;
            if let Err(error) = waited {
                reading.fail(error);
                self.lock().pop_head();
                return Ok(());
            }
        }
        let deliver = |bytes: &[u8]| reading.deliver(bytes);
        let read = self.look(place, piece, deliver).await;
        self.check_lost()?;
        if let Err(error) = read {
            reading.fail(refusal("to map a slab", error));
        }
        // The command has been carried out here.
        let mut state = self.lock();
        if let Some(Cmd::Read { src, .. }) = state.pop_head() {
            state.memory.was_read(&src, piece.size_bytes);
        }
        Ok(())
    }

    /// Shows bytes of a storage where they lie, once everything appended before has run. `false`
    /// where that cannot be: then `look` was not called, and a read does it. The execution lock is
    /// held meanwhile.
    #[cfg(not(target_arch = "wasm32"))]
    pub(crate) fn show_in_place(
        &self,
        src: &Arc<Storage>,
        piece: Piece,
        look: &mut dyn FnMut(&[u8]),
    ) -> Result<bool> {
        if !self.caps().maps_slabs || self.wanted.is_some() || self.is_inside() {
            return Ok(false);
        }
        self.check_lost()?;
        let Some(_execution_lock) = self.execution_lock.try_lock() else {
            return Ok(false);
        };
        let is_settled = self.lock().has_nothing_to_do();
        if !is_settled {
            block_on("a read", self.execute())?;
            self.error_of(src)?;
        }
        let (place, is_idle) = {
            let mut state = self.lock();
            let place = state.memory.find(src);
            let place = place.filter(|_| state.batch.is_empty() && state.memory.in_slab(src));
            let Some(place) = place else {
                return Ok(false);
            };
            state.memory.used(src);
            state.memory.was_read(src, piece.size_bytes);
            let is_idle = state.memory.idle(place, self.driver.completed());
            (place, is_idle == Some(true))
        };
        if !is_idle {
            block_on("a read", self.wait_idle())?;
        }
        let read = block_on("a read", async { Ok(self.look(place, piece, look).await) })?;
        self.check_lost()?;
        read.map_err(|error| refusal("to map a slab", error))?;
        Ok(true)
    }

    /// Maps a piece of what lies at a place of an idle slab, and shows it.
    async fn look(
        &self,
        place: Place,
        piece: Piece,
        mut look: impl FnMut(&[u8]),
    ) -> DriverResult<()> {
        let (start, size_bytes) = piece.words();
        let from = place.offset_bytes + start;
        // A mapping starts at a multiple of 8.
        let (map_at, map_bytes) = (from & !7, size_bytes + (from & 7));
        let skip = (from - map_at + (piece.offset_bytes & 3)) as usize;
        let end = skip + piece.size_bytes as usize;
        let mut look = |bytes: &[u8]| look(&bytes[skip..end]);
        let buffer = place.buffer;
        if let Some(read) = self.driver.read_now(buffer, map_at, map_bytes, &mut look) {
            return read;
        }
        let signal = self.driver.map(buffer, MapMode::Read, map_at, map_bytes)?;
        let _mapped = Mapped(self, buffer);
        self.driver.wait(&signal).await?;
        self.driver
            .read_mapped(buffer, map_at, map_bytes, &mut look)
    }
}

impl State {
    /// Would an execution pass have nothing to do?
    fn has_nothing_to_do(&self) -> bool {
        self.queue.is_empty() && self.left.cmds.is_empty() && self.batch.is_empty()
    }

    /// The place of a storage that is about to be written to before anything else runs, if it may
    /// be.
    fn begin_write_in_place(&mut self, storage: &Storage, completed: u64) -> Option<Place> {
        if !self.has_nothing_to_do() || !self.memory.in_slab(storage) || storage.pins() > 0 {
            return None;
        }
        let place = self.memory.find(storage)?;
        if self.memory.idle(place, completed) != Some(true) {
            return None;
        }
        // With the lock: whoever sees the new version appends its reads after this.
        storage.bump_version();
        self.memory.used(storage);
        self.memory.written(storage);
        Some(place)
    }
}
