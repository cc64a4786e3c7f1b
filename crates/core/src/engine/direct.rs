//! Transfers without staging, where host and device share memory: the host maps the slab itself.
//!
//! No submission may name a mapped slab. So both directions need an idle slab, and the execution
//! lock, which keeps other threads from encoding. In exchange the bytes are copied only once, at
//! the speed of memory.

use std::sync::Arc;

use super::handle::Engine;
use super::mapped::Mapped;
use super::pass::Pass;
use super::queue::cmd::Cmd;
use super::state::State;
use super::{block_on, reclaim};
use crate::driver::{At, DriverResult, MapMode};
use crate::error::Result;
use crate::memory::{Place, Storage};
use crate::transfer::{Piece, Reading, refusal};

/// Uploads from this size on ask the device whether a slab is idle. Smaller ones use the known
/// state, because their copy out of staging costs hardly more than the question.
const LARGE_BYTES: usize = 32 << 10;

/// Uploads by mapping the place of a storage, or a new place. `false` if that is impossible. Then
/// nothing is lost, and the caller uploads through staging.
pub(super) fn upload_in_place(
    engine: &Arc<Engine>,
    dst: &Arc<Storage>,
    offset_bytes: u64,
    bytes: &[u8],
) -> Result<bool> {
    // The diagnostics check ops, in the order of the queue.
    if !engine.caps().maps_slabs || bytes.is_empty() || engine.diagnostics().is_some() {
        return Ok(false);
    }
    let Some(pass) = &Pass::try_begin(engine) else {
        return Ok(false);
    };
    let is_fresh = dst.slot().is_none() && Arc::strong_count(dst) == 1;
    let fresh = match is_fresh {
        true if offset_bytes > 0 => return Ok(false),
        true => place_now(pass, dst)?,
        false => None,
    };
    let find = || {
        let mut state = engine.lock();
        let completed = engine.driver.completed();
        let place = match is_fresh {
            true => fresh.filter(|&place| state.memory.slabs.idle(place, completed) == Some(true)),
            false => begin_write_in_place(&mut state, dst, completed),
        };
        if place.is_some() {
            state.memory.uploaded(dst, bytes.len() as u64);
        }
        place
    };
    let mut found = find();
    if found.is_none() && bytes.len() >= LARGE_BYTES {
        // Polling may show that slabs are idle. `check_lost` reports a loss.
        let _ = engine.driver.poll();
        engine.check_lost()?;
        found = find();
    }
    let Some(place) = found else {
        return Ok(false);
    };
    let at = place.at(offset_bytes);
    let written = match engine.driver.write_now(at, bytes) {
        Some(written) => written,
        None => block_on("an upload", async {
            Ok(write_in_place(pass, at, bytes).await)
        })?,
    };
    engine.check_lost()?;
    Ok(written.is_ok())
}

#[cfg(not(target_arch = "wasm32"))]
impl Engine {
    /// Shows bytes of a storage in place, after all earlier commands. The execution lock is held
    /// meanwhile. `false` if that is impossible: then `look` was not called, and the caller must
    /// read.
    #[track_caller]
    pub(crate) fn show_in_place(
        self: &Arc<Self>,
        src: &Arc<Storage>,
        piece: Piece,
        look: &mut dyn FnMut(&[u8]),
    ) -> Result<bool> {
        self.check_has_values()?;
        if !self.caps().maps_slabs || self.diagnostics().is_some() || self.is_inside() {
            return Ok(false);
        }
        self.check_lost()?;
        let Some(pass) = &Pass::try_begin(self) else {
            return Ok(false);
        };
        let is_settled = self.lock().has_nothing_to_do();
        if !is_settled {
            block_on("a read", pass.execute_for(std::slice::from_ref(src), &[]))?;
            self.error_of(src)?;
        }
        let (place, is_idle) = {
            let mut state = self.lock();
            let place = state.memory.slots.find(src);
            let is_settled = state.batch.is_empty() && !state.is_unsettled();
            let place = place.filter(|_| is_settled && state.memory.slots.in_slab(src));
            let Some(place) = place else {
                return Ok(false);
            };
            state.memory.slots.used(src);
            state.memory.was_read(src, piece.size_bytes);
            let is_idle = state.memory.slabs.idle(place, self.driver.completed());
            (place, is_idle == Some(true))
        };
        if !is_idle {
            block_on("a read", self.wait_idle())?;
        }
        let read = block_on("a read", async {
            Ok(self::look(pass, place, piece, look).await)
        })?;
        self.check_lost()?;
        read.map_err(|error| refusal("to map a slab", error))?;
        Ok(true)
    }
}

