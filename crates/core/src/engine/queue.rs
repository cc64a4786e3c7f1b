//! The queue: commands in program order, of which those at the head have gone through fusion.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use rustc_hash::FxHashMap;

use super::cmd::Cmd;
use super::fused::Fused;
use super::fusion::{Fuse, Pending};
use super::kernel::Program;
use super::staging_loss::StagingLoss;

/// Commands in the queue at which the caller executes the queue, if nobody else does: the device
/// has work early.
const FLUSH_AT_COMMANDS: usize = 256;

/// So many more commands in the queue, and the caller executes the queue if the device has nothing
/// to do.
const EARLY_COMMANDS: usize = 32;

/// Commands in the queue at which the caller waits for whoever executes the queue.
const QUEUE_LIMIT: usize = 16 * FLUSH_AT_COMMANDS;

/// The commands of the queue among which the next uses are known.
const LOOK_AHEAD_COMMANDS: usize = 1024;

/// Commands that wait for an execution pass.
pub(super) struct Queue {
    /// In program order.
    commands: VecDeque<Cmd>,
    /// So many commands at the head have gone through fusion.
    fused_commands: usize,
    /// Makes few commands of many, if that is wanted.
    fuse: Option<Fuse>,
    /// The fused kernels that have a pipeline.
    fused_kernels: Vec<Weak<Fused>>,
    /// The execution pass under way may leave commands at the end that others may yet join.
    may_leave: bool,
    /// What a rematerializer appends while it runs.
    recorded: VecDeque<Cmd>,
    /// Commands at which the device is given some if it has none.
    early_commands: usize,
}

impl Default for Queue {
    fn default() -> Self {
        Queue {
            commands: VecDeque::new(),
            fused_commands: 0,
            fuse: None,
            fused_kernels: Vec::new(),
            may_leave: false,
            recorded: VecDeque::new(),
            early_commands: EARLY_COMMANDS,
        }
    }
}

/// When the storages are used next, as far as the queue tells.
pub(super) struct NextUses {
    /// By slot, how many commands there are before the one that uses it.
    pub(super) by_slot: FxHashMap<u32, u32>,
    /// So many commands are known.
    pub(super) known: u32,
}

impl Queue {
    pub(super) fn len(&self) -> usize {
        self.commands.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.commands.is_empty()
    }

    /// Is it so long that who appends more is to wait?
    pub(super) fn is_full(&self) -> bool {
        self.commands.len() >= QUEUE_LIMIT
    }

    /// Where commands are appended: those of a rematerializer to a list of their own.
    #[inline]
    pub(super) fn end(&mut self, is_recording: bool) -> &mut VecDeque<Cmd> {
        match is_recording {
            true => &mut self.recorded,
            false => &mut self.commands,
        }
    }

    /// Takes what a rematerializer appended.
    pub(super) fn take_recorded(&mut self) -> VecDeque<Cmd> {
        std::mem::take(&mut self.recorded)
    }

    /// The next command.
    pub(super) fn head(&self) -> Option<&Cmd> {
        self.commands.front()
    }

    /// Every command, those that a rematerializer has recorded at the end.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Cmd> {
        self.commands.iter().chain(&self.recorded)
    }

    /// The commands that the choice of victims looks at.
    pub(super) fn ahead(&self) -> impl Iterator<Item = &Cmd> {
        self.commands.iter().take(LOOK_AHEAD_COMMANDS)
    }

    /// When the storages are used next.
    pub(super) fn next_uses(&self) -> NextUses {
        let (mut by_slot, mut known) = (FxHashMap::default(), 0);
        for cmd in self.ahead() {
            known += 1;
            cmd.each_operand(|storage, _| {
                if let Some(slot) = storage.slot() {
                    by_slot.entry(slot).or_insert(known);
                }
            });
        }
        NextUses { by_slot, known }
    }

    /// Uploads whose bytes are lost become ones without a value.
    pub(super) fn lose_staged(&mut self, loss: &StagingLoss) {
        self.commands.iter_mut().for_each(|cmd| loss.apply(cmd));
    }

    /// An execution pass begins. One that nobody waits for `may_leave` commands at the end, for
    /// later ones to become one with.
    pub(super) fn begin_pass(&mut self, may_leave: bool) {
        self.may_leave = may_leave;
    }

    /// The execution pass comes to the queue.
    pub(super) fn begin_round(&mut self) {
        self.early_commands = EARLY_COMMANDS;
    }

    /// Memory is short: what waits for others to become one with it keeps its operands. So nothing
    /// is left from now on.
    pub(super) fn leave_nothing(&mut self) {
        self.may_leave = false;
    }

    pub(super) fn may_leave(&self) -> bool {
        self.may_leave
    }

    /// Is it time that the queue runs? There are many commands, or the device has had nothing to
    /// do while some were recorded.
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

    /// The device is given work again once there are some more commands.
    pub(super) fn wait_for_more(&mut self) {
        self.early_commands = self.commands.len() + EARLY_COMMANDS;
    }

    /// From now on commands go through `fuse`.
    pub(super) fn fuse_with(&mut self, fuse: Fuse) {
        self.fuse = Some(fuse);
    }

    /// Takes the next command, unless all that are left wait for others to become one with them.
    /// No fused command is to need a larger part of `limit_bytes` than its parts do.
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
        let is_worth_it = self.commands.len() > 1 || self.may_leave;
        if self.fuse.is_some() && is_worth_it && self.commands.iter().any(is_launch) {
            let commands = std::mem::take(&mut self.commands);
            let (ready, rest) = self.fused(commands, self.may_leave, limit_bytes());
            self.fused_commands = ready.len();
            // Commands are large: those that are ready stay where they are.
            self.commands = ready.into();
            self.commands.extend(rest);
        } else {
            self.fused_commands = self.commands.len();
        }
    }

    /// What the commands become, and those that may wait for others.
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

    /// Puts these in front of all others: they are next.
    pub(super) fn put_in_front(&mut self, commands: VecDeque<Cmd>, limit_bytes: u64) {
        let (ready, _) = self.fused(commands, false, limit_bytes);
        for cmd in ready.into_iter().rev() {
            self.push_head(cmd);
        }
    }

    pub(super) fn push_head(&mut self, cmd: Cmd) {
        self.commands.push_front(cmd);
        self.fused_commands += 1;
    }

    pub(super) fn pop_head(&mut self) -> Option<Cmd> {
        self.fused_commands = self.fused_commands.saturating_sub(1);
        self.commands.pop_front()
    }

    /// Puts the parts of a fused command in front of the queue. `false` if it has none.
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

    /// A fused kernel has a pipeline.
    pub(super) fn compiled(&mut self, fused: &Arc<Fused>) {
        self.fused_kernels.retain(|one| one.strong_count() > 0);
        let known = |one: &Weak<Fused>| std::ptr::eq(one.as_ptr(), Arc::as_ptr(fused));
        if !self.fused_kernels.iter().any(known) {
            self.fused_kernels.push(Arc::downgrade(fused));
        }
    }

    /// The fused kernels that have a pipeline and are still kept.
    pub(super) fn fused_kernels(&self) -> Vec<Arc<Fused>> {
        self.fused_kernels
            .iter()
            .filter_map(Weak::upgrade)
            .collect()
    }
}
