//! Restoring storages that were evicted, and reading them where they are.
//!
//! The bytes come from the best copy there is: the host's memory, else the source. They go into
//! staging of the execution pass's own, so that they never wait for an app's uploads, and from
//! there by copies in the batch; or straight into the slab, where host and device share memory and
//! the slab is idle.

use std::mem::swap;
use std::ops::Deref;
use std::sync::{Arc, MutexGuard, PoisonError};

use super::cost::Stopwatch;
use super::evict::Tier;
use super::{Engine, refusal};
use crate::driver::{DriverError, MapMode, Op};
use crate::error::{Error, Result};
use crate::memory::{Copies, PendingRestore, Place, Source, Storage};
use crate::transfer::{Piece, Reading, Region};
use crate::units::MIB;

/// A source is asked for so many bytes at a time.
const SOURCE_PIECE_BYTES: u64 = MIB;

/// What takes at least so many bytes to bring in is staged while the device computes what was
/// encoded before: about as long as a submission takes.
const OVERLAP_BYTES: u64 = 256 << 10;

/// How often a storage is restored when the submissions that do so are refused.
const FILLS: usize = 3;

/// A block for a storage on its way back; given up on drop, also if the execution pass is dropped.
pub(super) struct RestoreGuard<'a>(pub(super) &'a Engine, pub(super) Option<PendingRestore>);

impl Drop for RestoreGuard<'_> {
    fn drop(&mut self) {
        if let Some(pending_restore) = self.1.take() {
            self.0.lock().memory.cancel_restore(pending_restore);
        }
    }
}

/// The bytes of a storage that is not on the device, piece by piece.
pub(super) struct Supply<'a> {
    engine: &'a Engine,
    storage: &'a Storage,
    copies: &'a Copies,
    /// The engine's, for as long as this lasts: its content is of no interest.
    scratch: Vec<u8>,
}

impl Drop for Supply<'_> {
    fn drop(&mut self) {
        *self.engine.lock_scratch() = std::mem::take(&mut self.scratch);
    }
}

impl<'a> Supply<'a> {
    pub(super) fn new(engine: &'a Engine, storage: &'a Storage, copies: &'a Copies) -> Self {
        let scratch = std::mem::take(&mut *engine.lock_scratch());
        Supply {
            engine,
            storage,
            copies,
            scratch,
        }
    }

    /// Where the bytes come from; a source counts as a disk.
    fn tier(&self) -> Tier {
        match self.copies.host {
            Some(_) => Tier::Host,
            None => Tier::Disk,
        }
    }

    /// Room for some bytes, with anything in it.
    fn room(&mut self, size_bytes: u64) -> &mut [u8] {
        let size = size_bytes as usize;
        if self.scratch.len() < size {
            self.scratch.resize(size, 0);
        }
        &mut self.scratch[..size]
    }

    /// Some of the bytes from an offset on, at most so many.
    pub(super) fn piece(&mut self, offset_bytes: u64, most_bytes: u64) -> Result<&[u8]> {
        let left_bytes = self.storage.len_bytes() - offset_bytes;
        let piece_bytes = left_bytes.min(most_bytes);
        if let Some(host) = &self.copies.host {
            if !self.engine.driver.has_contents() {
                // Any bytes will do.
                return Ok(self.room(piece_bytes.min(SOURCE_PIECE_BYTES)));
            }
            let range = offset_bytes as usize..(offset_bytes + piece_bytes) as usize;
            return host.bytes.get(range).ok_or_else(|| Error::Source {
                made_at: self.storage.tag().to_string(),
                offset_bytes,
                message: "its copy in the host's memory ends before".into(),
            });
        }
        let piece_bytes = piece_bytes.min(SOURCE_PIECE_BYTES);
        let mut missing = Error::Source {
            made_at: self.storage.tag().to_string(),
            offset_bytes,
            message: "it has none".into(),
        };
        if let Some(disk) = &self.copies.disk {
            let (scratch, mut at) = (self.room(piece_bytes), 0);
            let mut keep = |piece: &[u8]| {
                scratch[at..at + piece.len()].copy_from_slice(piece);
                at += piece.len();
                Ok(())
            };
            match disk.read(offset_bytes, piece_bytes, &mut keep) {
                Ok(()) => return Ok(self.room(piece_bytes)),
                Err(error) => missing = error,
            }
        }
        if let Some(source) = &self.copies.source {
            let engine = self.engine;
            let _inside = engine.inside();
            match source.read(offset_bytes, self.room(piece_bytes)) {
                Ok(()) => return Ok(self.room(piece_bytes)),
                Err(error) => {
                    missing = Error::Source {
                        made_at: self.storage.tag().to_string(),
                        offset_bytes,
                        message: error.to_string(),
                    };
                }
            }
        }
        Err(missing)
    }
}

