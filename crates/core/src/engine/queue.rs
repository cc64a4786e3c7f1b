//! The queue: commands in program order. The commands at its head have gone through fusion.
//!
//! `cmd` has the commands, `handles` tells who holds their storages, `head` what the one at the
//! head has so far, `steps` what runs before it. `left_behind` has those that a pass left behind,
//! `staging_loss` the uploads that were lost with a device.

pub(super) mod cmd;
pub(crate) mod fusion;
pub(super) mod handles;
pub(super) mod head;
pub(super) mod left_behind;
pub(super) mod picking;
pub(super) mod refused;
pub(super) mod staging_loss;
pub(super) mod steps;

use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use rustc_hash::FxHashSet;

use super::kernel::Program;
use super::kernel::fused::Fused;
use cmd::Cmd;
use fusion::{Fuse, Pending};
use staging_loss::StagingLoss;

/// At this length of the queue the appending thread starts an execution pass, if none is running.
/// So the device gets work early.
const FLUSH_AT_COMMANDS: usize = 256;

/// After this number of further commands the appending thread starts a pass, if the device is idle.
const EARLY_COMMANDS: usize = 32;

/// At this length of the queue an appending thread waits for the running pass.
const QUEUE_LIMIT: usize = 16 * FLUSH_AT_COMMANDS;

/// The number of commands in which the engine looks for the next use of a storage.
const LOOK_AHEAD_COMMANDS: usize = 1024;

/// Commands that wait for an execution pass.
pub(super) struct Queue {
    /// In program order.
    commands: VecDeque<Cmd>,
    /// The number of commands at the head that have gone through fusion.
    fused_commands: usize,
    /// For each time that some passed the others: the number of commands at the head that belong
    /// to them. The last one is the least.
    passing: Vec<usize>,
    /// Combines several commands into fewer, if fusion is on.
    fuse: Option<Fuse>,
    /// The fused kernels that have a pipeline.
    fused_kernels: Vec<Weak<Fused>>,
    /// What the current pass runs.
    pub(super) runs: Runs,
    /// Whether commands were appended since priorities were last looked at.
    pub(super) has_news: bool,
    /// The addresses of storages for whose other uses urgent commands wait.
    pub(super) awaited: FxHashSet<usize>,
    /// The priority of the command that was last at the head.
    pub(super) head_priority: i8,
    /// The commands that the running rematerializer has appended.
    pub(super) recorded: VecDeque<Cmd>,
    /// The length of the queue at which an idle device gets work.
    early_commands: usize,
}

impl Default for Queue {
    fn default() -> Self {
        Queue {
            commands: VecDeque::new(),
            fused_commands: 0,
            passing: Vec::new(),
            fuse: None,
            fused_kernels: Vec::new(),
            runs: Runs::all(),
            has_news: false,
            awaited: FxHashSet::default(),
            head_priority: i8::MIN,
            recorded: VecDeque::new(),
            early_commands: EARLY_COMMANDS,
        }
    }
}

/// What a pass runs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Runs {
    /// Whether it may leave commands at the end for fusion with later ones.
    pub(super) may_defer: bool,
    /// It runs commands of this priority and higher ones.
    pub(super) least_priority: i8,
    /// It ends with its first submission, which is a short one.
    pub(super) ends_at_submission: bool,
    /// It runs urgent commands in the middle of something else, and nothing behind them.
    pub(super) amid: Option<Amid>,
}

impl Runs {
    /// All commands, until the queue is empty.
    pub(super) const fn all() -> Self {
        Runs {
            may_defer: false,
            least_priority: i8::MIN,
            ends_at_submission: false,
            amid: None,
        }
    }
}

/// In the middle of what a pass runs urgent commands.
#[derive(Clone, Copy, Debug)]
pub(super) enum Amid {
    /// Of a need of the command at the head. Those that pass it run. So many groups have passed
    /// others before.
    Head { passed: usize },
    /// Of a drain. Those of the pass's least priority and above run.
    Drain,
}

impl Queue {
    pub(super) fn len(&self) -> usize {
        self.commands.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.commands.is_empty()
    }

    /// Whether the queue is so long that an appending thread must wait.
    pub(super) fn is_full(&self) -> bool {
        self.commands.len() >= QUEUE_LIMIT
    }

    /// The list to append to. A rematerializer has a separate list.
    #[inline]
    pub(super) fn append_list(&mut self, is_recording: bool) -> &mut VecDeque<Cmd> {
        match is_recording {
            true => &mut self.recorded,
            false => {
                self.has_news = true;
                &mut self.commands
            }
        }
    }

