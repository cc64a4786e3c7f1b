//! Storages that are cheaper to compute again than to keep: activation checkpointing, without
//! automatic differentiation.
//!
//! A rematerializer counts as another copy of a storage, so eviction costs nothing. When a command
//! needs the storage, the engine calls the rematerializer, which records commands. They go to the
//! head of the queue, and after them a command that moves the result into the storage. The
//! rematerializer is a function of the app, or the storage's
//! [lineage](crate::engine::state::lineage).

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::recompute::launches_of;
use crate::engine::inside::Recording;
use crate::engine::pass::Pass;
use crate::engine::queue::Queue;
use crate::engine::queue::cmd::Cmd;
use crate::engine::reclaim::refuse;
use crate::engine::state::State;
use crate::engine::state::rematerializers::{Rematerializer, Way};
use crate::error::{Error, Result};
use crate::memory::{RematerializerToken, Storage};

/// The most rematerializations of a storage for one command of the app.
const MOST_TIMES: u32 = 16;

/// Registers a rematerializer for a storage, after all queued commands.
pub(crate) fn register_rematerializer(
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
    if state.memory.slots.comes_from(&inputs, storage) {
        let reason = "one of the inputs would be computed from it";
        return Err(Error::recompute(storage.tag(), reason));
    }
    let id = state.rematerializers.enter(Way::Function(rematerializer));
    (state.memory).rematerialize_by(storage, id, inputs, false);
    Ok(())
}

/// Puts the commands that compute a storage again at the head of the queue. The inner error
/// concerns the command that needs the storage.
pub(super) fn rematerialize(
    pass: &Pass,
    storage: &Arc<Storage>,
    token: &RematerializerToken,
) -> Result<Result<()>> {
    let refused = |reason: &str| Error::recompute(storage.tag(), reason);
    let way = {
        let mut state = pass.lock();
        let progress = state.steps.entry(storage);
        if let Some(failure) = progress.failure.take() {
            return Ok(Err(Error::clone(&failure)));
        }
        let (is_under_way, times) = (progress.is_under_way, progress.times);
        let mut inputs = token.inputs.iter();
        if let Some(cause) = inputs.find_map(|(input, _)| state.memory.slots.poison_of(input)) {
            state.memory.slots.poison(storage, &cause);
            return Ok(Ok(()));
        }
        let never = match (is_under_way, state.memory.slots.is_current(token)) {
            (true, _) => "its rematerializer uses the tensor itself",
            (_, false) => "one of its inputs has been written to since",
            _ => "",
        };
        if !never.is_empty() {
            let cause = Arc::new(refused(never));
            state.memory.slots.poison(storage, &cause);
            return Ok(Ok(()));
        }
        if times >= MOST_TIMES {
            drop(state);
            return Ok(Err(refuse::no_room(pass, storage)));
        }
        state.rematerializers.get(token.id())
    };
    let rematerializer = match way {
        Some(Way::Function(rematerializer)) => rematerializer,
        Some(Way::Lineage(made)) => {
            let mut state = pass.lock();
            let Some((launches, from)) = launches_of(&state.memory, &made, storage) else {
                return Ok(Err(refused("one of its inputs is gone")));
            };
            begin(&mut state, storage, from, |queue| {
                let launches = launches.into_iter().rev();
                launches.for_each(|launch| queue.push_head(Cmd::Launch(launch)));
            });
            return Ok(Ok(()));
        }
        None => return Ok(Ok(())),
    };
    let inputs = token.inputs.iter().map(|(input, _)| input.clone());
    let inputs = inputs.collect::<Vec<_>>();
    let made = {
        let _inside = pass.inside();
        let _recording = Recording::begin(pass.address());
        catch_unwind(AssertUnwindSafe(|| rematerializer(&inputs)))
    };
    let made = made.unwrap_or_else(|_| Err(refused("the rematerializer panicked")));
    let mut state = pass.lock();
    let recorded = std::mem::take(&mut state.queue.recorded);
    match made {
        Ok(from) if from.size_bytes() == storage.size_bytes() => {
            let limit_bytes = pass.driver.ledger().slab_limit_now_bytes();
            begin(&mut state, storage, from, |queue| {
                queue.put_in_front(recorded, limit_bytes);
            });
            Ok(Ok(()))
        }
        Ok(_) => Ok(Err(refused(
            "its rematerializer returned a tensor of another size",
        ))),
        Err(error) => Ok(Err(error)),
    }
}

/// Puts the command at the head of the queue that moves a result into its storage. `put` puts the
/// commands in front of it that compute the result.
fn begin(
    state: &mut State,
    storage: &Arc<Storage>,
    from: Arc<Storage>,
    put: impl FnOnce(&mut Queue),
) {
    let before = state.queue.len();
    // The commands that now come first may need the memory of the head.
    state.unplace_head();
    state.steps.start(storage);
    let to = storage.clone();
    state.queue.push_head(Cmd::TakeOver { from, to });
    put(&mut state.queue);
    let steps = state.queue.len() - before;
    state.note_steps(steps);
}
