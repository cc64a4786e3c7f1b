//! Getting down to a limit that was lowered.

use super::pass::Pass;
use super::{follow, reclaim, tiers};
use crate::error::Result;

/// While it lives, slabs get down to a limit that was lowered: staging may pass it, and nobody is
/// spared for the sake of the command at the head of the queue.
struct DrainGuard<'a>(&'a Pass);

impl<'a> DrainGuard<'a> {
    fn new(pass: &'a Pass) -> Self {
        pass.driver.ledger().set_draining(true);
        let mut state = pass.lock();
        state.unplace_head();
        state.head.set_fair_game(true);
        DrainGuard(pass)
    }
}

impl Drop for DrainGuard<'_> {
    fn drop(&mut self) {
        self.0.driver.ledger().set_draining(false);
        self.0.lock().head.set_fair_game(false);
    }
}

/// Something found no room. Was the limit lowered below what is taken since an execution pass
/// last got down to it? Then gets down to it: above it nothing is created, be it to evict
/// something, so what failed is to be tried again. The caller has the execution lock.
pub(super) async fn was_lowered(pass: &Pass) -> Result<bool> {
    let times = pass.driver.ledger().times_lowered();
    let is_new = pass.outside.is_newly_lowered(times);
    if is_new {
        shrink(pass).await?;
    }
    Ok(is_new)
}

/// Gets down to the limits; returns by how much the reserved bytes are above the device's. The
/// caller has the execution lock.
pub(super) async fn shrink(pass: &Pass) -> Result<u64> {
    let times = pass.driver.ledger().times_lowered();
    pass.outside.begin_shrink(times);
    pass.submit()?;
    if follow::must_drain(pass) || follow::excess_bytes(pass) > 0 {
        let _draining = DrainGuard::new(pass);
        let target_bytes = |pass: &Pass| pass.driver.ledger().slab_limit_now_bytes();
        reclaim::drain_to(pass, target_bytes).await?;
    }
    if follow::excess_bytes(pass) > 0 {
        // What is above it is staging.
        reclaim::make_way(pass, 0, 0).await?;
    }
    tiers::drain_host(pass)?;
    // What is pinned may be let go later.
    follow::note_excess(pass, &pass.lock_limits());
    Ok(follow::excess_bytes(pass))
}