    /// May urgent commands wait for this one?
    pub(super) fn is_awaited(&self, cmd: &Cmd) -> bool {
        let awaited = &self.awaited;
        !awaited.is_empty() && cmd.has_operand(|storage, _| awaited.contains(&storage.address()))
    }

    /// The commands, without those that a rematerializer recorded.
    pub(super) fn commands(&self) -> impl Iterator<Item = &Cmd> {
        self.commands.iter()
    }

    /// Takes out the commands that `is_taken` names, in their order. `None` if there are none.
    pub(super) fn take_out(
        &mut self,
        mut is_taken: impl FnMut(&Cmd) -> bool,
    ) -> Option<VecDeque<Cmd>> {
        let (mut taken, mut left) = (VecDeque::new(), VecDeque::new());
        let mut left_fused = 0;
        let mut left_passing = vec![0; self.passing.len()];
        for (index, cmd) in std::mem::take(&mut self.commands).into_iter().enumerate() {
            match is_taken(&cmd) {
                true => taken.push_back(cmd),
                false => {
                    left_fused += usize::from(index < self.fused_commands);
                    for (left, passing) in left_passing.iter_mut().zip(&self.passing) {
                        *left += usize::from(index < *passing);
                    }
                    left.push_back(cmd);
                }
            }
        }
        (self.commands, self.fused_commands, self.passing) = (left, left_fused, left_passing);
        (!taken.is_empty()).then_some(taken)
    }

    /// Takes out the commands of rematerializers that a pass has begun and not ended. They are the
    /// first of the commands that passed others together, or of all.
    pub(super) fn take_steps(&mut self) -> VecDeque<Cmd> {
        let (mut is_step, mut are_steps) = (false, vec![false; self.commands.len()]);
        for (index, cmd) in self.commands.iter().enumerate().rev() {
            is_step |= matches!(cmd, Cmd::TakeOver { .. });
            are_steps[index] = is_step;
            is_step &= !self.passing.contains(&index);
        }
        let mut are_steps = are_steps.into_iter();
        let steps = self.take_out(|_| are_steps.next() == Some(true));
        steps.unwrap_or_default()
    }

    /// The next command.
    pub(super) fn head(&self) -> Option<&Cmd> {
        self.commands.front()
    }

