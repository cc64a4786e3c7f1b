//! Keeps shares within their limits: refuses pins that would endanger guarantees, and evicts what
//! is above lowered ceilings. `lending` says what may be lent.

use super::lending;
use crate::engine::handle::Engine;
use crate::engine::pass::Pass;
use crate::engine::reclaim;
use crate::error::{Error, Result};
use crate::memory::{ShareId, Whom};
use crate::units::Bytes;

/// Refuses pins that would keep others from what they are guaranteed: pinned storages cannot leave.
pub(in crate::engine) fn check_pins(engine: &Engine) -> Result<()> {
    if engine.lock().memory.shares.is_empty() {
        return Ok(());
    }
    let limit_bytes = lending::limit_bytes(engine);
    let needed_bytes = {
        let memory = &engine.lock().memory;
        (memory.shares).needed_for_guarantees(&memory.slots, &memory.slabs)
    };
    match needed_bytes <= limit_bytes {
        true => Ok(()),
        false => Err(Error::Buffer {
            operation: "pin",
            reason: format!(
                "guarantees, and pinned memory beyond them, would need {} of {}: pin less, or \
                 raise the guarantee of the share that pins",
                Bytes(needed_bytes),
                Bytes(limit_bytes),
            ),
        }),
    }
}

/// Evicts what is above lowered ceilings, as far as possible.
pub(super) async fn drain_to_ceilings(pass: &Pass) -> Result<()> {
    {
        let mut state = pass.lock();
        state.free_dead();
        if state.memory.shares.above_ceiling().is_empty() {
            return Ok(());
        }
    }
    let mut given_up: Vec<ShareId> = Vec::new();
    loop {
        let above = pass.lock().memory.shares.above_ceiling();
        let next = above.iter().find(|(share, _)| !given_up.contains(share));
        let Some(&(share, excess_bytes)) = next else {
            return Ok(());
        };
        let (steps, whom) = (&reclaim::SHARE_STEPS, Whom::all(share));
        if reclaim::run_until_freed(pass, steps, excess_bytes, whom, |_, _| {}).await? == 0 {
            // The rest is pinned, or has nowhere to go.
            given_up.push(share);
        }
    }
}
