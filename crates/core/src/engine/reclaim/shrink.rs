//! Shrinks the bytes in use to a lowered limit.

use std::sync::atomic::Ordering;

use crate::driver::BoxFuture;
use crate::engine::pass::Pass;
use crate::engine::reclaim;
use crate::engine::reclaim::drain_host::drain_host;
use crate::engine::reclaim::limits_in_force;
use crate::engine::shares::limits::{drain_to_ceilings, hold_drain};
use crate::error::Result;

/// A drain of the slabs to a lowered limit. Until it is dropped, staging may exceed the limit, and
/// the operands of the command at the head of the queue may be evicted.
struct DrainGuard<'a>(&'a Pass);

impl<'a> DrainGuard<'a> {
    fn new(pass: &'a Pass) -> Self {
        pass.driver.ledger().set_draining(true);
        let mut state = pass.lock();
        state.unplace_head();
        state.head.may_evict_operands = true;
        DrainGuard(pass)
    }
}

impl Drop for DrainGuard<'_> {
    fn drop(&mut self) {
        self.0.driver.ledger().set_draining(false);
        self.0.lock().head.may_evict_operands = false;
    }
}

/// Shrinks if the limit was lowered below the bytes in use since an execution pass last shrank.
/// Returns whether it was; then the caller should repeat the request that found no room. Above its
/// limit the ledger admits nothing new, not even for an eviction. The caller has the execution
/// lock. No commands run meanwhile: the one at the head of the queue may be the caller's.
pub(crate) async fn was_lowered(pass: &Pass) -> Result<bool> {
    let times = pass.driver.ledger().times_lowered();
    let is_new = pass.outside.lowered_before.load(Ordering::Acquire) != times;
    if is_new {
        let _hold = hold_drain(pass);
        pass.for_memory(None, shrink(pass)).await?;
    }
    Ok(is_new)
}

/// Shrinks to the limits. Returns the bytes by which the reserved bytes still exceed the device's
/// limit. The caller has the execution lock.
pub(crate) fn shrink(pass: &Pass) -> BoxFuture<'_, Result<u64>> {
    Box::pin(async move {
        let times = pass.driver.ledger().times_lowered();
        pass.outside.allow_asking();
        (pass.outside.lowered_before).store(times, Ordering::Release);
        pass.submit()?;
        let must_drain =
            limits_in_force::must_drain(pass) || limits_in_force::excess_bytes(pass) > 0;
        // Others wait for the whole drain. While the slabs exceed the limit, nothing is created
        // that their commands may need. What these evict instead would leave the drain with more.
        let _hold = must_drain.then(|| hold_drain(pass)).flatten();
        let draining = must_drain.then(|| DrainGuard::new(pass));
        // What shares hold above their ceilings leaves before what others hold.
        drain_to_ceilings(pass, i8::MIN).await?;
        if must_drain {
            reclaim::drain_to(pass, None).await?;
        }
        drop(draining);
        if limits_in_force::excess_bytes(pass) > 0 {
            // The rest above the limit is staging.
            reclaim::make_way_for_staging(pass, 0, &mut reclaim::StagingTries::default()).await?;
        }
        drain_host(pass).await?;
        // Pinned storages may be unpinned later.
        limits_in_force::note_excess(pass, &pass.lock_budget());
        Ok(limits_in_force::excess_bytes(pass))
    })
}
