//! Support for trials of kernel variants: whether a trial may run here and now. A trial records and
//! waits like any call, and holds no lock.

use std::sync::Arc;

use super::block_on;
use super::door::Here;
use super::handle::Engine;
use crate::error::Result;
use crate::memory::Storage;
use crate::tuning::{Ready, Trial};

/// Runs all queued commands before a trial that reads `operands` and takes `scratch_bytes`. The
/// trial must not run in three cases: this thread must not wait, commands wait for room, or the
/// trial would have to make room.
pub fn prepare_trial(
    engine: &Arc<Engine>,
    operands: &[Here<'_, Storage>],
    scratch_bytes: u64,
) -> Ready {
    // This check comes first, so that a refusal does not run queued commands early. The caller may
    // ask again at each call.
    if engine.is_dry()
        || engine.is_recording()
        || engine.is_inside()
        || !has_room_for(engine, scratch_bytes)
    {
        return Ready::Later;
    }
    if block_on("a trial", engine.finish()).is_err() {
        return Ready::Later;
    }
    let is_here = |storage: &Here<'_, Storage>| engine.error_of(storage).is_ok();
    let all_are_here = operands.iter().all(is_here) && {
        let state = engine.lock();
        let mut operands = operands.iter();
        state.left_behind.is_empty()
            && operands.all(|storage| state.memory.slots.find(storage).is_some())
    };
    match all_are_here && has_room_for(engine, scratch_bytes) {
        true => Ready::Yes,
        false => Ready::No,
    }
}

/// Waits for the commands of a trial. Its last result is `recorded`.
pub fn end_trial(engine: &Arc<Engine>, recorded: Result<Arc<Storage>>) -> Trial {
    let ran = recorded.and_then(|last| {
        block_on("a trial", engine.finish())?;
        engine.error_of(&last)
    });
    match (ran, engine.driver.lost()) {
        (_, Some(_)) => Trial::Lost,
        (Ok(()), None) => Trial::Ran,
        (Err(_), None) => Trial::Failed,
    }
}

/// Whether this many bytes are free without any reclaim.
fn has_room_for(engine: &Engine, bytes: u64) -> bool {
    let limit_bytes = engine.driver.ledger().slab_limit_now_bytes();
    let limit_bytes = limit_bytes.min(engine.limits().soft_bytes);
    let live_bytes = engine.lock().memory.slabs.live_bytes();
    bytes <= limit_bytes.saturating_sub(live_bytes)
}
