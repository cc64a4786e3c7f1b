//! The errors of requests that find no room.

use std::sync::Arc;

use super::needed::needed_bytes;
use crate::alloc::AllocError;
use crate::driver::DriverError;
use crate::engine::handle::Engine;
use crate::engine::queue::refused::{Refused, Request};
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
pub(super) fn out_of_memory(
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

/// As [`out_of_memory`], for a request for which no reclaim step ran.
pub(crate) fn no_room(engine: &Engine, storage: &Storage) -> Error {
    out_of_memory(engine, storage, ReclaimCounts::default())
}

/// The error of a storage that found no room outside the buffer of `other`, which the same call of
/// the app binds with another access.
#[cold]
pub(super) fn not_apart(engine: &Engine, storage: &Storage, other: &Storage) -> Error {
    match no_room(engine, storage) {
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
        DriverError::OutOfMemory | DriverError::OverBudget => no_room(engine, storage),
        error => refusal(what, error),
    }
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

/// The request for a storage. `None` if no share hinders it.
fn request(state: &State, storage: &Storage) -> Option<Request> {
    let (hindrance, cmd) = (state.memory.hindrance(storage)?, state.queue.head()?);
    let mut kept = Vec::new();
    cmd.each_operand(&mut |storage, _| {
        kept.extend(storage.slot().map(|_| storage.address()));
    });
    Some(Request {
        by: storage.share(),
        hindrance,
        kept,
        marks: (state.counters.commands, state.memory.slabs.freed),
    })
}

impl State {
    /// Notes that the command at the head of the queue found no room for a storage.
    pub(crate) fn note_refused(&mut self, storage: &Storage, error: &Error) {
        if let (Error::OutOfMemory(error), Some(request)) = (error, request(self, storage)) {
            let error = error.clone();
            self.left_behind.refused = Some(Refused { request, error });
        }
    }

    /// The error of a storage for the command at the head of the queue. `None` if reclaim may free
    /// more for it than for the command that was refused last.
    pub(crate) fn refused_again(&mut self, storage: &Arc<Storage>) -> Option<Error> {
        // Other threads drop storages at any time.
        self.free_dead();
        let before = self.left_behind.refused.as_ref()?;
        let request = request(self, storage)?;
        if !request.finds_no_more_than(&before.request) {
            return None;
        }
        // A command that can never run gets another error.
        if needed_bytes(self, storage) > request.hindrance.limit_bytes {
            return None;
        }
        let again = OutOfMemory {
            requested_bytes: storage.size_bytes(),
            made_at: storage.tag().to_string(),
            ..OutOfMemory::clone(&before.error)
        };
        note_refusal(self, storage);
        Some(Error::OutOfMemory(Arc::new(again)))
    }
}
