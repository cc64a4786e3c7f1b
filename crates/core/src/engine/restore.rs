//! Restores evicted storages, and reads them where their bytes are. `rematerialize` and `recompute`
//! compute them again.
//!
//! The bytes come from the best copy: the host's memory, a store, the disk, then the source. They
//! go through staging that only execution passes use, so a restore never waits for uploads of the
//! app. Copies in the batch take them to the slab. Where host and device share memory and the slab
//! is idle, the bytes go straight into the slab.
//!
//! For a command of a low priority, the bytes of a large storage come part by part, and commands of
//! a higher priority run in between. If they take the block, the restore begins again, in one part:
//! otherwise commands that often need the memory would keep it from ever ending.

pub(super) mod limit_ahead;
pub(super) mod recompute;
pub(super) mod rematerialize;

use std::ops::Range;
use std::sync::Arc;

use super::mapped::Mapped;
use super::pass::Pass;
use super::reclaim::{self, StagingTries, refuse};
use super::state::State;
use super::state::cost::Stopwatch;
use super::tiers::supply::{self, Supply};
use crate::driver::{BoxFuture, DriverError, MapMode, Op};
use crate::error::{Error, Result};
use crate::finally::Finally;
use crate::memory::{Copies, Heap, PendingRestore, Place, Storage, Tier};
use crate::transfer::{Piece, Reading, Region, refusal};

/// A restore of at least this size is staged while the device runs the commands encoded before.
/// Staging it takes about as long as a submission.
const OVERLAP_BYTES: u64 = 256 << 10;

/// The attempts to restore a storage when the driver refuses the submissions.
const FILLS: usize = 3;

/// A block for a storage that is being restored. It is freed on drop.
pub(super) struct RestoreGuard<'a>(pub(super) &'a Pass, pub(super) Option<PendingRestore>);

impl Drop for RestoreGuard<'_> {
    fn drop(&mut self) {
        if let Some(pending_restore) = self.1.take() {
            self.0.lock().memory.cancel_restore(pending_restore);
        }
    }
}

/// Restores an evicted storage. The inner error concerns the command that needs it.
pub(super) fn restore<'a>(
    pass: &'a Pass,
    storage: &'a Arc<Storage>,
) -> BoxFuture<'a, Result<Result<()>>> {
    Box::pin(async move {
        let mut restore_guard = RestoreGuard(pass, None);
        let mut is_in_parts = true;
        loop {
            let copies = supply::evicted_copies(pass, storage).filter(|copies| !copies.has_bytes());
            if let Some(rematerializer) = copies
                .as_ref()
                .and_then(|copies| copies.rematerializer.as_ref())
            {
                return rematerialize::rematerialize(pass, storage, rematerializer);
            }
            drop(copies);
            let received = {
                let state = &mut *pass.lock();
                state.free_dead();
                let is_over = !is_in_parts && state.is_head_cancelled();
                if is_over || !state.memory.slots.is_evicted(storage) {
                    return Ok(Ok(()));
                }
                let fit = state.head.take_fit();
                state.memory.begin_restore(storage, fit)
            };
            match received {
                Ok(Some(pending_restore)) => restore_guard.1 = Some(pending_restore),
                Ok(None) => {
                    if let Err(error) = reclaim::make_room(pass, storage).await? {
                        return Ok(Err(error));
                    }
                    continue;
                }
                Err(error) => return Ok(Err(refuse::never_fits(storage, &error))),
            }
            let _hold = (!is_in_parts).then(|| pass.hold_whole());
            match restore_into(pass, storage, &mut restore_guard).await? {
                Ok(has_ended) if has_ended => return Ok(Ok(())),
                Ok(_) => is_in_parts = false,
                Err(error) => return Ok(Err(error)),
            }
        }
    })
}

/// Copies the bytes of a storage into the block that was taken for it. `false` if urgent commands
/// took the block. The inner error concerns the command that needs them.
pub(super) fn restore_into<'a>(
    pass: &'a Pass,
    storage: &'a Arc<Storage>,
    restore_guard: &'a mut RestoreGuard<'_>,
) -> BoxFuture<'a, Result<Result<bool>>> {
    Box::pin(async move {
        let Some(copies) = supply::evicted_copies(pass, storage) else {
            return Ok(Ok(true));
        };
        let filled = fill_with_retries(pass, storage, &copies, restore_guard).await;
        pass.end_read(storage);
        pass.check_lost()?;
        match filled {
            Ok(()) => {}
            Err(error) if gave_up_copy(pass, storage, &error) => return Ok(Ok(true)),
            Err(error) => return Ok(Err(error)),
        }
        let Some(pending_restore) = restore_guard.1.take() else {
            return Ok(Ok(false));
        };
        let state = &mut *pass.lock();
        state.memory.finish_restore(storage, pending_restore);
        state.memory.slots.used(storage);
        state.batch.add_restored(storage);
        state.counters.restored_bytes += storage.len_bytes();
        state.count_transfer(&copies, storage.len_bytes());
        Ok(Ok(true))
    })
}

