//! Restores evicted storages, and reads them where their bytes are. `rematerialize` and `recompute`
//! compute them again.
//!
//! The bytes come from the best copy: the host's memory, a store, the disk, then the source. They
//! go through staging that only execution passes use, so a restore never waits for uploads of the
//! app. Copies in the batch take them to the slab. Where host and device share memory and the slab
//! is idle, the bytes go straight into the slab.
//!
//! For a command of a low priority, the bytes of a large storage come part by part. If work of a
//! higher priority comes between two parts, the restore is left halfway, and keeps its block. The
//! next restore of the storage goes on there.

pub(in crate::engine) mod limit_ahead;
pub(in crate::engine) mod recompute;
pub(in crate::engine) mod rematerialize;

use std::ops::Range;
use std::sync::Arc;

use super::mapped::Mapped;
use super::pass::Pass;
use super::pass::turn::WHOLE;
use super::reclaim;
use super::reclaim::refuse;
use super::state::cost::Stopwatch;
use super::state::left_restore::Filled;
use super::tiers::supply::{self, Supply};
use crate::driver::{BoxFuture, DriverError, MapMode, Op};
use crate::error::{Error, Result};
use crate::memory::{Copies, PendingRestore, Place, Storage};
use crate::transfer::{Piece, Reading, Region, refusal};

/// A restore of at least this size is staged while the device runs the commands encoded before.
/// Staging it takes about as long as a submission.
const OVERLAP_BYTES: u64 = 256 << 10;

/// The attempts to restore a storage when the driver refuses the submissions.
const FILLS: usize = 3;

/// A block for a storage that is being restored. It is freed on drop, also if the execution pass is
/// dropped.
pub(super) struct RestoreGuard<'a>(pub(super) &'a Pass, pub(super) Option<PendingRestore>);

impl Drop for RestoreGuard<'_> {
    fn drop(&mut self) {
        if let Some(pending_restore) = self.1.take() {
            self.0.lock().memory.cancel_restore(pending_restore);
        }
    }
}

/// Restores an evicted storage. The inner error concerns the command that needs it. For a command
/// at the head of the queue, returns before that if work of a higher priority has come.
pub(super) fn restore<'a>(
    pass: &'a Pass,
    storage: &'a Arc<Storage>,
) -> BoxFuture<'a, Result<Result<()>>> {
    Box::pin(async move {
        let copies = supply::evicted_copies(pass, storage).filter(|copies| !copies.has_bytes());
        if let Some(rematerializer) = copies
            .as_ref()
            .and_then(|copies| copies.rematerializer.as_ref())
        {
            return rematerialize::rematerialize(pass, storage, rematerializer);
        }
        drop(copies);
        let mut restore_guard = RestoreGuard(pass, None);
        let (mut filled, mut part_bytes) = (Filled::default(), pass.round_bytes(WHOLE));
        loop {
            {
                let state = &mut *pass.lock();
                if !state.memory.slots.is_evicted(storage) {
                    return Ok(Ok(()));
                }
                let restores = &mut state.left_restores;
                if let Some(taken_up) = restores.take_up(storage, &mut state.memory) {
                    (restore_guard.1, filled) = (Some(taken_up.0), taken_up.1);
                    break;
                }
                if !restores.may_leave(storage) {
                    part_bytes = WHOLE;
                }
                let fit = state.head.take_fit();
                let received = state.memory.begin_restore(storage, fit);
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
            if pass.must_yield() {
                return Ok(Ok(()));
            }
        }
        restore_into(pass, storage, &mut restore_guard, filled, part_bytes).await
    })
}

