//! Commands of a share with a higher priority run before those of others.
//!
//! Shares meet only in what one has lent, and in copies between them. So the commands of one share
//! may pass those of another, in their own order. They pass no command that writes what they read,
//! and none that touches what they write. They are submitted at once, and not with what comes after
//! them. A call of a higher priority ends when its commands are submitted, though the pass of
//! another thread goes on.

use std::collections::VecDeque;
use std::sync::Arc;

use rustc_hash::FxHashSet;

use crate::engine::kernel::Role;
use crate::engine::queue::Queue;
use crate::engine::queue::cmd::Cmd;
use crate::engine::state::State;
use crate::engine::state::features::Priorities;
use crate::memory::{Memory, Residency, ShareHandle, Storage};

/// The priority of a command: that of the share whose value it makes. A read has that of its
/// reader.
fn priority(cmd: &Cmd) -> i8 {
    if let Cmd::Read { by, .. } = cmd {
        return by.as_deref().map_or(0, ShareHandle::priority);
    }
    let (mut made, mut read) = (None, 0);
    cmd.each_operand(&mut |storage, role| match role {
        Role::Read => read = storage.priority(),
        Role::Write | Role::Update => made = Some(storage.priority()),
    });
    made.unwrap_or(read)
}

/// The priority of the command at the head. If it is a step for others, it has theirs. Otherwise a
/// command could pass the steps for itself, where these compute what a lower share has lent.
fn in_force(state: &State, head: &Cmd) -> i8 {
    let own = priority(head);
    state.steps.priority().map_or(own, |steps| steps.max(own))
}

/// For an engine whose shares have different priorities.
pub(super) static PRIORITIES: &dyn Priorities = &ByShare;

struct ByShare;

impl Priorities for ByShare {
    fn of(&self, cmd: &Cmd) -> i8 {
        priority(cmd)
    }

    fn is_none_left(&self, state: &State, least: i8) -> bool {
        let mut left = state.queue.commands().chain(state.left_behind.iter());
        (state.batch.is_empty() || state.batch.highest_priority() < least)
            && left.all(|cmd| is_lower(cmd, least))
    }

    fn leaves(&self, state: &State, read: &[Arc<Storage>], written: &[Arc<Storage>]) -> bool {
        let is_before = |cmd: &Cmd| {
            let mut is_before = false;
            cmd.each_operand(&mut |storage, role| {
                let is_in = |all: &[Arc<Storage>]| all.iter().any(|one| Arc::ptr_eq(one, storage));
                is_before |= role != Role::Read && is_in(read) || is_in(written);
            });
            is_before
        };
        state.queue.commands().any(is_before)
    }

    fn has_long_batch(&self, state: &State) -> bool {
        state.has_long_batch()
            && state.batch.highest_priority() < state.memory.shares.highest_priority()
    }

    fn lets_others_go_first(&self, state: &State) -> bool {
        let head = state
            .queue
            .head()
            .map_or(i8::MAX, |head| in_force(state, head));
        head < state.memory.shares.highest_priority()
    }

    fn is_outranked(&self, state: &State) -> bool {
        let queue = &state.queue;
        // If some wait for the command at the head, a look would find the same ones each time.
        queue.head().is_some_and(|head| {
            let priority_of_head = in_force(state, head);
            queue.has_news()
                && !queue.is_awaited(head)
                && queue.commands().any(|cmd| priority(cmd) > priority_of_head)
        })
    }

    fn may_run_between(&self, state: &State) -> bool {
        !state.holds.is_between() && !state.steps.are_any()
    }

    fn has_above(&self, state: &State, above: i8) -> bool {
        state.queue.commands().any(|cmd| priority(cmd) > above)
    }

    fn stops_between(&self, state: &State) -> bool {
        let least = state.queue.least_priority();
        state.holds.is_between()
            && !state.steps.are_any()
            && state.queue.head().is_some_and(|cmd| priority(cmd) < least)
    }

    fn note_steps(&self, state: &mut State, count: usize) {
        let most = state.queue.commands().take(count + 1).map(priority).max();
        if let Some(most) = most {
            state.steps.raise_priority(most);
        }
    }

