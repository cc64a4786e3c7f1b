//! One step of the execution pass: encodes commands until the pass needs something that takes time.
//!
//! A step runs under the engine's lock and never waits. It may need a slab, a pipeline or a
//! submission. Then it leaves the command at the head of the queue and returns the need.
//! [`execute`](crate::engine::execute) releases the lock, meets the need and starts the next step.

use std::ops::ControlFlow;
use std::sync::Arc;

use crate::alloc::AllocError;
use crate::driver::DriverError;
use crate::engine::kernel::{Launch, Program, Role};
use crate::engine::queue::cmd::Cmd;
use crate::engine::queue::picking::{Rows, Words};
use crate::engine::shares::priority::priority;
use crate::engine::shares::running::note_share;
use crate::engine::state::State;
use crate::engine::state::caches::PipelineKey;
use crate::error::Error;
use crate::memory::{Place, Storage};
use crate::transfer::{Piece, Reading};

/// What the execution pass needs before it can go on.
#[derive(Debug)]
pub(super) enum Need {
    /// Submit the batch.
    Submit,
    /// Memory for a storage that has no place yet.
    Room(Arc<Storage>),
    /// Restore an evicted storage.
    Restore(Arc<Storage>),
    /// Deliver the bytes of an evicted storage to the reading at the head of the queue.
    ReadEvicted(Arc<Storage>, Arc<Reading>, Piece),
    /// Read the words that name rows of a table that is not on the device.
    Words(Words),
    /// Copy those rows of the table into the result of the command at the head of the queue.
    Rows(Rows),
    /// Compile a kernel.
    Pipeline {
        program: Program,
        key: PipelineKey,
        params_bytes: u32,
    },
    /// A read-back buffer for so many bytes of a storage.
    Readback(Arc<Storage>, u64),
    /// Collect the answers of the diagnostics.
    Answers,
    /// Wait until the slab of this place is idle, then map it and read the piece there.
    Direct(Arc<Reading>, Piece, Place),
}

/// Why a command was not encoded.
pub(super) enum Stop {
    Need(Need),
    /// The results of the command have no value, for this reason.
    Poison(Arc<Error>),
    /// The same, because of a fault of the kernel itself. Its parts would hide the fault.
    Fault(Arc<Error>),
    Lost,
}

impl From<DriverError> for Stop {
    fn from(error: DriverError) -> Self {
        match error {
            DriverError::Lost(_) => Stop::Lost,
            DriverError::OutOfMemory | DriverError::OverBudget => {
                Stop::Poison(Arc::new(Error::driver("a bind group", "out of memory")))
            }
            #[cfg(any(test, feature = "sim"))]
            DriverError::Kernel(fault) => Stop::Poison(Arc::new(Error::Kernel(fault))),
            DriverError::Invalid(message) => {
                Stop::Poison(Arc::new(Error::driver("a command", message)))
            }
        }
    }
}

impl From<AllocError> for Stop {
    fn from(error: AllocError) -> Self {
        Stop::Poison(Arc::new(Error::driver("a block", error.to_string())))
    }
}

impl State {
    /// Encodes commands until the queue is empty (`None`) or the pass needs something.
    pub(super) fn step(&mut self) -> Option<Need> {
        loop {
            self.free_dead();
            let is_long = self.queue.runs.ends_at_submission && self.has_long_batch()
                || self.has_long_lower_batch();
            if is_long || self.batch.is_full(self.pace.most_ops()) {
                return Some(Need::Submit);
            }
            if self.diagnose.as_ref().is_some_and(|one| one.is_half_full()) {
                return Some(Need::Answers);
            }
            if self.has_priorities {
                self.promote();
                if self.has_only_lower() || self.stops_between() {
                    return None;
                }
            }
            if let ControlFlow::Break(need) = self.run_next() {
                return need;
            }
        }
    }