/// Places a storage before its first command runs. `None` if there is no room.
fn place_now(pass: &Pass, storage: &Arc<Storage>) -> Result<Option<Place>> {
    for _ in 0..2 {
        {
            let mut state = pass.lock();
            state.free_dead();
            let fit = state.head.take_fit();
            let placed = state.memory.place(storage, fit);
            if let Ok(Some(place)) = placed {
                // If the block must be cleared first, it is not idle, and the upload is queued.
                state.handle_changes();
                return Ok(Some(place));
            }
        }
        if block_on("an upload", reclaim::make_room(pass, storage))?.is_err() {
            break;
        }
    }
    // Nothing uses what the last reclaim allowed.
    pass.lock().head.take_fit();
    Ok(None)
}

async fn write_in_place(pass: &Pass, at: At, bytes: &[u8]) -> DriverResult<()> {
    // A mapping must start at a multiple of 8.
    let (first, end) = (at.1 & !7, (at.1 + bytes.len() as u64).next_multiple_of(4));
    let _mapped = Mapped::begin(pass, MapMode::Write, At(at.0, first), end - first).await?;
    pass.driver.write_mapped(at, bytes)
}

/// Maps a range of an idle slab and delivers it to the reading at the head of the queue.
pub(super) async fn read_in_place(
    pass: &Pass,
    reading: &Arc<Reading>,
    piece: Piece,
    place: Place,
) -> Result<()> {
    let has_ops = {
        let mut state = pass.lock();
        state.handle_changes();
        !state.batch.is_empty() || state.refused_changes.are_left()
    };
    if has_ops {
        // If the driver refuses the batch, there is nothing to read. The next step finds out.
        return pass.submit();
    }
    let is_idle = (pass.lock().memory.slabs).idle(place, pass.driver.completed());
    if is_idle == Some(false) {
        if let Err(error) = pass.wait_idle().await {
            reading.fail(error);
            pass.lock().queue.pop_head();
            return Ok(());
        }
    }
    let deliver = |bytes: &[u8]| reading.deliver(bytes);
    if let Err(error) = pass.unless_lost(look(pass, place, piece, deliver).await)? {
        reading.fail(refusal("to map a slab", error));
    }
    // The read has run here, so its command goes.
    let mut state = pass.lock();
    if let Some(Cmd::Read { src, .. }) = state.queue.pop_head() {
        state.memory.was_read(&src, piece.size_bytes);
    }
    Ok(())
}

/// Maps a piece of an idle slab, and shows it to `look`.
async fn look(
    pass: &Pass,
    place: Place,
    piece: Piece,
    mut look: impl FnMut(&[u8]),
) -> DriverResult<()> {
    let (start, size_bytes) = piece.words();
    let At(buffer, from) = place.at(start);
    // A mapping must start at a multiple of 8.
    let (at, map_bytes) = (At(buffer, from & !7), size_bytes + (from & 7));
    let skip = (from - at.1 + (piece.offset_bytes & 3)) as usize;
    let end = skip + piece.size_bytes as usize;
    let mut look = |bytes: &[u8]| look(&bytes[skip..end]);
    if let Some(read) = pass.driver.read_now(at, map_bytes, &mut look) {
        return read;
    }
    let _mapped = Mapped::begin(pass, MapMode::Read, at, map_bytes).await?;
    pass.driver.read_mapped(at, map_bytes, &mut look)
}

/// The place of a storage for a write that runs before all commands. `None` if the write must be
/// queued.
fn begin_write_in_place(
    state: &mut State,
    storage: &Arc<Storage>,
    completed: u64,
) -> Option<Place> {
    if !state.has_nothing_to_do() || !state.memory.slots.in_slab(storage) || storage.pins() > 0 {
        return None;
    }
    let place = state.memory.slots.find(storage)?;
    if state.memory.slabs.idle(place, completed) != Some(true) {
        return None;
    }
    if storage.feeds_rematerializers() && state.memory.slots.first_lost_by_write(storage).is_some()
    {
        return None;
    }
    // Under the lock: a thread that sees the new version appends its reads after this write.
    storage.bump_version(None);
    state.memory.slots.used(storage);
    state.memory.slots.written(storage);
    Some(place)
}