/// Copies that were looked up. Whatever becomes of the storage meanwhile: what they are the last to
/// hold goes as the app's.
pub(super) struct Lent<'a>(&'a Engine, Copies);

impl Deref for Lent<'_> {
    type Target = Copies;

    fn deref(&self) -> &Copies {
        &self.1
    }
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        self.0.drop_theirs(std::mem::take(&mut self.1));
    }
}

impl Engine {
    /// Where the bytes of a storage are that is not on the device, if it has any.
    pub(super) fn evicted_copies(&self, storage: &Storage) -> Option<Lent<'_>> {
        let copies = self.lock().memory.evicted_copies(storage);
        copies.map(|copies| Lent(self, copies))
    }

    /// Restores a storage that was evicted. The inner error is the command's that wants it.
    pub(super) async fn restore(&self, storage: &Arc<Storage>) -> Result<Result<()>> {
        let copies = self
            .evicted_copies(storage)
            .filter(|copies| !copies.has_bytes());
        if let Some(rematerializer) = copies
            .as_ref()
            .and_then(|copies| copies.rematerializer.as_ref())
        {
            return self.rematerialize(storage, rematerializer);
        }
        drop(copies);
        let mut restore_guard = RestoreGuard(self, None);
        loop {
            {
                let mut state = self.lock();
                if !state.memory.is_evicted(storage) {
                    return Ok(Ok(()));
                }
                let received = state.memory.begin_restore(storage);
                state.memory.anywhere = false;
                match received {
                    Ok(Some(pending_restore)) => {
                        restore_guard.1 = Some(pending_restore);
                        break;
                    }
                    Ok(None) => {}
                    Err(error) => return Ok(Err(super::needs::never_fits(storage, &error))),
                }
            }
            if let Err(error) = self.make_room(storage).await? {
                return Ok(Err(error));
            }
        }
        self.restore_into(storage, &mut restore_guard).await
    }

    /// Brings the bytes of a storage into the block that was taken for it. The inner error is the
    /// command's that wants them.
    pub(super) async fn restore_into(
        &self,
        storage: &Arc<Storage>,
        restore_guard: &mut RestoreGuard<'_>,
    ) -> Result<Result<()>> {
        let copies = self.evicted_copies(storage);
        let (Some(copies), Some(pending_restore)) = (copies, &restore_guard.1) else {
            return Ok(Ok(()));
        };
        match self
            .fill_for_sure(storage, &copies, pending_restore.place)
            .await
        {
            Ok(()) => {}
            Err(error @ Error::SpillCorrupt { .. }) => {
                let mut state = self.lock();
                if !state.memory.disk_is_damaged(storage) {
                    // The bytes are gone: whoever wants them is told why.
                    state.memory.poison(storage, &Arc::new(error));
                }
                return Ok(Ok(()));
            }
            Err(error) => {
                self.check_lost()?;
                return Ok(Err(error));
            }
        }
        let mut state = self.lock();
        if let Some(pending_restore) = restore_guard.1.take() {
            state.memory.finish_restore(storage, pending_restore);
            state.memory.used(storage);
            state.batch.arrived.push(Arc::downgrade(storage));
            state.counters.restored_bytes += storage.len_bytes();
        }
        Ok(Ok(()))
    }

    /// Fills a place, however often it takes until no part of that was in a submission that was
    /// refused.
    async fn fill_for_sure(
        &self,
        storage: &Arc<Storage>,
        copies: &Copies,
        place: Place,
    ) -> Result<()> {
        let refused = || self.lock().counters.refused_submissions;
        for _ in 0..FILLS {
            let before = refused();
            self.fill(storage, copies, place).await?;
            if refused() == before {
                return Ok(());
            }
        }
        Err(Error::Driver {
            what: "a submission",
            message: "again and again, while a tensor was restored".into(),
        })
    }

    /// Records, or does, what fills a place with the bytes of a storage.
    async fn fill(&self, storage: &Arc<Storage>, copies: &Copies, place: Place) -> Result<()> {
        let mut supply = Supply::new(self, storage, copies);
        let len_bytes = storage.len_bytes();
        if len_bytes == 0 {
            return Ok(());
        }
        if len_bytes >= OVERLAP_BYTES && self.lock().batch.computes() {
            // The device has something to do while these are staged.
            self.submit()?;
        }
        let idle = {
            let mut state = self.lock();
            if state.memory.has_changes() {
                state.attend();
            }
            state.memory.idle(place, self.driver.completed())
        };
        let waits_anyway = idle == Some(false) && !self.restore_staging.holds(len_bytes);
        if self.caps().maps_slabs && waits_anyway {
            // Through staging it would be done piece by piece, with a wait for each.
            self.submit()?;
            self.wait_idle().await?;
        }
        if self.caps().maps_slabs && (idle == Some(true) || waits_anyway) {
            return self.fill_in_place(&mut supply, place, len_bytes).await;
        }
        let (mut at, mut watch, tier) = (0, self.stopwatch(), supply.tier());
        while at < len_bytes {
            let mut rest = watch.time(|| supply.piece(at, u64::MAX))?;
            // A piece may be larger than staging is, and is not fetched twice for that.
            while !rest.is_empty() {
                let (region, taken) = self.stage_restore(storage, rest, &mut watch).await?;
                let mut state = self.lock();
                state.memory.touch(place);
                state.push_op(Op::Copy {
                    src: region.buffer,
                    src_offset_bytes: region.offset_bytes,
                    dst: place.buffer,
                    dst_offset_bytes: place.offset_bytes + at,
                    size_bytes: region.size_bytes,
                });
                state.batch.regions.push(region);
                at += taken as u64;
                rest = &rest[taken..];
            }
        }
        self.note_cost(tier, len_bytes, &watch);
        Ok(())
    }

    async fn fill_in_place(
        &self,
        supply: &mut Supply<'_>,
        place: Place,
        len_bytes: u64,
    ) -> Result<()> {
        let refused = |error| refusal("to map a slab", error);
        let (buffer, size_bytes) = (place.buffer, len_bytes.next_multiple_of(4));
        let mapping = self
            .driver
            .map(buffer, MapMode::Write, place.offset_bytes, size_bytes);
        let signal = mapping.map_err(refused)?;
        let _mapped = super::direct::Mapped(self, buffer);
        self.driver.wait(&signal).await.map_err(refused)?;
        let (mut at, mut watch, tier) = (0, self.stopwatch(), supply.tier());
        while at < len_bytes {
            let done = watch.time(|| {
                let piece = supply.piece(at, u64::MAX)?;
                let to = place.offset_bytes + at;
                let written = self.driver.write_mapped(buffer, to, piece);
                written.map(|()| piece.len() as u64).map_err(refused)
            });
            at += done?;
        }
        self.note_cost(tier, len_bytes, &watch);
        Ok(())
    }

    fn note_cost(&self, tier: Tier, size_bytes: u64, watch: &Stopwatch) {
        if let Some(time) = watch.spent() {
            self.lock().costs.note(tier, size_bytes, time);
        }
    }

    /// Copies the first of `bytes` into the execution pass's own staging, and says how many those
    /// are.
    pub(super) async fn stage_restore(
        &self,
        storage: &Arc<Storage>,
        bytes: &[u8],
        watch: &mut Stopwatch,
    ) -> Result<(Region, usize)> {
        let refused = |error| self.refused("staging memory", error, storage);
        let (wanted_bytes, mut tries) = (bytes.len() as u64, 0);
        loop {
            let staged = watch.time(|| self.restore_staging.stage(bytes));
            if let Some(staged) = staged.map_err(refused)? {
                return Ok(staged);
            }
            match self.restore_staging.grow(wanted_bytes).await {
                Ok(true) => continue,
                Ok(false) | Err(DriverError::OutOfMemory | DriverError::OverBudget) => {}
                Err(error) => return Err(refused(error)),
            }
            // All of it is on its way: what was recorded so far must go, and come back.
            self.lock().counters.staging_waits += 1;
            self.submit()?;
            self.restore_staging.sweep().map_err(refused)?;
            if self.restore_staging.wait().await.map_err(refused)?
                || self.restore_staging.has_room()
            {
                continue;
            }
            if !self.make_way(wanted_bytes, tries).await? {
                return Err(refused(DriverError::OutOfMemory));
            }
            tries += 1;
        }
    }

    /// Hands a piece of a storage that is not on the device to the reading at the head of the
    /// queue: what is only looked at need not come back for it.
    pub(super) async fn read_evicted(
        &self,
        storage: &Arc<Storage>,
        reading: &Arc<Reading>,
        piece: Piece,
    ) -> Result<()> {
        // What was read before comes first: its bytes may still be on their way.
        self.submit()?;
        while reading.next_signal().is_some() && reading.failure().is_none() {
            let taken_in = self.readbacks.take_in(reading).await;
            self.check_lost()?;
            if let Err(error) = taken_in {
                reading.fail(refusal("a read", error));
            }
        }
        let Some(copies) = self.evicted_copies(storage) else {
            return Ok(());
        };
        let mut supply = Supply::new(self, storage, &copies);
        let (mut at, end) = (piece.offset_bytes, piece.offset_bytes + piece.size_bytes);
        let mut bytes = Vec::new();
        while at < end {
            match supply.piece(at, end - at) {
                Ok(piece) => {
                    bytes.extend_from_slice(piece);
                    at += piece.len() as u64;
                }
                Err(error) => {
                    let is_damaged = matches!(error, Error::SpillCorrupt { .. });
                    if is_damaged && self.lock().memory.disk_is_damaged(storage) {
                        // The read is still at the head of the queue, and finds another way.
                        return Ok(());
                    }
                    reading.fail(error);
                    break;
                }
            }
        }
        if at == end {
            reading.deliver(&bytes);
        }
        let mut state = self.lock();
        state.memory.used(storage);
        state.memory.was_read(storage, piece.size_bytes);
        state.pop_head();
        Ok(())
    }

    fn lock_scratch(&self) -> MutexGuard<'_, Vec<u8>> {
        self.scratch.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks for a storage to be back on the device when the queue comes to it.
    pub fn prefetch(self: &Arc<Self>, storage: &Arc<Storage>) -> Result<()> {
        self.push_one(super::cmd::Cmd::Prefetch(storage.clone()))
    }

    /// Lets a source stand in for the bytes that a storage has now, once what is queued has run.
    pub async fn back(self: &Arc<Self>, storage: &Arc<Storage>, source: Source) -> Result<()> {
        self.check_lost()?;
        let execution_lock = self.lock_execution().await?;
        let storage = storage.clone();
        let work = move |engine: Arc<Self>| async move {
            engine.execute().await?;
            engine.enter_source(&storage, source)
        };
        self.with_execution_lock(execution_lock, work).await
    }

    /// The same, once what was queued has run.
    fn enter_source(&self, storage: &Arc<Storage>, source: Source) -> Result<()> {
        self.error_of(storage)?;
        let mut state = self.lock();
        if state.memory.is_imported(storage) {
            return Err(Error::Pinned {
                operation: "backed_by",
                made_at: storage.tag().to_string(),
            });
        }
        let mut other = Some(source);
        state
            .memory
            .copied(storage, |copies| swap(&mut copies.source, &mut other));
        drop(state);
        // The one before it; or itself, of a storage without bytes.
        self.drop_theirs(other);
        Ok(())
    }

    /// A storage whose bytes its source will give when somebody uses it.
    pub fn back_new(&self, storage: &Arc<Storage>, source: Source) {
        let copies = Copies {
            source: Some(source),
            ..Copies::default()
        };
        self.lock().memory.back(storage, copies);
    }
}
