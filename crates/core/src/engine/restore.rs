//! Restoring storages that were evicted, and reading them where they are.
//!
//! The bytes come from the best copy there is: the host's memory, else the source. They go into
//! staging of the execution pass's own, so that they never wait for an app's uploads, and from
//! there by copies in the batch; or straight into the slab, where host and device share memory and
//! the slab is idle.

use std::sync::Arc;

use super::cost::Stopwatch;
use super::destination::Tier;
use super::mapped::Mapped;
use super::pass::Pass;
use super::supply::{self, Supply};
use super::{diagnose, reclaim, refuse, rematerialize};
use crate::driver::{DriverError, MapMode, Op};
use crate::error::{Error, Result};
use crate::memory::{Copies, Fit, PendingRestore, Place, Storage};
use crate::transfer::{Piece, Reading, Region, refusal};

/// What takes at least so many bytes to bring in is staged while the device computes what was
/// encoded before: about as long as a submission takes.
const OVERLAP_BYTES: u64 = 256 << 10;

/// How often a storage is restored when the submissions that do so are refused.
const FILLS: usize = 3;

/// A block for a storage on its way back; given up on drop, also if the execution pass is dropped.
pub(super) struct RestoreGuard<'a>(pub(super) &'a Pass, pub(super) Option<PendingRestore>);

impl Drop for RestoreGuard<'_> {
    fn drop(&mut self) {
        if let Some(pending_restore) = self.1.take() {
            self.0.lock().memory.cancel_restore(pending_restore);
        }
    }
}

/// Restores a storage that was evicted. The inner error is the command's that wants it.
pub(super) async fn restore(pass: &Pass, storage: &Arc<Storage>) -> Result<Result<()>> {
    let copies = supply::evicted_copies(pass, storage).filter(|copies| !copies.has_bytes());
    if let Some(rematerializer) = copies
        .as_ref()
        .and_then(|copies| copies.rematerializer.as_ref())
    {
        return rematerialize::rematerialize(pass, storage, rematerializer);
    }
    drop(copies);
    let mut restore_guard = RestoreGuard(pass, None);
    loop {
        {
            let mut state = pass.lock();
            if !state.memory.is_evicted(storage) {
                return Ok(Ok(()));
            }
            let fit = state.head.fit();
            let received = state.memory.begin_restore(storage, fit);
            state.head.may_lie(Fit::Best);
            match received {
                Ok(Some(pending_restore)) => {
                    restore_guard.1 = Some(pending_restore);
                    break;
                }
                Ok(None) => {}
                Err(error) => return Ok(Err(refuse::never_fits(storage, &error))),
            }
        }
        if let Err(error) = reclaim::make_room(pass, storage).await? {
            return Ok(Err(error));
        }
    }
    restore_into(pass, storage, &mut restore_guard).await
}

/// Brings the bytes of a storage into the block that was taken for it. The inner error is the
/// command's that wants them.
pub(super) async fn restore_into(
    pass: &Pass,
    storage: &Arc<Storage>,
    restore_guard: &mut RestoreGuard<'_>,
) -> Result<Result<()>> {
    let copies = supply::evicted_copies(pass, storage);
    let (Some(copies), Some(pending_restore)) = (copies, &restore_guard.1) else {
        return Ok(Ok(()));
    };
    match fill_for_sure(pass, storage, &copies, pending_restore.place).await {
        Ok(()) => {}
        Err(error @ Error::SpillCorrupt { .. }) => {
            let mut state = pass.lock();
            if !state.memory.disk_is_damaged(storage) {
                // The bytes are gone: whoever wants them is told why.
                state.memory.poison(storage, &Arc::new(error));
            }
            return Ok(Ok(()));
        }
        Err(error) => {
            pass.check_lost()?;
            return Ok(Err(error));
        }
    }
    let mut state = pass.lock();
    if let Some(pending_restore) = restore_guard.1.take() {
        state.memory.finish_restore(storage, pending_restore);
        state.memory.used(storage);
        state.batch.brings(storage);
        state.counters.restored_bytes += storage.len_bytes();
    }
    Ok(Ok(()))
}

