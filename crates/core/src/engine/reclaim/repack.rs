//! The last reclaim step: evicts the operands of the command itself and restores them side by side.
//! The operands may be all that is left on the device, and yet leave no hole that is large enough.
//!
//! So a command that fits in the budget finds memory wherever its operands lie. No pinned storage
//! may be in the way, and a tier must have room for the operands for a moment.

use std::cmp::Reverse;
use std::sync::Arc;

use super::compact;
use super::evict;
use super::freed;
use super::needed;
use super::retire;
use crate::engine::pass::Pass;
use crate::engine::restore::{self, RestoreGuard};
use crate::engine::tiers;
use crate::error::Result;
use crate::memory::{HoleChoice, PendingRestore, ShareId, Storage, Whom};

/// Evicts the operands of the command at the head of the queue, or only this storage, and gives
/// each a new block. Returns the result, or `None` if that is impossible, and the evicted bytes.
pub(super) async fn repack(
    pass: &Pass,
    storage: &Arc<Storage>,
) -> Result<(Option<Result<()>>, u64)> {
    // The operands must stay side by side, so nothing may come between.
    let _hold = pass.hold_whole();
    let (mut needed, is_head) = {
        let mut state = pass.lock();
        state.unplace_head();
        let is_head = needed::is_needed(&state, storage);
        (needed::needed_storages(&state, storage), is_head)
    };
    let freed_bytes = evict_needed(pass, &needed).await?;
    retire::trim_slabs(pass)?;
    retire::wait_for_all(pass).await?;
    // The largest come first, because they fit into the fewest holes.
    needed.sort_by_key(|storage| Reverse(storage.size_bytes()));
    let mut blocks = Vec::new();
    for one in needed {
        let is_unmade = {
            let memory = &pass.lock().memory;
            if memory.slots.find(&one).is_some() {
                continue;
            }
            memory.slots.is_evicted(&one) && !memory.slots.is_evicted_with_bytes(&one)
        };
        // Storages without bytes are computed when the command asks for them. The exception is a
        // storage that the command overwrites, for which only room is needed.
        if is_unmade && !Arc::ptr_eq(&one, storage) {
            continue;
        }
        match new_block(pass, &one).await? {
            Some(pending_restore) => {
                blocks.push((one, is_unmade, RestoreGuard(pass, Some(pending_restore))))
            }
            None => return Ok((None, freed_bytes)),
        }
    }
    for (one, is_unmade, mut restore_guard) in blocks {
        if is_unmade {
            continue;
        }
        if pass.lock().memory.slots.is_evicted(&one) {
            let restored = restore::restore_into(pass, &one, &mut restore_guard).await?;
            if let Err(error) = restored {
                return Ok((Some(Err(error)), freed_bytes));
            }
        } else if is_head {
            let mut state = pass.lock();
            if let Some(pending_restore) = restore_guard.1.take() {
                state.memory.finish_restore(&one, pending_restore);
                state.head.note_placed(&one);
            }
        }
    }
    // The hole for a storage that is no operand, or is overwritten, is left for the request.
    pass.lock().head.fit = HoleChoice::Anywhere;
    Ok((Some(Ok(())), freed_bytes))
}

/// Evicts these storages if possible. Returns the freed bytes.
pub(super) async fn evict_needed(pass: &Pass, needed: &[Arc<Storage>]) -> Result<u64> {
    let (mut freed_bytes, whom) = (0, Whom::all(ShareId::MAIN));
    for tier in tiers::all(pass).filter(|tier| tiers::is_ready(pass, *tier)) {
        let mut victims = Vec::new();
        {
            let mut state = pass.lock();
            for storage in needed {
                let Some(mut victim) = state.memory.slots.candidate(storage) else {
                    continue;
                };
                // A rematerialization would need memory itself.
                if !state.memory.slots.has_bytes_elsewhere(storage) {
                    victim.is_clean = false;
                    victims.push(victim);
                } else if state.memory.evict_clean(storage) {
                    freed_bytes += storage.size_bytes();
                }
            }
        }
        let evicted = evict::evict_victims(pass, victims, Vec::new(), tier, whom).await?;
        freed_bytes += evicted.0;
    }
    Ok(freed_bytes)
}

/// A block in any hole, or in a new slab that is no larger than needed.
pub(super) async fn new_block(
    pass: &Pass,
    storage: &Arc<Storage>,
) -> Result<Option<PendingRestore>> {
    let mut is_created = false;
    loop {
        let freed_before = freed(pass);
        let growth = {
            let mut state = pass.lock();
            let received = state.memory.begin_restore(storage, HoleChoice::Anywhere);
            if let Ok(Some(pending_restore)) = received {
                return Ok(Some(pending_restore));
            }
            state.memory.slabs.growth(storage.size_bytes())
        };
        let Some(growth) = growth.ok().filter(|_| !is_created) else {
            return Ok(None);
        };
        match pass.unless_lost(compact::create_planned(pass, &growth.least()).await)? {
            Ok(_) => is_created = true,
            Err(_) if freed(pass) == freed_before => return Ok(None),
            Err(_) => {}
        }
    }
}