/// Handles the failure of a copy. `true` if another copy can be tried, or if the bytes are lost and
/// the storage has no value any more.
fn gave_up_copy(pass: &Pass, storage: &Arc<Storage>, error: &Error) -> bool {
    if !matches!(error, Error::Store(_) | Error::SpillCorrupt { .. }) {
        return false;
    }
    let mut state = pass.lock();
    if state.memory.slots.copy_failed(storage, error) {
        return true;
    }
    if error.is_loss() {
        // Users of the storage get the reason.
        state.memory.slots.poison(storage, &Arc::new(error.clone()));
    }
    error.is_loss()
}

/// Fills the block of a restore. Begins again if a submission with a part of it was refused. The
/// restore has no block any more if urgent commands took it.
async fn fill_with_retries(
    pass: &Pass,
    storage: &Arc<Storage>,
    copies: &Copies,
    restore_guard: &mut RestoreGuard<'_>,
) -> Result<()> {
    for _ in 0..FILLS {
        let before = pass.refused_submissions();
        fill(pass, storage, copies, restore_guard).await?;
        if restore_guard.1.is_none() || pass.refused_submissions() == before {
            return Ok(());
        }
    }
    let message = "again and again, while the engine restored a tensor";
    Err(Error::driver("a submission", message))
}

/// Fills the block of a restore with the bytes of the storage, by ops of the batch or in the mapped
/// slab. Ends early if urgent commands took the block, or if a submission was refused meanwhile.
async fn fill(
    pass: &Pass,
    storage: &Arc<Storage>,
    copies: &Copies,
    restore_guard: &mut RestoreGuard<'_>,
) -> Result<()> {
    let Some(place) = restore_guard.1.as_ref().map(|one| one.place) else {
        return Ok(());
    };
    let refused_before = pass.refused_submissions();
    if copies.tier() == Tier::Disk {
        pass.read_ahead(storage);
    }
    let mut supply = Supply::new(pass, storage, copies);
    let len_bytes = storage.len_bytes();
    let in_heap = copies.heap_block().and_then(|block| {
        let heap = &pass.lock().memory.heap;
        heap.as_ref()?.place(block)
    });
    // Copies alone keep the device busy only briefly.
    let is_busy = pass.lock().batch.dispatches().next().is_some();
    if len_bytes >= OVERLAP_BYTES && in_heap.is_none() && is_busy {
        // The device works on the batch while the bytes are staged.
        pass.submit()?;
    }
    let idle = {
        let mut state = pass.lock();
        state.handle_changes();
        state.memory.slabs.idle(place, pass.driver.completed())
    };
    let waits_anyway = idle == Some(false) && !pass.restore_staging.holds(len_bytes);
    if pass.caps().maps_slabs && waits_anyway {
        // The bytes exceed staging, which would be filled piece by piece, with a wait for each.
        pass.submit()?;
        pass.wait_idle().await?;
    }
    // If the driver refused to clear or to move a block, which may be this one, that comes later.
    let is_clear = !pass.lock().is_unsettled();
    let is_mapped = pass.caps().maps_slabs && is_clear && (idle == Some(true) || waits_anyway);
    let (mut watch, tier) = (pass.stopwatch(), supply.tier());
    let (part_bytes, mut at) = (pass.part_bytes(), 0);
    while at < len_bytes {
        let end = at.saturating_add(part_bytes).min(len_bytes);
        let part = at..end;
        match in_heap {
            Some(from) => fill_from_heap(&mut pass.lock(), from, place, part),
            None if is_mapped => fill_in_place(pass, &mut supply, place, part, &mut watch).await?,
            None => fill_staged(pass, storage, &mut supply, place, part, &mut watch).await?,
        }
        at = end;
        if at == len_bytes {
            break;
        }
        if !is_mapped {
            // The device copies one part while the host stages the next one. Whoever comes waits
            // for no more than these.
            pass.wait_idle().await?;
        }
        let gave_way = give_way_amid(pass, storage, restore_guard).await?;
        let is_refused = gave_way && pass.refused_submissions() != refused_before;
        if is_refused || restore_guard.1.is_none() {
            return Ok(());
        }
        if !is_mapped {
            pass.submit()?;
        }
    }
    // Where the host has a heap, the cost of its tier is that of copies in the queue.
    let is_told = tier != Tier::Host || !pass.caps().host_heap;
    if let Some(time) = watch.spent().filter(|_| is_told) {
        let time = time + supply.hidden;
        (pass.lock().costs).note(tier, len_bytes, time);
    }
    Ok(())
}

/// Stages the bytes of a part, and records the copies of them.
async fn fill_staged(
    pass: &Pass,
    storage: &Arc<Storage>,
    supply: &mut Supply<'_>,
    place: Place,
    part: Range<u64>,
    watch: &mut Stopwatch,
) -> Result<()> {
    let mut at = part.start;
    while at < part.end {
        supply.fetch(at, part.end - at).await?;
        let mut rest = watch.time(|| supply.piece(at, part.end - at))?;
        // A piece may be larger than the free staging. It is staged in parts and fetched once.
        while !rest.is_empty() {
            let (region, taken) = stage_restore(pass, storage, rest, watch).await?;
            let mut state = pass.lock();
            state.memory.slabs.touch(place);
            state.push_op(region.copy_to(place.at(at)));
            state.batch.regions.push(region);
            at += taken as u64;
            rest = &rest[taken..];
        }
    }
    Ok(())
}

