//! Notices or awaits what the device has finished, and releases what becomes empty.

use std::sync::atomic::Ordering;

use crate::driver::BoxFuture;
use crate::engine::heap;
use crate::engine::pass::Pass;
use crate::engine::tiers::arrivals;
use crate::error::Result;

/// Notices what the device has finished.
pub(super) fn retire(pass: &Pass) -> Result<u64> {
    let freed_before = pass.lock().memory.slabs.freed_bytes;
    // Only a loss of the device can go wrong here.
    let _ = pass.driver.poll();
    pass.check_lost()?;
    let settled_bytes = pass.driver.settle();
    // Outdated ways to compute a storage may be all that holds their inputs.
    pass.free_all_dead();
    let state = pass.lock();
    Ok(settled_bytes + state.memory.slabs.freed_bytes - freed_before)
}

/// Releases idle staging and read-back buffers.
pub(crate) fn shed_caches(pass: &Pass) -> Result<u64> {
    let before_bytes = pass.driver.ledger().levels().reserved_bytes.now;
    for staging in [&pass.uploads, &pass.restore_staging] {
        let _ = staging.sweep();
        staging.trim();
    }
    pass.readbacks.trim();
    pass.check_lost()?;
    let after_bytes = pass.driver.ledger().levels().reserved_bytes.now;
    Ok(before_bytes.saturating_sub(after_bytes))
}

/// Releases empty slabs.
pub(super) fn trim_slabs(pass: &Pass) -> Result<u64> {
    let before_bytes = pass.lock().memory.slabs.reserved_bytes();
    pass.release(|memory| memory.slabs.next_empty())?;
    let after_bytes = pass.lock().memory.slabs.reserved_bytes();
    Ok(before_bytes.saturating_sub(after_bytes))
}

/// Whether slabs could get more memory once the device has finished.
pub(super) fn wait_would_help(pass: &Pass) -> bool {
    let ledger = pass.driver.ledger();
    ledger.levels().retiring_bytes.now > 0 || ledger.staging_hinders()
}

/// Waits until the device has finished, also with staging, and releases what becomes empty.
pub(super) async fn wait_for_all(pass: &Pass) -> Result<u64> {
    let before_bytes = pass.driver.ledger().levels().reserved_bytes.now;
    pass.submit()?;
    let _ = pass.unless_lost(pass.wait_idle().await)?;
    arrivals::take_in_arrived(pass);
    shed_caches(pass)?;
    let after_bytes = pass.driver.ledger().levels().reserved_bytes.now;
    Ok(before_bytes.saturating_sub(after_bytes))
}

/// Waits for the submissions that still use released slabs.
pub(super) fn wait_for_retiring(pass: &Pass) -> BoxFuture<'_, Result<u64>> {
    Box::pin(async move {
        if pass.driver.ledger().levels().retiring_bytes.now == 0 {
            return Ok(0);
        }
        let before_bytes = pass.driver.ledger().levels().reserved_bytes.now;
        pass.submit()?;
        // If the wait is impossible, the request finds no memory again and fails with that error.
        let _ = pass.unless_lost(pass.wait_idle().await)?;
        let after_bytes = pass.driver.ledger().levels().reserved_bytes.now;
        Ok(before_bytes.saturating_sub(after_bytes))
    })
}

/// Releases memory that was not used for as many polls as the app has set.
pub(crate) fn release_idle(pass: &Pass, polls: u32) -> Result<()> {
    let idle_polls = pass.outside.idle_polls.load(Ordering::Relaxed);
    let idle_slab = {
        let mut state = pass.lock();
        state.free_dead();
        state.memory.slabs.polls = polls;
        let has_batch = !state.batch.is_empty();
        idle_polls > 0 && !has_batch && state.memory.slabs.next_idle(idle_polls).is_some()
    };
    if idle_slab {
        pass.release(|memory| memory.slabs.next_idle(idle_polls))?;
    }
    if idle_polls > 0 && polls % idle_polls == idle_polls - 1 {
        for staging in [&pass.uploads, &pass.restore_staging] {
            let _ = staging.sweep();
            staging.trim_unused();
        }
        pass.readbacks.trim_unused();
        heap::release_empty(pass);
    }
    Ok(())
}
