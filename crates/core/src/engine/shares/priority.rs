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
use crate::engine::queue::cmd::Cmd;
use crate::engine::queue::{Amid, Queue};
use crate::engine::state::State;
use crate::memory::{Memory, Residency, ShareHandle, Storage};

/// The priority of a command: that of the share whose value it makes. A read has that of its
/// reader.
pub(crate) fn priority(cmd: &Cmd) -> i8 {
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

impl State {
    /// Whether all commands of this priority and higher ones are submitted, and passes follow
    /// priorities.
    pub(crate) fn is_none_left(&self, least: i8) -> bool {
        let mut left = self.queue.commands().chain(self.left_behind.iter());
        let batch = (!self.batch.is_empty()).then(|| self.batch.highest_priority());
        let mut batches = batch.into_iter().chain(self.in_submission);
        self.has_priorities
            && batches.all(|highest| highest < least)
            && left.all(|cmd| is_lower(cmd, least))
    }

    /// Whether a pass has left commands that write what the caller will read, or use what it will
    /// write. They are of other shares, which have lent the storages or borrow them.
    pub(crate) fn leaves(&self, read: &[Arc<Storage>], written: &[Arc<Storage>]) -> bool {
        let is_before = |storage: &Arc<Storage>, role| {
            let is_in = |all: &[Arc<Storage>]| all.iter().any(|one| Arc::ptr_eq(one, storage));
            role != Role::Read && is_in(read) || is_in(written)
        };
        let mut commands = self.queue.commands();
        self.has_priorities && commands.any(|cmd| cmd.has_operand(is_before))
    }

    /// Whether the batch is of lower work, and takes so long that it should be submitted.
    pub(crate) fn has_long_lower_batch(&self) -> bool {
        self.has_priorities
            && self.has_long_batch()
            && self.batch.highest_priority() < self.memory.shares.highest_priority()
    }

    /// Whether the command at the head has a lower priority than some share.
    pub(crate) fn lets_others_go_first(&self) -> bool {
        let highest = self.memory.shares.highest_priority();
        let is_lower = |head| in_force(self, head) < highest;
        self.has_priorities && self.queue.head().is_some_and(is_lower)
    }

    /// The priority of the command at the head, if commands have come that may go before it.
    pub(crate) fn outranked(&self) -> Option<i8> {
        let queue = &self.queue;
        let head = queue.head().filter(|_| self.has_priorities)?;
        let priority_of_head = in_force(self, head);
        // If some wait for the command at the head, a look would find the same ones each time.
        let have_come = queue.has_news
            && !queue.is_awaited(head)
            && queue.commands().any(|cmd| priority(cmd) > priority_of_head);
        have_come.then_some(priority_of_head)
    }

    /// Whether commands above this priority have come.
    pub(crate) fn has_above(&self, above: i8) -> bool {
        self.has_priorities
            && self.queue.has_news
            && self.queue.commands().any(|cmd| priority(cmd) > above)
    }

    /// Whether the pass runs urgent commands in the middle of something else, and the next command
    /// is none, and no step for one. Urgent ones behind it wait for it.
    pub(crate) fn stops_between(&self) -> bool {
        let least = self.queue.runs.least_priority;
        let is_urgent = |head| in_force(self, head) >= least;
        match self.queue.runs.amid {
            None => false,
            Some(Amid::Head { passed }) => self.queue.passing_groups() <= passed,
            Some(Amid::Drain) => !self.queue.head().is_some_and(is_urgent),
        }
    }

    /// So many commands were put in front of another one, for whose sake they run.
    pub(crate) fn note_steps(&mut self, count: usize) {
        if !self.has_priorities {
            return;
        }
        let most = self.queue.commands().take(count + 1).map(priority).max();
        if let Some(most) = most {
            self.steps.raise_priority(most);
        }
    }

    /// Brings the commands of the highest priority to the head of the queue.
    pub(crate) fn promote(&mut self) {
        while self.queue.has_passed() {
            self.steps.go_on();
        }
        let Some(head) = self.queue.head().map(|head| in_force(self, head)) else {
            return;
        };
        if !self.queue.may_promote(head) {
            return;
        }
        if let Some(urgent) = self.queue.take_urgent(head, &self.memory) {
            // The command that was at the head gets its places again.
            self.unplace_head();
            self.head.reset();
            self.steps.put_off();
            let limit_bytes = self.driver.ledger().slab_limit_now_bytes();
            self.queue.pass(urgent, limit_bytes);
        }
    }

    /// Whether the command at the head, and all others, have a lower priority than the pass runs.
    pub(crate) fn has_only_lower(&self) -> bool {
        let queue = &self.queue;
        let is_lower = |cmd: &Cmd| is_lower(cmd, queue.runs.least_priority);
        queue.head().is_some_and(is_lower) && queue.commands().all(is_lower)
    }
}

/// Whether passes for this priority leave the command to others. They run what uses an import of
/// theirs: the app may write to it as soon as it has flushed.
fn is_lower(cmd: &Cmd, least: i8) -> bool {
    let is_import = |storage: &Arc<Storage>, _| {
        storage.is_lent()
            && storage.priority() >= least
            && storage.residency() == Residency::Imported
    };
    priority(cmd) < least && !cmd.has_operand(is_import)
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
        cmd.has_operand(|storage, role| {
            let address = storage.address();
            self.written.contains(&address) || role != Role::Read && self.read.contains(&address)
        })
    }
}

impl Queue {
    /// Whether commands of a higher priority may be behind others now. So it is if some were
    /// appended, if the last urgent one has run, or if a command for which some waited has run.
    /// `priority` is that of the command at the head.
    fn may_promote(&mut self, priority: i8) -> bool {
        let is_awaited = self.head().is_some_and(|head| self.is_awaited(head));
        let falls = std::mem::replace(&mut self.head_priority, priority) > priority;
        std::mem::replace(&mut self.has_news, is_awaited) || falls
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
        self.awaited = awaited;
        if !are_taken.contains(&true) {
            return None;
        }
        let mut are_taken = are_taken.into_iter();
        self.take_out(|_| are_taken.next() == Some(true))
    }
}
