//! Commands of a share that find no room, one after the other.
//!
//! A share at its ceiling may have thousands of them. Each would look for victims among all
//! storages and commands, in every pass, and other shares would wait for that. So the pass
//! remembers what it refused last.

use std::sync::Arc;

use crate::engine::queue::refused::{Marks, Refused};
use crate::engine::reclaim::refuse;
use crate::engine::state::State;
use crate::error::Error;
use crate::memory::Storage;

/// Notes that the command at the head of the queue found no room for a storage.
pub(super) fn note(state: &mut State, storage: &Arc<Storage>, error: &Error) {
    let Error::OutOfMemory(error) = error else {
        return;
    };
    let (Some(hindrance), Some(cmd)) = (state.memory.hindrance(storage), state.queue.head()) else {
        return;
    };
    let (by, marks) = (storage.share(), marks(state));
    let refused = Refused::new(cmd, by, hindrance, marks, error.clone());
    state.left_behind.refused = Some(refused);
}

/// The error of a storage for the command at the head of the queue. `None` if reclaim may free more
/// for it than for the command that was refused last.
pub(super) fn refused_again(state: &mut State, storage: &Arc<Storage>) -> Option<Error> {
    // Other threads drop storages at any time.
    state.free_dead();
    let before = state.left_behind.refused.as_ref()?;
    let (hindrance, cmd) = (state.memory.hindrance(storage)?, state.queue.head()?);
    let error = before.error_for(cmd, storage.share(), &hindrance, marks(state))?;
    // A command that can never run gets another error.
    let mut needed_bytes = 0_u64;
    cmd.each_operand(&mut |operand, _| {
        let granted_bytes = state.memory.slabs.granted_bytes(operand.size_bytes());
        needed_bytes = needed_bytes.saturating_add(granted_bytes);
    });
    (needed_bytes <= hindrance.limit_bytes).then(|| refuse::refused_again(state, storage, &error))
}

fn marks(state: &State) -> Marks {
    Marks {
        commands: state.counters.commands,
        freed: state.memory.slabs.freed(),
    }
}
