//! Storages that are cheaper to compute again than to keep: activation checkpointing, without
//! automatic differentiation.
//!
//! A rematerializer counts as another copy of a storage, so eviction costs nothing. When a command
//! needs the storage, the engine calls the rematerializer, which records commands. They go to the
//! head of the queue, and after them a command that moves the result into the storage.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::cmd::Cmd;
use super::pass::Pass;
use super::refuse;
use super::rematerializers::Rematerializer;
use crate::error::{Error, Result};
use crate::memory::{RematerializerToken, Storage};
use crate::shortage::ReclaimCounts;

/// The most rematerializations of a storage for one command of the app.
const MOST_TIMES: u32 = 16;

/// Registers a rematerializer for a storage, after all queued commands.
pub(super) fn register_rematerializer(
    pass: &Pass,
    storage: &Arc<Storage>,
    inputs: Vec<Arc<Storage>>,
    rematerializer: Rematerializer,
) -> Result<()> {
    pass.error_of(storage)?;
    for input in &inputs {
        pass.error_of(input)?;
    }
    let mut state = pass.lock();
    if state.memory.comes_from(&inputs, storage) {
        return Err(Error::Recompute {
            made_at: storage.tag().to_string(),
            reason: "one of the inputs would be computed from it".into(),
        });
    }
    let id = state.rematerializers.enter(rematerializer);
    let token = state.memory.rematerializer_token(id, inputs);
    state.memory.copied(storage, |copies| {
        copies.rematerializer = Some(Arc::new(token))
    });
    Ok(())
}

/// Puts the commands that compute a storage again at the head of the queue. The inner error
/// concerns the command that needs the storage.
pub(super) fn rematerialize(
    pass: &Pass,
    storage: &Arc<Storage>,
    token: &RematerializerToken,
) -> Result<Result<()>> {
    let refused = |reason: String| Error::Recompute {
        made_at: storage.tag().to_string(),
        reason,
    };
    let rematerializer = {
        let mut state = pass.lock();
        let progress = state.rematerializers.progress(storage);
        if let Some(failure) = progress.failure {
            return Ok(Err((*failure).clone()));
        }
        let never = match (progress.is_under_way, state.memory.is_current(token)) {
            (true, _) => "its rematerializer uses the tensor itself",
            (_, false) => "one of its inputs has been written to since",
            _ => "",
        };
        if !never.is_empty() {
            let cause = Arc::new(refused(never.into()));
            state.memory.poison(storage, &cause);
            return Ok(Ok(()));
        }
        if progress.times >= MOST_TIMES {
            drop(state);
            return Ok(Err(refuse::out_of_memory(
                pass,
                storage,
                ReclaimCounts::default(),
            )));
        }
        state.rematerializers.get(token.id())
    };
    let Some(rematerializer) = rematerializer else {
        return Ok(Ok(()));
    };
    let made = {
        let _inside = pass.inside();
        let _recording = pass.recording();
        catch_unwind(AssertUnwindSafe(|| rematerializer()))
    };
    let made = made.unwrap_or_else(|_| Err(refused("the rematerializer panicked".into())));
    let mut state = pass.lock();
    let recorded = state.queue.take_recorded();
    match made {
        Ok(from) if from.size_bytes() == storage.size_bytes() => {
            let to = storage.clone();
            // The commands that now come first may need its memory.
            state.unplace_head();
            state.rematerializers.start(storage);
            state.queue.push_head(Cmd::TakeOver { from, to });
            let limit_bytes = pass.driver.ledger().slab_limit_now_bytes();
            state.queue.put_in_front(recorded, limit_bytes);
            Ok(Ok(()))
        }
        Ok(_) => Ok(Err(refused(
            "its rematerializer returned a tensor of another size".into(),
        ))),
        Err(error) => Ok(Err(error)),
    }
}