    fn promote(&self, state: &mut State) {
        while state.queue.has_passed() {
            state.steps.go_on();
        }
        let Some(head) = state.queue.head().map(|head| in_force(state, head)) else {
            return;
        };
        if !state.queue.may_promote(head) {
            return;
        }
        if let Some(urgent) = state.queue.take_urgent(head, &state.memory) {
            // The command that was at the head gets its places again.
            state.unplace_head();
            state.head.reset();
            state.steps.put_off();
            let limit_bytes = state.driver.ledger().slab_limit_now_bytes();
            state.queue.pass(urgent, limit_bytes);
        }
    }

    fn has_only_lower(&self, state: &State) -> bool {
        let queue = &state.queue;
        let is_lower = |cmd: &Cmd| is_lower(cmd, queue.least_priority());
        queue.head().is_some_and(is_lower) && queue.commands().all(is_lower)
    }
}

/// Whether passes for this priority leave the command to others. They run what uses an import of
/// theirs: the app may write to it as soon as it has flushed.
fn is_lower(cmd: &Cmd, least: i8) -> bool {
    let mut uses_import = false;
    let mut note = |storage: &Arc<Storage>, _: Role| {
        uses_import |= storage.is_lent()
            && storage.priority() >= least
            && storage.residency() == Residency::Imported;
    };
    priority(cmd) < least && {
        cmd.each_operand(&mut note);
        !uses_import
    }
}

/// What commands that stay in the queue touch, as far as urgent commands may touch it too.
#[derive(Default)]
struct Kept {
    read: FxHashSet<usize>,
    written: FxHashSet<usize>,
}

impl Kept {
    fn add(&mut self, cmd: &Cmd, urgent: i8, memory: &Memory) {
        let mut note = |storage: &Arc<Storage>, role| {
            if storage.priority() >= urgent || storage.is_lent() {
                let kept = match role {
                    Role::Read => &mut self.read,
                    Role::Write | Role::Update => &mut self.written,
                };
                kept.insert(storage.address());
            }
        };
        let takes_over = matches!(cmd, Cmd::TakeOver { .. });
        cmd.each_operand(&mut |storage, role| {
            note(storage, role);
            // Its value may have to be computed again from these, or was.
            if role != Role::Write || takes_over {
                let sources = memory.slots.sources_of(storage);
                sources.iter().for_each(|source| note(source, Role::Read));
            }
        });
    }

    /// Must the command run after one of those?
    fn is_before(&self, cmd: &Cmd) -> bool {
        let mut waits = false;
        cmd.each_operand(&mut |storage, role| {
            let address = storage.address();
            waits |= self.written.contains(&address)
                || role != Role::Read && self.read.contains(&address);
        });
        waits
    }
}

impl Queue {
    /// Whether commands of a higher priority may be behind others now. So it is if some were
    /// appended, if the last urgent one has run, or if a command for which some waited has run.
    /// `priority` is that of the command at the head.
    fn may_promote(&mut self, priority: i8) -> bool {
        let is_awaited = self.head().is_some_and(|head| self.is_awaited(head));
        let falls = self.swap_head_priority(priority) > priority;
        let has_news = self.take_news() || falls;
        if is_awaited {
            self.keep_news();
        }
        has_news
    }

    /// Takes the commands of the highest priority out of the queue, unless the command at its head
    /// has it: `head`.
    fn take_urgent(&mut self, head: i8, memory: &Memory) -> Option<VecDeque<Cmd>> {
        let most = self.commands().map(priority).max()?;
        if head >= most {
            return None;
        }
        let (mut kept, mut awaited) = (Kept::default(), FxHashSet::default());
        let are_taken = self.commands().map(|cmd| {
            let is_urgent = priority(cmd) == most;
            let waits = kept.is_before(cmd);
            if is_urgent && waits {
                cmd.each_operand(&mut |storage, _| {
                    awaited.insert(storage.address());
                });
            }
            if !is_urgent || waits {
                kept.add(cmd, most, memory);
            }
            is_urgent && !waits
        });
        let are_taken: Vec<bool> = are_taken.collect();
        self.await_uses_of(awaited);
        if !are_taken.contains(&true) {
            return None;
        }
        let mut are_taken = are_taken.into_iter();
        self.take_out(|_| are_taken.next() == Some(true))
    }
}
