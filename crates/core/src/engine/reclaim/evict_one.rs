//! The eviction of one storage at the app's request.

use std::sync::Arc;

use super::evict_in_place::evict_in_place;
use super::evict_to_heap::{Moved, evict_to_heap};
use super::{demote, evict, refuse, shrink, victims};
use crate::driver::DriverError;
use crate::engine::pass::Pass;
use crate::engine::tiers;
use crate::error::{Error, Result};
use crate::memory::{Candidate, Storage, Tier};

/// The attempts to move a storage to the heap in the host's memory while others change it.
const MOVES: usize = 3;

/// Evicts a storage, after all queued commands.
pub(crate) async fn evict_one(pass: &Pass, storage: &Arc<Storage>) -> Result<()> {
    pass.error_of(storage)?;
    while !in_span!(
        "eviction",
        { missing_bytes = storage.size_bytes() },
        try_evict(pass, storage)
    )
    .await?
    {
        if !shrink::was_lowered(pass).await? {
            let error = DriverError::OutOfMemory;
            return Err(refuse::refused(pass, "a read-back buffer", error, storage));
        }
    }
    Ok(())
}

/// Evicts a storage by any means. `false` if there is no read-back buffer for its bytes.
async fn try_evict(pass: &Pass, storage: &Arc<Storage>) -> Result<bool> {
    let pinned = || Error::Pinned {
        operation: "evict",
        made_at: storage.tag().to_string(),
    };
    let mut victim = {
        let mut state = pass.lock();
        if state.memory.slots.is_evicted(storage) {
            return Ok(true);
        }
        let victim = match state.memory.slots.candidate(storage) {
            Some(victim) => victim,
            // The storage has no bytes, or no place because no command has used it yet.
            None if storage.len_bytes() == 0 || state.memory.slots.find(storage).is_none() => {
                return Ok(true);
            }
            None => return Err(pinned()),
        };
        if victim.is_clean && victims::drop_one(&mut state, &victim) > 0 {
            return Ok(true);
        }
        victim
    };
    if !evict::settle(pass, &mut victim)? {
        pass.error_of(storage)?;
        return Ok(true);
    }
    pass.drop_stale_copies();
    let mut victim = Some(victim);
    for tier in tiers::all(pass) {
        // A store did not take the bytes, so they are still on the device.
        let Some(one) = victim
            .take()
            .or_else(|| pass.lock().memory.slots.candidate(storage))
        else {
            return Err(pinned());
        };
        match pass.unless_lost(evict_to(pass, one, tier).await)? {
            Err(error) if tier != Tier::Disk => {
                let is_tiers = matches!(error, Error::Store(_) | Error::Option { .. });
                if !is_tiers {
                    return Err(error);
                }
            }
            result => return result,
        }
    }
    Ok(false)
}

/// Evicts a storage to a tier. `false` if there is no read-back buffer for its bytes.
async fn evict_to(pass: &Pass, mut victim: Candidate, tier: Tier) -> Result<bool> {
    for _ in 0..MOVES {
        if tier != Tier::Host {
            break;
        }
        match evict_to_heap(pass, &victim).await? {
            Moved::Away => {
                demote::demote_ahead(pass, None, victim.storage.size_bytes()).await?;
                return Ok(true);
            }
            Moved::NoRoom => break,
            Moved::Changed => pass.error_of(&victim.storage)?,
        }
        match pass.lock().memory.slots.candidate(&victim.storage) {
            Some(now) => victim = now,
            None => return Ok(true),
        }
    }
    let Some(eviction) = evict::go_on_or_start(pass, victim, tier).await?? else {
        return Ok(false);
    };
    if pass.caps().maps_slabs {
        return evict_in_place(pass, eviction, None).await;
    }
    pass.submit()?;
    evict::finish_eviction(pass, eviction).await
}
