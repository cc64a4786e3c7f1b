//! Copies of storages that are on their way to other tiers, and arrive.

use crate::engine::pass::Pass;
use crate::engine::state::cleaning::Cleaning;
use crate::error::Result;
use crate::memory::Copies;
use crate::waits::Paused;

/// Takes in the copies that have arrived, and drops stale ones. Does not wait. The caller has the
/// execution lock. Returns whether there were any.
pub(crate) fn take_in_arrived(pass: &Pass) -> bool {
    let on_their_way = pass.lock().cleanings.take_all();
    if on_their_way.is_empty() {
        return false;
    }
    let mut were_any = false;
    // A loss of the device shows in the readings.
    let _ = pass.driver.poll();
    // What is taken in below has been written.
    let _paused = Paused::enter();
    for one in on_their_way {
        pass.readbacks.take_in_arrived(&one.reading);
        let is_wanted = one.storage(&pass.lock().memory).is_some();
        // Without a clock this waits, so that the same calls have the same outcome.
        let is_written = || one.destination.is_written() || !pass.has_clock();
        if is_wanted && !(one.reading.is_done() && is_written()) {
            pass.lock().cleanings.push(one);
            continue;
        }
        take_in(pass, &one);
        were_any = true;
    }
    were_any
}

/// Adds a copy to those of its storage, if it is still the storage's value. Waits until its bytes
/// are written; they have arrived.
fn take_in(pass: &Pass, one: &Cleaning) {
    // The transfer took place, whatever comes of it.
    pass.lock().counters.evicted_bytes += one.moved_bytes();
    let mut copies = Copies::default();
    let is_wanted = one.storage(&pass.lock().memory).is_some();
    if !is_wanted || one.destination.finish(&mut copies).is_err() {
        return;
    }
    let mut state = pass.lock();
    if let Some(storage) = one.storage(&state.memory) {
        (state.memory.slots).copied(&storage, |known| known.add(copies));
    }
}

/// Takes in what has arrived, and waits for the oldest copy of a block of the heap that is on its
/// way. `false` if there is none.
pub(crate) async fn wait_for_block(pass: &Pass) -> Result<bool> {
    if take_in_arrived(pass) {
        return Ok(true);
    }
    let oldest = {
        let state = &mut *pass.lock();
        state.cleanings.take_first(|one| {
            let storage = one.storage(&state.memory).filter(|_| one.is_demotion);
            storage.is_some_and(|storage| state.memory.heap_place(&storage).is_some())
        })
    };
    let Some(one) = oldest else { return Ok(false) };
    pass.submit()?;
    while !one.reading.is_done() && one.reading.failure().is_none() {
        let taken_in = pass.unless_lost(pass.readbacks.take_in(&one.reading).await)?;
        if taken_in.is_err() {
            one.reading.cancel();
            break;
        }
    }
    if one.reading.is_done() {
        take_in(pass, &one);
    }
    Ok(true)
}