    /// All commands. The last ones are those that a rematerializer has recorded.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Cmd> {
        self.commands.iter().chain(&self.recorded)
    }

    /// The commands that the choice of victims examines.
    pub(super) fn ahead(&self) -> impl Iterator<Item = &Cmd> {
        self.commands.iter().take(LOOK_AHEAD_COMMANDS)
    }

    /// Replaces each upload whose staged bytes are lost by a command that poisons the target.
    pub(super) fn lose_staged(&mut self, loss: &StagingLoss) {
        self.commands.iter_mut().for_each(|cmd| loss.apply(cmd));
    }

    /// Begins an execution pass. A pass whose results no caller waits for `may_defer` commands at
    /// the end for fusion with later ones. Commands below `least_priority` stay.
    pub(super) fn begin_pass(&mut self, may_defer: bool, least_priority: i8) {
        self.swap_runs(Runs {
            may_defer,
            least_priority,
            ..Runs::all()
        });
    }

    /// Changes what the current pass runs. Returns what it ran before.
    pub(super) fn swap_runs(&mut self, runs: Runs) -> Runs {
        self.has_news = true;
        std::mem::replace(&mut self.runs, runs)
    }

    /// The groups of commands that have passed the others and have not ended.
    pub(super) fn passing_groups(&self) -> usize {
        self.passing.len()
    }

    /// The pass begins to run the queue, or begins again.
    pub(super) fn begin_again(&mut self) {
        self.early_commands = EARLY_COMMANDS;
        self.passing.clear();
    }

    /// Whether a pass should start: the queue is long, or the device was idle while the last
    /// commands were recorded.
    #[inline]
    pub(super) fn is_time_to_run(&mut self, is_device_idle: impl FnOnce() -> bool) -> bool {
        let waiting = self.commands.len();
        if waiting < self.early_commands.min(FLUSH_AT_COMMANDS) {
            return false;
        }
        if waiting >= FLUSH_AT_COMMANDS {
            return true;
        }
        self.wait_for_more();
        is_device_idle()
    }

    /// Delays the next early pass until some more commands are in the queue.
    pub(super) fn wait_for_more(&mut self) {
        self.early_commands = self.commands.len() + EARLY_COMMANDS;
    }

    /// Sends all later commands through `fuse`.
    pub(super) fn fuse_with(&mut self, fuse: Fuse) {
        self.fuse = Some(fuse);
    }

    /// Whether commands go through fusion.
    pub(super) fn fuses(&self) -> bool {
        self.fuse.is_some()
    }

    /// Takes the next command. `None` if all remaining commands wait for fusion with later ones. A
    /// fused command must not need a larger share of `limit_bytes` than its parts.
    #[inline]
    pub(super) fn next(&mut self, limit_bytes: impl FnOnce() -> u64) -> Option<Cmd> {
        if self.fused_commands == 0 {
            self.fuse_commands(limit_bytes);
            if self.fused_commands == 0 {
                return None;
            }
        }
        self.pop_head()
    }

    fn fuse_commands(&mut self, limit_bytes: impl FnOnce() -> u64) {
        let is_launch = |cmd: &Cmd| matches!(cmd, Cmd::Launch(_));
        let is_worth_it = self.commands.len() > 1 || self.runs.may_defer;
        if self.fuse.is_some() && is_worth_it && self.commands.iter().any(is_launch) {
            let commands = std::mem::take(&mut self.commands);
            let (ready, rest) = self.fused(commands, self.runs.may_defer, limit_bytes());
            self.fused_commands = ready.len();
            // Commands are large, so the ready ones stay in their allocation.
            self.commands = ready.into();
            self.commands.extend(rest);
        } else {
            self.fused_commands = self.commands.len();
        }
    }

    /// The fused commands, and those that may wait for later ones.
    fn fused(
        &mut self,
        recorded: VecDeque<Cmd>,
        may_wait: bool,
        limit_bytes: u64,
    ) -> (Vec<Cmd>, VecDeque<Cmd>) {
        let Some(fuse) = &mut self.fuse else {
            return (recorded.into(), VecDeque::new());
        };
        let mut pending = Pending {
            ready: Vec::with_capacity(recorded.len()),
            recorded,
            may_wait,
            limit_bytes,
        };
        fuse(&mut pending);
        (pending.ready, pending.recorded)
    }

    /// Puts commands at the head of the queue that pass all others.
    pub(super) fn pass(&mut self, commands: VecDeque<Cmd>, limit_bytes: u64) {
        self.passing.push(0);
        self.put_in_front(commands, limit_bytes);
    }

    /// Whether the commands that passed the others last have ended. Then these go on.
    pub(super) fn has_passed(&mut self) -> bool {
        let has_passed = self.passing.last() == Some(&0);
        if has_passed {
            self.passing.pop();
        }
        has_passed
    }

    /// Puts commands at the head of the queue.
    pub(super) fn put_in_front(&mut self, commands: VecDeque<Cmd>, limit_bytes: u64) {
        let (ready, _) = self.fused(commands, false, limit_bytes);
        for cmd in ready.into_iter().rev() {
            self.push_head(cmd);
        }
    }

    /// Puts the command back that [`next`](Self::next) gave.
    pub(super) fn put_back(&mut self, next: Option<Cmd>) {
        if let Some(cmd) = next {
            self.push_head(cmd);
        }
    }

    pub(super) fn push_head(&mut self, cmd: Cmd) {
        self.commands.push_front(cmd);
        self.fused_commands += 1;
        self.passing.iter_mut().for_each(|passing| *passing += 1);
    }

    pub(super) fn pop_head(&mut self) -> Option<Cmd> {
        self.fused_commands = self.fused_commands.saturating_sub(1);
        for passing in &mut self.passing {
            *passing = passing.saturating_sub(1);
        }
        self.commands.pop_front()
    }

    /// Replaces a fused command by its parts, at the head of the queue. `false` if it has none.
    pub(super) fn take_apart(&mut self, cmd: &Cmd) -> bool {
        let Cmd::Launch(launch) = cmd else {
            return false;
        };
        let Program::Fused(fused) = &launch.program else {
            return false;
        };
        let Some(parts) = (fused.parts)(launch) else {
            return false;
        };
        for part in parts.into_iter().rev() {
            self.push_head(Cmd::Launch(part));
        }
        true
    }

    /// Notes that a fused kernel has a pipeline.
    pub(super) fn compiled(&mut self, fused: &Arc<Fused>) {
        self.fused_kernels.retain(|one| one.strong_count() > 0);
        let known = |one: &Weak<Fused>| std::ptr::eq(one.as_ptr(), Arc::as_ptr(fused));
        if !self.fused_kernels.iter().any(known) {
            self.fused_kernels.push(Arc::downgrade(fused));
        }
    }

    /// The fused kernels that have a pipeline and still have holders.
    pub(super) fn fused_kernels(&self) -> Vec<Arc<Fused>> {
        let alive = self.fused_kernels.iter().filter_map(Weak::upgrade);
        alive.collect()
    }
}
