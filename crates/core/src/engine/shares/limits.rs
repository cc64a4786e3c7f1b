//! Keeps shares within their limits: evicts what is above lowered ceilings.
//!
//! A drain is work of the share that is drained. So commands of higher priorities run in between.
//! A drain of the whole device is not interrupted.

use crate::engine::pass::Pass;
use crate::engine::pass::urgent::HoldGuard;
use crate::engine::reclaim;
use crate::engine::state::holds::HeldFor;
use crate::error::Result;
use crate::memory::{ShareId, Whom};

/// Evicts what is above lowered ceilings, as far as possible. Leaves shares whose priority is below
/// `least`: the caller's commands do not wait for work of those.
pub(crate) async fn drain_to_ceilings(pass: &Pass, least: i8) -> Result<()> {
    {
        let mut state = pass.lock();
        state.free_dead();
        if state.memory.shares.above_ceiling().is_empty() {
            return Ok(());
        }
    }
    let mut given_up: Vec<ShareId> = Vec::new();
    loop {
        let ((share, priority), is_outranked) = {
            let state = pass.lock();
            let shares = &state.memory.shares;
            let above = shares.above_ceiling().into_iter().map(|(share, _)| share);
            let mut above = above.map(|share| (share, shares.priority_of(share)));
            let next =
                above.find(|(share, priority)| *priority >= least && !given_up.contains(share));
            let Some(next) = next else { return Ok(()) };
            (
                next,
                state.has_priorities && next.1 < shares.highest_priority(),
            )
        };
        let _hold = is_outranked.then(|| pass.hold_for(HeldFor::Drain { above: priority }));
        pass.give_way().await?;
        let commands = || pass.lock().counters.commands;
        let (excess_bytes, before) = (excess_bytes(pass, share), commands());
        if excess_bytes == 0 {
            continue;
        }
        let drained = Box::pin(drain_once(pass, share, excess_bytes));
        let freed_bytes = pass.for_memory(None, drained).await?;
        if freed_bytes == 0 && commands() == before {
            // The rest is pinned, or has nowhere to go.
            given_up.push(share);
        }
    }
}

/// The bytes by which a share exceeds its ceiling now.
pub(super) fn excess_bytes(pass: &Pass, share: ShareId) -> u64 {
    let mut state = pass.lock();
    state.free_dead();
    let above = state.memory.shares.above_ceiling();
    let of_share = above.iter().find(|(other, _)| *other == share);
    of_share.map_or(0, |(_, excess_bytes)| *excess_bytes)
}

/// Drains a part of the excess. If the storages chosen for that cannot leave, tries all of them.
async fn drain_once(pass: &Pass, share: ShareId, excess_bytes: u64) -> Result<u64> {
    let (steps, whom) = (&reclaim::SHARE_STEPS, Whom::all(share));
    let part_bytes = excess_bytes.min(pass.part_bytes());
    let drain = |bytes| reclaim::run_until_freed(pass, steps, bytes, whom, |_, _| {});
    let freed_bytes = drain(part_bytes).await?;
    match freed_bytes == 0 && part_bytes < excess_bytes {
        true => drain(excess_bytes).await,
        false => Ok(freed_bytes),
    }
}

/// From now on the pass drains the device to its limit. `None` if there are no priorities.
pub(crate) fn hold_drain(pass: &Pass) -> Option<HoldGuard<'_>> {
    let has_higher = {
        let state = pass.lock();
        let shares = &state.memory.shares;
        state.has_priorities && shares.lowest_priority() < shares.highest_priority()
    };
    has_higher.then(|| pass.hold_for(HeldFor::Whole))
}
