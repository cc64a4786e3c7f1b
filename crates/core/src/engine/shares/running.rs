//! The shares of the commands that run: they compete for memory, and may be cancelled.

use std::sync::Arc;

use crate::engine::kernel::Role;
use crate::engine::queue::cmd::Cmd;
use crate::engine::state::State;
use crate::error::Error;
use crate::memory::{PendingRestore, ShareHandle};

/// The shares of a command compete for memory from now on. Returns whether the command was
/// dropped, because the share whose value it makes, or that reads, was cancelled.
#[inline]
pub(crate) fn note_share(state: &mut State, cmd: &Cmd) -> bool {
    !state.memory.shares.is_empty() && note_share_of(state, cmd)
}

fn note_share_of(state: &mut State, cmd: &Cmd) -> bool {
    let running = state.memory.shares.running;
    let mut is_usual = !matches!(cmd, Cmd::Read { .. });
    cmd.visit_operands(|storage, _| {
        is_usual &= storage.share() == running && !storage.may_be_cancelled();
    });
    // Nearly always the share that ran last goes on.
    !is_usual && note_another_share(state, cmd)
}

fn note_another_share(state: &mut State, cmd: &Cmd) -> bool {
    let (shares, now) = (&mut state.memory.shares, state.memory.slots.now());
    cmd.each_operand(&mut |storage, _| shares.runs(storage.share(), now));
    let Some(cause) = cancelled(cmd) else {
        return false;
    };
    state.unplace_cmd(cmd);
    state.left(cmd);
    state.poison(cmd, &Arc::new(cause));
    true
}

/// The error of a command, if the share that reads, or whose value it makes, was cancelled.
fn cancelled(cmd: &Cmd) -> Option<Error> {
    let reader = match cmd {
        Cmd::Read { by, .. } => by.as_deref().filter(|by| by.is_cancelled()),
        _ => None,
    };
    let mut cause = reader.map(ShareHandle::cancelled);
    cmd.each_operand(&mut |storage, role| {
        if role != Role::Read && cause.is_none() {
            cause = storage.cancelled();
        }
    });
    cause
}

impl State {
    /// Whether the command at the head of the queue will be dropped, because its share was
    /// cancelled.
    pub(crate) fn is_head_cancelled(&self) -> bool {
        !self.memory.shares.is_empty() && self.queue.head().and_then(cancelled).is_some()
    }

    /// Takes up the restore in whose middle urgent commands ran, unless nobody wants it any more.
    pub(crate) fn resume_restore(&mut self) -> Option<PendingRestore> {
        let is_wanted = !self.is_head_cancelled();
        (self.suspended_restores).resume(is_wanted, &mut self.memory)
    }
}
