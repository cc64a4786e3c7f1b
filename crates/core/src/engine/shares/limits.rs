//! Keeps shares within their limits: evicts what is above lowered ceilings.

use crate::engine::pass::Pass;
use crate::engine::pass::turn::WHOLE;
use crate::engine::reclaim;
use crate::error::Result;
use crate::memory::{ShareId, Whom};

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
        if reclaim::run_until_freed(pass, steps, excess_bytes, whom, WHOLE, |_, _| {}).await? == 0 {
            // The rest is pinned, or has nowhere to go.
            given_up.push(share);
        }
    }
}