/// Copies the bytes of a storage into the block that was taken for it, and has some of them. Leaves
/// that between two parts of this many bytes if work of a higher priority has come, unless they are
/// [`WHOLE`]. The inner error concerns the command that needs them.
pub(super) fn restore_into<'a>(
    pass: &'a Pass,
    storage: &'a Arc<Storage>,
    restore_guard: &'a mut RestoreGuard<'_>,
    mut filled: Filled,
    part_bytes: u64,
) -> BoxFuture<'a, Result<Result<()>>> {
    Box::pin(async move {
        let copies = supply::evicted_copies(pass, storage);
        let (Some(copies), Some(pending_restore)) = (copies, &restore_guard.1) else {
            return Ok(Ok(()));
        };
        let place = pending_restore.place;
        let is_full = fill_with_retries(pass, storage, &copies, place, &mut filled, part_bytes);
        let is_full = match is_full.await {
            Ok(is_full) => is_full,
            Err(error) if gave_up_copy(pass, storage, &error) => return Ok(Ok(())),
            Err(error) => {
                pass.check_lost()?;
                return Ok(Err(error));
            }
        };
        let state = &mut *pass.lock();
        if let Some(pending_restore) = restore_guard.1.take() {
            let restores = &mut state.left_restores;
            if !is_full {
                restores.leave(storage, pending_restore, filled, &mut state.memory);
                return Ok(Ok(()));
            }
            restores.ended(storage);
            state.memory.finish_restore(storage, pending_restore);
            state.memory.slots.used(storage);
            state.batch.add_restored(storage);
            state.counters.restored_bytes += storage.len_bytes();
            state.count_transfer(&copies, storage.len_bytes());
        }
        Ok(Ok(()))
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

/// Fills a place from where it was left. Begins again if a submission with a part of it was
/// refused. Returns whether the place is full.
async fn fill_with_retries(
    pass: &Pass,
    storage: &Arc<Storage>,
    copies: &Copies,
    place: Place,
    filled: &mut Filled,
    part_bytes: u64,
) -> Result<bool> {
    let refused = || pass.lock().counters.refused_submissions;
    for _ in 0..FILLS {
        let before = refused();
        if filled.refused != before {
            (filled.bytes, filled.refused) = (0, before);
        }
        if !fill(pass, storage, copies, place, &mut filled.bytes, part_bytes).await? {
            return Ok(false);
        }
        if refused() == before {
            return Ok(true);
        }
    }
    Err(Error::Driver {
        what: "a submission",
        message: "again and again, while the engine restored a tensor".into(),
    })
}

/// Fills a place with the bytes of a storage from `at` on, by ops of the batch or in the mapped
/// slab. Returns whether the place is full.
async fn fill(
    pass: &Pass,
    storage: &Arc<Storage>,
    copies: &Copies,
    place: Place,
    at: &mut u64,
    part_bytes: u64,
) -> Result<bool> {
    let mut supply = Supply::new(pass, storage, copies);
    let (begin, len_bytes) = (*at, storage.len_bytes());
    let left_bytes = len_bytes - begin;
    if left_bytes == 0 {
        return Ok(true);
    }
    if left_bytes >= OVERLAP_BYTES && pass.lock().batch.has_dispatches() {
        // The device works on the batch while the bytes are staged.
        pass.submit()?;
    }
    let idle = {
        let mut state = pass.lock();
        state.handle_changes();
        state.memory.slabs.idle(place, pass.driver.completed())
    };
    let waits_anyway = idle == Some(false) && !pass.restore_staging.holds(left_bytes);
    if pass.caps().maps_slabs && waits_anyway {
        // The bytes exceed staging, which would be filled piece by piece, with a wait for each.
        pass.submit()?;
        pass.wait_idle().await?;
    }
    // If the driver refused to clear a block, which may be this one, its clearing comes later.
    let is_clear = !pass.lock().memory.previous.has_unclean();
    let is_mapped = pass.caps().maps_slabs && is_clear && (idle == Some(true) || waits_anyway);
    let (mut watch, tier) = (pass.stopwatch(), supply.tier());
    while *at < len_bytes {
        let end = at.saturating_add(part_bytes).min(len_bytes);
        if is_mapped {
            fill_in_place(pass, &mut supply, place, *at..end, &mut watch).await?;
        }
        while !is_mapped && *at < end {
            let mut rest = watch.time(|| supply.piece(*at, end - *at))?;
            // A piece may be larger than the free staging. It is staged in parts and fetched once.
            while !rest.is_empty() {
                let (region, taken) = stage_restore(pass, storage, rest, &mut watch).await?;
                let mut state = pass.lock();
                state.memory.slabs.touch(place);
                state.push_op(Op::Copy {
                    src: region.buffer,
                    src_offset_bytes: region.offset_bytes,
                    dst: place.buffer,
                    dst_offset_bytes: place.offset_bytes + *at,
                    size_bytes: region.size_bytes,
                });
                state.batch.add_region(region);
                *at += taken as u64;
                rest = &rest[taken..];
            }
        }
        *at = end;
        if end < len_bytes && !is_mapped {
            // The device copies one part while the host stages the next one. Whoever comes waits
            // for no more than these.
            pass.wait_idle().await?;
        }
        if end < len_bytes && pass.leaves_move(part_bytes) {
            return Ok(false);
        }
        if end < len_bytes && !is_mapped {
            pass.submit()?;
        }
    }
    if let Some(time) = watch.spent() {
        (pass.lock().costs).note(tier, len_bytes - begin, time);
    }
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
    let start = place.offset_bytes + part.start;
    let size_bytes = (part.end - part.start).next_multiple_of(4);
    let mapping = pass
        .driver
        .map(place.buffer, MapMode::Write, start, size_bytes);
    let signal = mapping.map_err(refused)?;
    let _mapped = Mapped(pass, place.buffer);
    pass.driver.wait(&signal).await.map_err(refused)?;
    let mut at = part.start;
    while at < part.end {
        let done = watch.time(|| {
            let piece = supply.piece(at, part.end - at)?;
            let to = place.offset_bytes + at;
            let written = pass.driver.write_mapped(place.buffer, to, piece);
            written.map(|()| piece.len() as u64).map_err(refused)
        });
        at += done?;
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
            // All staging is in use. The batch must be submitted so that its chunks return.
            pass.lock().counters.staging_waits += 1;
            pass.submit()?;
            pass.restore_staging.sweep().map_err(refused)?;
            if pass.restore_staging.wait().await.map_err(refused)?
                || pass.restore_staging.has_room()
            {
                continue;
            }
            if !reclaim::make_way_for_staging(pass, wanted_bytes, tries).await? {
                return Err(refused(DriverError::OutOfMemory));
            }
            tries += 1;
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
                if gave_up_copy(pass, storage, &error)
                    && pass.lock().memory.slots.poison_of(storage).is_none()
                {
                    // The read is still at the head of the queue, and the next step takes another
                    // copy.
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
    state.memory.slots.used(storage);
    state.memory.was_read(storage, piece.size_bytes);
    state.queue.pop_head();
    Ok(())
}
