//! Keeps shares within their limits: evicts what is above lowered ceilings.
//!
//! A drain is work of the share that is drained. So it runs in rounds, and between two rounds the
//! pass runs the commands of higher priorities that have come. They run as in any pass, but it
//! stops before the first command that does not go before the drain. A drain of the whole device is
//! not interrupted.

use crate::engine::pass::Pass;
use crate::engine::pass::turn::{HoldGuard, WHOLE};
use crate::engine::reclaim;
use crate::engine::state::holds::HeldFor;
use crate::error::Result;
use crate::memory::{ShareId, Whom};

/// Evicts what is above lowered ceilings, as far as possible. Leaves shares whose priority is below
/// `least`: the caller's commands do not wait for work of those.
pub(in crate::engine) async fn drain_to_ceilings(pass: &Pass, least: i8) -> Result<()> {
    {
        let mut state = pass.lock();
        state.free_dead();
        if state.memory.shares.above_ceiling().is_empty() {
            return Ok(());
        }
    }
    let mut given_up: Vec<ShareId> = Vec::new();
    loop {
        let next = {
            let state = pass.lock();
            let shares = &state.memory.shares;
            let above = shares.above_ceiling().into_iter().map(|(share, _)| share);
            let mut above = above.map(|share| (share, shares.priority_of(share)));
            above.find(|(share, priority)| *priority >= least && !given_up.contains(share))
        };
        let Some((share, priority)) = next else {
            return Ok(());
        };
        let _hold = hold_above(pass, priority);
        let mut part_bytes = pass.round_bytes(WHOLE);
        while pass.must_yield() {
            if !run_urgent(pass, priority).await? {
                // They wait for lower commands, so they do not wait for the drain.
                part_bytes = WHOLE;
                break;
            }
        }
        let excess_bytes = excess_bytes(pass, share);
        if excess_bytes == 0 {
            continue;
        }
        let freed_bytes = drain_once(pass, share, excess_bytes, part_bytes).await?;
        let is_left = pass.leaves_move(part_bytes);
        if freed_bytes == 0 && !is_left {
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

/// Runs a round of a drain. If a part of the storages cannot leave, tries all of them. Leaves a
/// move between two parts if higher commands have come.
async fn drain_once(
    pass: &Pass,
    share: ShareId,
    excess_bytes: u64,
    part_bytes: u64,
) -> Result<u64> {
    let (steps, whom) = (&reclaim::SHARE_STEPS, Whom::all(share));
    let round_bytes = pass.round_bytes(excess_bytes);
    let drain = |bytes| reclaim::run_until_freed(pass, steps, bytes, whom, part_bytes, |_, _| {});
    let freed_bytes = drain(round_bytes).await?;
    let is_stuck = freed_bytes == 0 && !pass.leaves_move(part_bytes);
    match is_stuck && round_bytes < excess_bytes {
        true => drain(excess_bytes).await,
        false => Ok(freed_bytes),
    }
}

/// From now on the pass drains the device to its limit. `None` if there are no priorities.
pub(in crate::engine) fn hold_drain(pass: &Pass) -> Option<HoldGuard<'_>> {
    let has_higher = {
        let state = pass.lock();
        let shares = &state.memory.shares;
        state.has_priorities && shares.lowest_priority() < shares.highest_priority()
    };
    has_higher.then(|| pass.hold_for(HeldFor::Whole))
}

/// From now on the pass drains memory of this priority. `None` if there is no higher one.
fn hold_above(pass: &Pass, priority: i8) -> Option<HoldGuard<'_>> {
    let held = {
        let state = pass.lock();
        let is_outranked = priority < state.memory.shares.highest_priority();
        if !(state.has_priorities && is_outranked) {
            return None;
        }
        match state.may_run_between() {
            true => HeldFor::Drain { above: priority },
            false => HeldFor::Whole,
        }
    };
    Some(pass.hold_for(held))
}

/// Runs the commands above this priority, between two rounds of a drain that the pass is held for.
/// Returns whether there were any that could run.
async fn run_urgent(pass: &Pass, priority: i8) -> Result<bool> {
    let commands = || pass.lock().counters.progress().0;
    let before = commands();
    // If this is dropped, the pass is, and the guard of the hold finds nothing to end.
    let held = pass.swap_hold(None);
    let ran = pass.execute_above(priority).await;
    pass.swap_hold(held);
    ran.map(|()| commands() != before)
}
