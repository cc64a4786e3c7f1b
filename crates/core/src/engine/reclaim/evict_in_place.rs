//! The eviction of a storage where the host maps slabs: no copy is submitted.

use super::evict;
use crate::driver::{DriverError, DriverResult, MapMode};
use crate::engine::mapped::Mapped;
use crate::engine::pass::Pass;
use crate::engine::state::destination::Destination;
use crate::error::Result;
use crate::memory::{Candidate, Copies, ShareId};
use crate::transfer::{Piece, refusal};
use crate::units::KIB;

/// The most bytes of one write of zeros: they stay in the host's caches.
const MOST_ZEROS: u64 = 64 * KIB;

/// Copies a victim's bytes out of its mapped slab, then evicts it. If another share claimed its
/// memory, clears the block.
pub(super) async fn evict_in_place(
    pass: &Pass,
    victim: &Candidate,
    mut destination: Destination,
    claimer: Option<ShareId>,
) -> Result<()> {
    let refused = |error| refusal("to map a slab", error);
    pass.submit()?;
    if pass.lock().memory.previous.has_unclean() {
        // The driver refused to clear a block, which may be this one.
        return Err(refused(DriverError::OutOfMemory));
    }
    let idle = (pass.lock().memory.slabs).idle(victim.place, pass.driver.completed());
    if idle == Some(false) {
        pass.wait_idle().await?;
    }
    let len_bytes = victim.storage.len_bytes();
    let piece = Piece {
        offset_bytes: 0,
        size_bytes: len_bytes,
    };
    let (place, (_, size_bytes)) = (victim.place, piece.words());
    if size_bytes > 0 {
        let mapping =
            (pass.driver).map(place.buffer, MapMode::Read, place.offset_bytes, size_bytes);
        let signal = mapping.map_err(refused)?;
        let _mapped = Mapped(pass, place.buffer);
        pass.driver.wait(&signal).await.map_err(refused)?;
        let mut taken = Ok(());
        let mut look = |bytes: &[u8]| taken = destination.take(&bytes[..len_bytes as usize]);
        let read =
            (pass.driver).read_mapped(place.buffer, place.offset_bytes, size_bytes, &mut look);
        read.map_err(refused)?;
        taken?;
    }
    let mut copies = Copies::default();
    destination.finish(&mut copies)?;
    evict::mark_evicted(pass, victim, copies);
    if claimer.is_some_and(|claimer| claimer != victim.storage.share()) {
        // If this fails, an op clears the block.
        let _ = clear(pass, victim).await;
    }
    Ok(())
}

/// Clears the block of an evicted storage, for the share that will get it. The host does it: it has
/// just read the bytes, so most are in its caches. A clear by the device would take longer. The
/// host would wait for it before the next eviction from the slab.
async fn clear(pass: &Pass, victim: &Candidate) -> DriverResult<()> {
    let place = victim.place;
    let granted_bytes = {
        let state = pass.lock();
        if !state.memory.may_clear_at_once() {
            return Ok(());
        }
        state
            .memory
            .slabs
            .granted_bytes(victim.storage.size_bytes())
    };
    let (buffer, start) = (place.buffer, place.offset_bytes);
    let signal = pass
        .driver
        .map(buffer, MapMode::Write, start, granted_bytes)?;
    let mapped = Mapped(pass, buffer);
    pass.driver.wait(&signal).await?;
    // A constant would make every program larger.
    let zeros = vec![0; granted_bytes.min(MOST_ZEROS) as usize];
    for at in (0..granted_bytes).step_by(MOST_ZEROS as usize) {
        let bytes = (granted_bytes - at).min(MOST_ZEROS) as usize;
        pass.driver
            .write_mapped(buffer, start + at, &zeros[..bytes])?;
    }
    drop(mapped);
    let mut state = pass.lock();
    state.memory.previous.cleared(place, granted_bytes);
    state.counters.hand_overs += 1;
    state.counters.cleared_bytes += granted_bytes;
    Ok(())
}
