//! The shares of the commands that run: they compete for memory, and may be cancelled.

use std::sync::Arc;

use crate::engine::kernel::Role;
use crate::engine::queue::cmd::Cmd;
use crate::engine::state::State;
use crate::memory::ShareHandle;

/// The shares of a command compete for memory from now on. Returns whether the command was
/// dropped, because the share whose value it makes, or that reads, was cancelled.
#[inline]
pub(in crate::engine) fn note_share(state: &mut State, cmd: &Cmd) -> bool {
    !state.memory.shares.is_empty() && note_share_of(state, cmd)
}

fn note_share_of(state: &mut State, cmd: &Cmd) -> bool {
    let running = state.memory.shares.running();
    let mut is_usual = !matches!(cmd, Cmd::Read { .. });
    cmd.visit_operands(|storage, _| {
        is_usual &= storage.share() == running && !storage.may_be_cancelled();
    });
    // Nearly always the share that ran last goes on.
    !is_usual && note_another_share(state, cmd)
}

fn note_another_share(state: &mut State, cmd: &Cmd) -> bool {
    let mut is_cancelled = false;
    let read_by = match cmd {
        Cmd::Read { by, .. } => by.as_deref().filter(|by| by.is_cancelled()),
        _ => None,
    };
    cmd.each_operand(&mut |storage, role| {
        state.memory.share_runs(storage.share());
        is_cancelled |= role != Role::Read && storage.is_cancelled();
    });
    if is_cancelled || read_by.is_some() {
        return drop_cancelled(state, cmd, read_by);
    }
    false
}

/// Drops a command of a cancelled share. Returns whether it was dropped.
#[cold]
fn drop_cancelled(state: &mut State, cmd: &Cmd, read_by: Option<&ShareHandle>) -> bool {
    let mut cause = read_by.map(ShareHandle::cancelled);
    cmd.each_operand(&mut |storage, role| {
        if role != Role::Read {
            cause = cause.take().or_else(|| storage.cancelled());
        }
    });
    if let Some(cause) = cause {
        state.unplace_cmd(cmd);
        state.left(cmd);
        state.poison(cmd, &Arc::new(cause));
        return true;
    }
    false
}
