//! Copies storages to the host ahead of need, while the device computes. They are clean by the time
//! their memory is needed.
//!
//! `victims` chooses the storages. If `outlook` finds no shortage in the queue, nothing is copied.
//! A storage whose copy is in progress stays on the device. If it is written to or freed, the copy
//! is worthless.

use super::evict::{self, PendingEviction};
use crate::engine::pass::Pass;
use crate::engine::tiers;
use crate::error::Result;
use crate::memory::{Candidate, Tier};

/// Records copies of storages that will be evicted soon. Stops where a copy would have to wait or
/// take memory from others.
pub(super) async fn start_ahead(pass: &Pass, victims: Vec<Candidate>, tier: Tier) -> Result<()> {
    for victim in victims {
        let now = pass.lock().memory.slots.candidate(&victim.storage);
        if !now.is_some_and(|now| now.place == victim.place) {
            // The driver has refused the batch that restored it, so its bytes are not there.
            continue;
        }
        if victim.storage.len_bytes() > pass.readbacks.room_bytes().min(pass.part_bytes()) {
            break;
        }
        let Ok(destination) = tiers::spare_destination(pass, &victim.storage, tier) else {
            break;
        };
        let Some(eviction) = evict::start_eviction(pass, victim, destination).await? else {
            break;
        };
        pass.lock().cleanings.push(eviction.copy);
    }
    Ok(())
}

/// The pending eviction of a victim whose copy is already in progress. Returns the victim itself if
/// there is no such copy.
pub(super) fn take_pending_eviction(
    pass: &Pass,
    victim: Candidate,
) -> std::result::Result<PendingEviction, Candidate> {
    let mut state = pass.lock();
    let Some(one) = state.cleanings.take(&victim.storage) else {
        return Err(victim);
    };
    if one.storage(&state.memory).is_none() {
        state.counters.evicted_bytes += one.moved_bytes();
        // Disk space is freed outside the lock.
        drop(state);
        return Err(victim);
    }
    Ok(PendingEviction { victim, copy: one })
}
