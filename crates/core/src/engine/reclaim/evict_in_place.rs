//! The eviction of a storage where the host maps slabs: no copy is submitted.

use super::evict::{self, PendingEviction};
use crate::driver::{DriverError, DriverResult, MapMode};
use crate::engine::mapped::Mapped;
use crate::engine::pass::Pass;
use crate::error::Result;
use crate::memory::{Candidate, Place, ShareId};
use crate::transfer::refusal;
use crate::units::KIB;

/// The bytes of one write, which stay in the host's caches.
static ZEROS: [u8; 64 * KIB as usize] = [0; 64 * KIB as usize];

/// Copies a victim's bytes out of its mapped slab, then evicts it. If another share claimed its
/// memory, clears the block. Returns whether it was evicted. It was not if commands that ran
/// between two parts used the victim, or evicted it.
pub(super) async fn evict_in_place(
    pass: &Pass,
    mut eviction: PendingEviction,
    claimer: Option<ShareId>,
) -> Result<bool> {
    let refused = |error| refusal("to map a slab", error);
    while let Some(piece) = eviction.copy.rest.next() {
        pass.submit()?;
        if pass.lock().is_unsettled() {
            // The driver refused to clear or to move a block, which may be this one.
            return Err(refused(DriverError::OutOfMemory));
        }
        let place = eviction.victim.place;
        let idle = (pass.lock().memory.slabs).idle(place, pass.driver.completed());
        if idle == Some(false) {
            pass.wait_idle().await?;
        }
        let (start, size_bytes) = piece.words();
        let from = place.at(start);
        let mapping = Mapped::begin(pass, MapMode::Read, from, size_bytes);
        let mapped = mapping.await.map_err(refused)?;
        let reading = &eviction.copy.reading;
        let mut look = |bytes: &[u8]| reading.deliver(&bytes[..piece.size_bytes as usize]);
        let read = (pass.driver).read_mapped(from, size_bytes, &mut look);
        read.map_err(refused)?;
        drop(mapped);
        if eviction.copy.is_left() {
            match evict::give_way_amid(pass, eviction).await? {
                Some(goes_on) => eviction = goes_on,
                None => return Ok(false),
            }
        }
    }
    if !evict::evict_copied(pass, &eviction)? {
        return Ok(false);
    }
    let victim = &eviction.victim;
    if claimer.is_some_and(|claimer| claimer != victim.storage.share()) {
        // If this fails, an op clears the block.
        let _ = clear(pass, victim).await;
    }
    Ok(true)
}

/// Clears the block of an evicted storage, for the share that will get it. The host does it: it has
/// just read the bytes, so most are in its caches. A clear by the device would take longer. The
/// host would wait for it before the next eviction from the slab. The device clears what is left
/// when work of a higher priority comes.
async fn clear(pass: &Pass, victim: &Candidate) -> DriverResult<()> {
    let part_bytes = pass.part_bytes();
    let granted_bytes = {
        let state = pass.lock();
        // Canaries and their pattern must stay.
        if !state.memory.previous.is_on() || state.memory.canaries.is_on() {
            return Ok(());
        }
        (state.memory.slabs).granted_bytes(victim.storage.size_bytes())
    };
    let mut at = 0;
    while at < granted_bytes {
        let size_bytes = part_bytes.min(granted_bytes - at);
        let mut part = victim.place;
        part.offset_bytes += at;
        clear_part(pass, part, size_bytes).await?;
        at += size_bytes;
        if at < granted_bytes && pass.is_outranked() {
            return Ok(());
        }
    }
    pass.lock().counters.hand_overs += 1;
    Ok(())
}

async fn clear_part(pass: &Pass, part: Place, size_bytes: u64) -> DriverResult<()> {
    let mapped = Mapped::begin(pass, MapMode::Write, part.at(0), size_bytes).await?;
    for at in (0..size_bytes).step_by(ZEROS.len()) {
        let zeros = &ZEROS[..ZEROS.len().min((size_bytes - at) as usize)];
        pass.driver.write_mapped(part.at(at), zeros)?;
    }
    drop(mapped);
    let mut state = pass.lock();
    state.memory.previous.cleared(part, size_bytes);
    state.counters.cleared_bytes += size_bytes;
    Ok(())
}
