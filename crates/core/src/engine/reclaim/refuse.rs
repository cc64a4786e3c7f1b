//! The errors of requests that find no room.

use std::sync::Arc;

use crate::alloc::AllocError;
use crate::driver::DriverError;
use crate::engine::handle::Engine;
use crate::engine::state::State;
use crate::error::Error;
use crate::memory::{Event, Storage};
use crate::shortage::{Freed, OutOfMemory, ReclaimCounts, ReclaimStep};
use crate::transfer::refusal;

/// The number of holders that an error or a report of a pass names.
pub(crate) const HOLDERS_NAMED: usize = 5;

/// Counts a run of a reclaim step and what it freed.
pub(super) fn note_reclaimed(engine: &Engine, step: ReclaimStep, freed: Freed) {
    engine.lock().counters.reclaim_counts.enter(step, freed);
    for (step, freed_bytes) in freed.by_step(step).filter(|(_, bytes)| *bytes > 0) {
        let event = Event::ReclaimStep { step, freed_bytes };
        engine.lock().memory.events.push(event);
        tell!(INFO, "a reclaim step made room", { step = step.name(), freed_bytes = freed_bytes });
    }
}

/// The error of a storage that found no room, with the levels of memory.
pub(crate) fn out_of_memory(
    engine: &Engine,
    storage: &Storage,
    reclaim_counts: ReclaimCounts,
) -> Error {
    let error = shortage(&mut engine.lock(), storage, reclaim_counts);
    #[cfg(all(feature = "snapshot", not(target_arch = "wasm32")))]
    engine.tell_shortage();
    tell!(WARN, "a tensor found no room", {
        bytes = storage.size_bytes(),
        made_at = storage.tag().to_string().as_str()
    });
    error
}

/// The error of a storage that found no room outside the buffer of `other`, which the same call of
/// the app binds with another access.
#[cold]
pub(super) fn not_apart(engine: &Engine, storage: &Storage, other: &Storage) -> Error {
    match out_of_memory(engine, storage, ReclaimCounts::default()) {
        Error::OutOfMemory(shortage) => Error::OutOfMemory(Arc::new(OutOfMemory {
            apart_from: Some(other.tag().to_string()),
            ..OutOfMemory::clone(&shortage)
        })),
        error => error,
    }
}

/// The error of a refusal by the driver on behalf of a storage. A lack of memory becomes
/// `OutOfMemory`, which is not final: the commands stay queued.
#[cold]
pub(crate) fn refused(
    engine: &Engine,
    what: &'static str,
    error: DriverError,
    storage: &Storage,
) -> Error {
    match error {
        DriverError::OutOfMemory | DriverError::OverBudget => {
            out_of_memory(engine, storage, ReclaimCounts::default())
        }
        error => refusal(what, error),
    }
}

/// As [`out_of_memory`], for a storage that is refused as another one just was.
pub(crate) fn refused_again(state: &mut State, storage: &Storage, before: &OutOfMemory) -> Error {
    note_refusal(state, storage);
    Error::OutOfMemory(Arc::new(OutOfMemory {
        requested_bytes: storage.size_bytes(),
        made_at: storage.tag().to_string(),
        ..before.clone()
    }))
}

fn note_refusal(state: &mut State, storage: &Storage) {
    state.counters.refusals += 1;
    state.memory.shares.refused(storage.share());
    let bytes = storage.size_bytes();
    state.memory.events.push(Event::Refusal { bytes });
}

fn shortage(state: &mut State, storage: &Storage, reclaim_counts: ReclaimCounts) -> Error {
    note_refusal(state, storage);
    let report = state.memory.report(HOLDERS_NAMED);
    let levels = state.driver.ledger().levels();
    Error::OutOfMemory(Arc::new(OutOfMemory {
        requested_bytes: storage.size_bytes(),
        live_bytes: report.alloc.requested_bytes,
        reserved_bytes: report.alloc.reserved_bytes,
        retiring_bytes: levels.retiring_bytes.now,
        largest_hole_bytes: report.alloc.largest_hole_bytes,
        pinned_bytes: state.memory.pinned_bytes(),
        saved_bytes: report.saved_bytes,
        budget_bytes: (levels.said_bytes != u64::MAX).then_some(levels.said_bytes),
        reclaim_steps: reclaim_counts.tried(),
        made_at: storage.tag().to_string(),
        apart_from: None,
        share: (state.memory.shares.use_of(storage.share())).map(Box::new),
        holders: report.holders,
    }))
}

pub(crate) fn never_fits(storage: &Storage, error: &AllocError) -> Error {
    match *error {
        AllocError::NeverFits { limit_bytes, .. } => {
            Error::never_fits("a tensor", storage.size_bytes(), limit_bytes, "Split it")
        }
        ref other => Error::driver("a block", other.to_string()),
    }
}
