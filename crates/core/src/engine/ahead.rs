//! Writing out ahead of need: what must leave before long is copied to the host while the device
//! computes, so that it is clean by the time its room is wanted.
//!
//! How much that will be is read off the queue: it tells what will be made and restored, and what
//! will die. Where it tells of no shortage, nothing is copied. A storage whose copy is on its way
//! stays where it is; a write to it, or its death, makes the copy worth nothing.

use super::cleaning::Cleaning;
use super::destination::Tier;
use super::evict::{self, PendingEviction};
use super::pass::Pass;
use super::tiers;
use crate::error::Result;
use crate::memory::Candidate;

/// Records copies of storages that will have to leave before long, as many as there is room
/// for without waiting for anything or taking it from others.
pub(super) async fn start_ahead(pass: &Pass, victims: Vec<Candidate>, tier: Tier) -> Result<()> {
    for victim in victims {
        if victim.storage.len_bytes() > pass.readbacks.room_bytes() {
            break;
        }
        let Ok(destination) = tiers::spare_destination(pass, &victim.storage, tier) else {
            break;
        };
        let storage = victim.storage.clone();
        let writes = pass.lock().memory.writes_to(&storage);
        let Some(eviction) = evict::start_eviction(pass, victim, destination).await? else {
            break;
        };
        let PendingEviction {
            destination,
            reading,
            ..
        } = eviction;
        let cleaning = Cleaning::new(&storage, writes, destination, reading);
        pass.lock().cleanings.push(cleaning);
    }
    Ok(())
}

/// The victim as one that is leaving, if a copy of what it holds is on its way already; else as
/// it is.
pub(super) fn already_evicting(
    pass: &Pass,
    victim: Candidate,
) -> std::result::Result<PendingEviction, Candidate> {
    let mut state = pass.lock();
    let Some(one) = state.cleanings.take(&victim.storage) else {
        return Err(victim);
    };
    if one.storage(&state.memory).is_none() {
        state.counters.evicted_bytes += one.len_bytes;
        // Room on disk is given back without the lock.
        drop(state);
        return Err(victim);
    }
    Ok(PendingEviction {
        victim,
        destination: one.destination,
        reading: one.reading,
    })
}