/// Fills a place, however often it takes until no part of that was in a submission that was
/// refused.
async fn fill_for_sure(
    pass: &Pass,
    storage: &Arc<Storage>,
    copies: &Copies,
    place: Place,
) -> Result<()> {
    let refused = || pass.lock().counters.refused_submissions;
    for _ in 0..FILLS {
        let before = refused();
        fill(pass, storage, copies, place).await?;
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
async fn fill(pass: &Pass, storage: &Arc<Storage>, copies: &Copies, place: Place) -> Result<()> {
    let mut supply = Supply::new(pass, storage, copies);
    let len_bytes = storage.len_bytes();
    if len_bytes == 0 {
        return Ok(());
    }
    if len_bytes >= OVERLAP_BYTES && pass.lock().batch.computes() {
        // The device has something to do while these are staged.
        pass.submit()?;
    }
    let idle = {
        let mut state = pass.lock();
        if state.memory.has_changes() {
            diagnose::attend(&mut state);
        }
        state.memory.idle(place, pass.driver.completed())
    };
    let waits_anyway = idle == Some(false) && !pass.restore_staging.holds(len_bytes);
    if pass.caps().maps_slabs && waits_anyway {
        // Through staging it would be done piece by piece, with a wait for each.
        pass.submit()?;
        pass.wait_idle().await?;
    }
    if pass.caps().maps_slabs && (idle == Some(true) || waits_anyway) {
        return fill_in_place(pass, &mut supply, place, len_bytes).await;
    }
    let (mut at, mut watch, tier) = (0, pass.stopwatch(), supply.tier());
    while at < len_bytes {
        let mut rest = watch.time(|| supply.piece(at, u64::MAX))?;
        // A piece may be larger than staging is, and is not fetched twice for that.
        while !rest.is_empty() {
            let (region, taken) = stage_restore(pass, storage, rest, &mut watch).await?;
            let mut state = pass.lock();
            state.memory.touch(place);
            state.push_op(Op::Copy {
                src: region.buffer,
                src_offset_bytes: region.offset_bytes,
                dst: place.buffer,
                dst_offset_bytes: place.offset_bytes + at,
                size_bytes: region.size_bytes,
            });
            state.batch.copies_from(region);
            at += taken as u64;
            rest = &rest[taken..];
        }
    }
    note_cost(pass, tier, len_bytes, &watch);
    Ok(())
}

async fn fill_in_place(
    pass: &Pass,
    supply: &mut Supply<'_>,
    place: Place,
    len_bytes: u64,
) -> Result<()> {
    let refused = |error| refusal("to map a slab", error);
    let (buffer, size_bytes) = (place.buffer, len_bytes.next_multiple_of(4));
    let mapping = pass
        .driver
        .map(buffer, MapMode::Write, place.offset_bytes, size_bytes);
    let signal = mapping.map_err(refused)?;
    let _mapped = Mapped(pass, buffer);
    pass.driver.wait(&signal).await.map_err(refused)?;
    let (mut at, mut watch, tier) = (0, pass.stopwatch(), supply.tier());
    while at < len_bytes {
        let done = watch.time(|| {
            let piece = supply.piece(at, u64::MAX)?;
            let to = place.offset_bytes + at;
            let written = pass.driver.write_mapped(buffer, to, piece);
            written.map(|()| piece.len() as u64).map_err(refused)
        });
        at += done?;
    }
    note_cost(pass, tier, len_bytes, &watch);
    Ok(())
}

fn note_cost(pass: &Pass, tier: Tier, size_bytes: u64, watch: &Stopwatch) {
    if let Some(time) = watch.spent() {
        pass.lock().costs.note(tier, size_bytes, time);
    }
}

/// Copies the first of `bytes` into the execution pass's own staging, and says how many those
/// are.
pub(super) async fn stage_restore(
    pass: &Pass,
    storage: &Arc<Storage>,
    bytes: &[u8],
    watch: &mut Stopwatch,
) -> Result<(Region, usize)> {
    let refused = |error| refuse::refused(pass, "staging memory", error, storage);
    let (wanted_bytes, mut tries) = (bytes.len() as u64, 0);
    loop {
        let staged = watch.time(|| pass.restore_staging.stage(bytes));
        if let Some(staged) = staged.map_err(refused)? {
            return Ok(staged);
        }
        match pass.restore_staging.grow(wanted_bytes).await {
            Ok(true) => continue,
            Ok(false) | Err(DriverError::OutOfMemory | DriverError::OverBudget) => {}
            Err(error) => return Err(refused(error)),
        }
        // All of it is on its way: what was recorded so far must go, and come back.
        pass.lock().counters.staging_waits += 1;
        pass.submit()?;
        pass.restore_staging.sweep().map_err(refused)?;
        if pass.restore_staging.wait().await.map_err(refused)? || pass.restore_staging.has_room() {
            continue;
        }
        if !reclaim::make_way(pass, wanted_bytes, tries).await? {
            return Err(refused(DriverError::OutOfMemory));
        }
        tries += 1;
    }
}

/// Hands a piece of a storage that is not on the device to the reading at the head of the
/// queue: what is only looked at need not come back for it.
pub(super) async fn read_evicted(
    pass: &Pass,
    storage: &Arc<Storage>,
    reading: &Arc<Reading>,
    piece: Piece,
) -> Result<()> {
    // What was read before comes first: its bytes may still be on their way.
    pass.submit()?;
    while reading.next_signal().is_some() && reading.failure().is_none() {
        let taken_in = pass.readbacks.take_in(reading).await;
        pass.check_lost()?;
        if let Err(error) = taken_in {
            reading.fail(refusal("a read", error));
        }
    }
    let Some(copies) = supply::evicted_copies(pass, storage) else {
        return Ok(());
    };
    let mut supply = Supply::new(pass, storage, &copies);
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
                if is_damaged && pass.lock().memory.disk_is_damaged(storage) {
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
    let mut state = pass.lock();
    state.memory.used(storage);
    state.memory.was_read(storage, piece.size_bytes);
    state.queue.pop_head();
    Ok(())
}
