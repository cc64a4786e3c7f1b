//! Noticing and waiting for what the device has done, and giving back what that empties.

use super::pass::Pass;
use crate::error::Result;
use crate::memory::{Copies, Memory};

/// Notices what the device has finished.
pub(super) fn retire(pass: &Pass) -> Result<u64> {
    let freed_before = pass.lock().memory.freed_bytes();
    // Losing the device is all that can go wrong here.
    let _ = pass.driver.poll();
    pass.check_lost()?;
    let settled_bytes = pass.driver.settle();
    let mut state = pass.lock();
    state.free_dead();
    Ok(settled_bytes + state.memory.freed_bytes() - freed_before)
}

/// Gives back staging and read-back buffers that hold nothing.
pub(super) fn shed_caches(pass: &Pass) -> Result<u64> {
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

/// Gives back slabs that hold nothing.
pub(super) fn trim_slabs(pass: &Pass) -> Result<u64> {
    let before_bytes = pass.lock().memory.reserved_bytes();
    pass.release(Memory::next_empty)?;
    let after_bytes = pass.lock().memory.reserved_bytes();
    Ok(before_bytes.saturating_sub(after_bytes))
}

/// Is there anything that slabs could have once the device is done with it?
pub(super) fn wait_would_help(pass: &Pass) -> bool {
    let ledger = pass.driver.ledger();
    ledger.levels().retiring_bytes.now > 0 || ledger.staging_hinders()
}

/// Waits for what the device still uses, staging included, and gives back what that frees.
pub(super) async fn wait_for_all(pass: &Pass) -> Result<u64> {
    let before_bytes = pass.driver.ledger().levels().reserved_bytes.now;
    pass.submit()?;
    let _ = pass.wait_idle().await;
    pass.check_lost()?;
    take_in_cleaned(pass);
    shed_caches(pass)?;
    let after_bytes = pass.driver.ledger().levels().reserved_bytes.now;
    Ok(before_bytes.saturating_sub(after_bytes))
}

/// Waits for the submissions that still use slabs given back.
pub(super) async fn wait_for_retiring(pass: &Pass) -> Result<u64> {
    if pass.driver.ledger().levels().retiring_bytes.now == 0 {
        return Ok(0);
    }
    let before_bytes = pass.driver.ledger().levels().reserved_bytes.now;
    pass.submit()?;
    // Who could not wait finds no memory once more, and says so.
    let _ = pass.wait_idle().await;
    pass.check_lost()?;
    let after_bytes = pass.driver.ledger().levels().reserved_bytes.now;
    Ok(before_bytes.saturating_sub(after_bytes))
}

/// Takes in the copies that have arrived, and forgets those that are worth nothing. Waits for
/// nothing. The caller has the execution lock.
pub(super) fn take_in_cleaned(pass: &Pass) {
    let on_their_way = pass.lock().cleanings.take_all();
    if on_their_way.is_empty() {
        return;
    }
    // A loss shows in the readings.
    let _ = pass.driver.poll();
    for one in on_their_way {
        pass.readbacks.take_in_arrived(&one.reading);
        let mut state = pass.lock();
        let Some(storage) = one.storage(&state.memory) else {
            // It has travelled all the same.
            state.counters.evicted_bytes += one.len_bytes;
            continue;
        };
        if !one.reading.is_done() {
            state.cleanings.push(one);
            continue;
        }
        drop(state);
        let mut copies = Copies::default();
        if one.destination.finish(&mut copies).is_ok() {
            let mut state = pass.lock();
            state.counters.evicted_bytes += one.len_bytes;
            state.memory.copied(&storage, |known| known.add(copies));
        }
    }
}

/// Gives back what nobody has used for so many polls as the app says.
pub(super) fn release_idle(pass: &Pass, polls: u32) -> Result<()> {
    let idle_polls = pass.outside.idle_polls();
    let idle_slab = {
        let mut state = pass.lock();
        state.free_dead();
        state.memory.polled(polls);
        let has_batch = !state.batch.is_empty();
        idle_polls > 0 && !has_batch && state.memory.next_idle(idle_polls).is_some()
    };
    if idle_slab {
        pass.release(|memory| memory.next_idle(idle_polls))?;
    }
    if idle_polls > 0 && polls % idle_polls == idle_polls - 1 {
        for staging in [&pass.uploads, &pass.restore_staging] {
            let _ = staging.sweep();
            staging.trim_unused();
        }
        pass.readbacks.trim_unused();
    }
    Ok(())
}