/// Records the copy of a part from the heap in the host's memory.
fn fill_from_heap(state: &mut State, from: Place, to: Place, part: Range<u64>) {
    state.memory.slabs.touch(to);
    let size_bytes = (part.end - part.start).next_multiple_of(4);
    state.note_heap_copy(from, Heap::Device, size_bytes);
    let [from, to] = [from, to].map(|place| place.at(part.start));
    state.push_op(Op::Copy(from, to, size_bytes));
}

/// Lets urgent commands run between two parts of a restore. Then it has its block again, unless
/// they took it or have made it useless. Returns whether there were any.
async fn give_way_amid(
    pass: &Pass,
    storage: &Arc<Storage>,
    restore_guard: &mut RestoreGuard<'_>,
) -> Result<bool> {
    let Some(pending_restore) = restore_guard.1.take_if(|_| pass.is_outranked()) else {
        return Ok(false);
    };
    {
        let state = &mut *pass.lock();
        (state.suspended_restores).suspend(storage, pending_restore, &mut state.memory);
    }
    let _resumed = Finally(|| restore_guard.1 = pass.lock().resume_restore());
    pass.give_way().await?;
    Ok(true)
}

async fn fill_in_place(
    pass: &Pass,
    supply: &mut Supply<'_>,
    place: Place,
    part: Range<u64>,
    watch: &mut Stopwatch,
) -> Result<()> {
    let refused = |error| refusal("to map a slab", error);
    let size_bytes = (part.end - part.start).next_multiple_of(4);
    let mapping = Mapped::begin(pass, MapMode::Write, place.at(part.start), size_bytes);
    let _mapped = mapping.await.map_err(refused)?;
    let mut at = part.start;
    while at < part.end {
        supply.fetch(at, part.end - at).await?;
        at += watch.time(|| {
            let piece = supply.piece(at, part.end - at)?;
            let written = pass.driver.write_mapped(place.at(at), piece);
            written.map_err(refused).map(|()| piece.len() as u64)
        })?;
    }
    Ok(())
}

/// Copies the first of `bytes` into the staging of restores. Returns the region and the number of
/// bytes copied.
pub(super) fn stage_restore<'a>(
    pass: &'a Pass,
    storage: &'a Arc<Storage>,
    bytes: &'a [u8],
    watch: &'a mut Stopwatch,
) -> BoxFuture<'a, Result<(Region, usize)>> {
    Box::pin(async move {
        let refused = |error| refuse::refused(pass, "staging memory", error, storage);
        let (wanted_bytes, mut tries) = (bytes.len() as u64, StagingTries::default());
        loop {
            let staged = watch.time(|| pass.restore_staging.stage(bytes));
            if let Some(staged) = staged.map_err(refused)? {
                return Ok(staged);
            }
            let grown = pass.restore_staging.grow(wanted_bytes).await;
            if grown.map_err(refused)? {
                continue;
            }
            // All staging is in use. The batch must be submitted so that its chunks return.
            pass.lock().counters.staging_waits += 1;
            pass.submit()?;
            pass.restore_staging.sweep().map_err(refused)?;
            if pass.restore_staging.wait().await.map_err(refused)?
                || pass.restore_staging.has_room()
            {
                continue;
            }
            if !reclaim::make_way_for_staging(pass, wanted_bytes, &mut tries).await? {
                return Err(refused(DriverError::OutOfMemory));
            }
        }
    })
}

/// Delivers a piece of an evicted storage to the reading at the head of the queue. A storage that
/// the host only reads need not be restored.
pub(super) async fn read_evicted(
    pass: &Pass,
    storage: &Arc<Storage>,
    reading: &Arc<Reading>,
    piece: Piece,
) -> Result<()> {
    // Earlier pieces of the reading come first, and their bytes may still be on their way.
    pass.submit()?;
    while reading.next_signal().is_some() && reading.failure().is_none() {
        if let Err(error) = pass.unless_lost(pass.readbacks.take_in(reading).await)? {
            reading.fail(refusal("a read", error));
        }
    }
    let Some(copies) = supply::evicted_copies(pass, storage) else {
        return Ok(());
    };
    let mut supply = Supply::new(pass, storage, &copies);
    let (start, mut bytes) = (piece.offset_bytes, Vec::new());
    let supplied = supply.each(start..start + piece.size_bytes, |piece| {
        bytes.extend_from_slice(piece);
        Ok(())
    });
    match supplied.await {
        Ok(()) => reading.deliver(&bytes),
        Err(error) => {
            if gave_up_copy(pass, storage, &error)
                && pass.lock().memory.slots.poison_of(storage).is_none()
            {
                // The read is still at the head of the queue, and the next step takes another copy.
                return Ok(());
            }
            reading.fail(error);
        }
    }
    let mut state = pass.lock();
    state.memory.slots.used(storage);
    state.memory.was_read(storage, piece.size_bytes);
    state.queue.pop_head();
    Ok(())
}