    /// Encodes the command at the head of the queue, or moves it to the right list. Breaks if there
    /// is none, if the pass needs something, or if the device is lost.
    fn run_next(&mut self) -> ControlFlow<Option<Need>> {
        let driver = &self.driver;
        let limit_bytes = || driver.ledger().slab_limit_now_bytes();
        // Commands are large: this one is moved no further before its end.
        let next = self.queue.next(limit_bytes);
        let Some(cmd) = &next else {
            return ControlFlow::Break(None);
        };
        if matches!(cmd, Cmd::Read { reading, .. } if reading.is_cancelled()) {
            return ControlFlow::Continue(());
        }
        if let Some(error) = self.left_behind.conflict(cmd, &self.steps) {
            self.leave_behind(next, error);
            return ControlFlow::Continue(());
        }
        let has_imports = self.memory.census.sums.imported_bytes.now > 0;
        let alone = cmd.is_custom() || has_imports && cmd.is_foreign();
        let priority = self.has_priorities.then(|| priority(cmd));
        if !self.batch.is_empty() && (alone || self.batch.is_above(priority)) {
            self.queue.put_back(next);
            return ControlFlow::Break(Some(Need::Submit));
        }
        if let Some(storage) = self.first_lost(cmd) {
            self.queue.put_back(next);
            return ControlFlow::Break(Some(Need::Restore(storage)));
        }
        if note_share(self, cmd) {
            return ControlFlow::Continue(());
        }
        let has_saved = self.memory.dead_list.has_saved();
        let inputs = has_saved
            .then(|| self.lineages.inputs(cmd, &self.memory))
            .flatten();
        match self.encode(cmd) {
            Ok(()) => {
                if let Some(inputs) = inputs {
                    (self.lineages).note(cmd, inputs, &self.memory, &self.costs);
                }
                self.batch.is_closed = alone || cmd.submits_at_once();
                self.batch.highest_priority = self.batch.highest_priority.max(priority);
                self.note_encoded(cmd);
                // The operands without another holder are freed at once, and what the submission
                // still needs is kept. Other commands are rarely the last holders: the dead list is
                // enough for them.
                match next {
                    Some(Cmd::Launch(Launch {
                        program: Program::Custom(custom),
                        ..
                    })) => self.batch.custom = Some(custom),
                    Some(Cmd::Launch(launch)) => {
                        for arg in launch.args {
                            self.memory.release_operand(arg.storage);
                        }
                    }
                    Some(Cmd::Clear { dst, .. }) => self.memory.release_operand(dst),
                    Some(Cmd::Upload { region, .. }) => self.batch.regions.push(region),
                    _ => {}
                }
            }
            Err(Stop::Need(need)) => {
                self.queue.put_back(next);
                return ControlFlow::Break(Some(need));
            }
            Err(Stop::Poison(cause)) => self.fail(cmd, &cause, true),
            Err(Stop::Fault(cause)) => self.fail(cmd, &cause, false),
            // The caller learns of the loss when it asks the driver. The command stays for the next
            // device.
            Err(Stop::Lost) => {
                self.queue.put_back(next);
                return ControlFlow::Break(None);
            }
        }
        ControlFlow::Continue(())
    }

    /// The results of the command have no value, unless its parts may try.
    #[cold]
    fn fail(&mut self, cmd: &Cmd, cause: &Arc<Error>, in_parts: bool) {
        self.unplace_cmd(cmd);
        if !(in_parts && self.queue.take_apart(cmd)) {
            self.left(cmd);
            self.poison(cmd, cause);
        }
    }

    /// The command has to wait for commands that found no room, and for their error.
    #[cold]
    fn leave_behind(&mut self, next: Option<Cmd>, error: Error) {
        let Some(cmd) = next else { return };
        // Some of the results may not have to wait.
        if cmd.has_several_results() && self.queue.take_apart(&cmd) {
            return;
        }
        let is_step = self.steps.is_any_under_way();
        if let Cmd::TakeOver { to, .. } = &cmd {
            self.steps.finish(to, None);
        }
        self.left_behind.push(cmd, error, is_step, &self.memory);
    }

    /// A storage that was dropped, and that would be computed from what the command overwrites.
    #[inline]
    fn first_lost(&mut self, cmd: &Cmd) -> Option<Arc<Storage>> {
        // A takeover restores a value, which does not change it for readers.
        if !self.rematerializers.has_lineages() || matches!(cmd, Cmd::TakeOver { .. }) {
            return None;
        }
        let mut lost = None;
        cmd.each_operand(&mut |storage, role| {
            if lost.is_none() && role != Role::Read && storage.feeds_rematerializers() {
                lost = self.memory.slots.first_lost_by_write(storage);
            }
        });
        lost
    }

    /// Notes that a command was encoded.
    pub(super) fn note_encoded(&mut self, cmd: &Cmd) {
        self.head.reset();
        self.counters.commands += 1;
        let is_of_app = !matches!(cmd, Cmd::TakeOver { .. });
        if is_of_app && self.steps.end_command() {
            self.counters.commands_of_app += 1;
        }
        self.memory.slots.tick();
    }
}
