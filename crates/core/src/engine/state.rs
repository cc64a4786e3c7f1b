//! What the engine's lock guards: the parts that an execution pass works with.
//!
//! Each part owns its fields. This file joins them where one thing concerns several.

use std::fmt;
use std::sync::Arc;

use super::batch::Batch;
use super::caches::{BindGroups, Pipelines};
use super::cleaning::Cleanings;
use super::cmd::Cmd;
use super::cost::Costs;
use super::counters::Counters;
use super::diagnose::{self, Diagnose};
use super::head::Head;
use super::kernel::Role;
use super::left_behind::LeftBehind;
use super::pace::Pace;
use super::queue::Queue;
use super::rematerializers::Rematerializers;
use super::staging_loss::StagingLoss;
use super::times::Entry;
use super::timing::Timing;
use crate::driver::{Device, Op, Submission};
use crate::error::Error;
use crate::memory::{Event, Memory, Storage};
use crate::transfer::Readbacks;

/// The parts of an engine.
pub(super) struct State {
    pub(super) driver: Device,
    pub(super) readbacks: Arc<Readbacks>,
    /// Commands that wait, in program order.
    pub(super) queue: Queue,
    /// What the command at the head of the queue was given so far.
    pub(super) head: Head,
    /// Commands that could not run in the execution pass under way.
    pub(super) left: LeftBehind,
    /// Where every storage is.
    pub(super) memory: Memory,
    /// Who makes storages anew.
    pub(super) rematerializers: Rematerializers,
    /// Copies on their way of what will have to leave before long.
    pub(super) cleanings: Cleanings,
    /// What it costs to have back what is evicted.
    pub(super) costs: Costs,
    pub(super) pipelines: Pipelines,
    pub(super) groups: BindGroups,
    /// Ops on their way to the next submission.
    pub(super) batch: Batch,
    pub(super) pace: Pace,
    /// Uploads that were lost with a device.
    pub(super) staging_loss: StagingLoss,
    /// Looks for bugs, if that is wanted.
    pub(super) diagnose: Option<Box<Diagnose>>,
    pub(super) timing: Timing,
    pub(super) counters: Counters,
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("State").finish_non_exhaustive()
    }
}

impl State {
    pub(super) fn new(
        driver: Device,
        readbacks: Arc<Readbacks>,
        memory: Memory,
        diagnose: Option<Box<Diagnose>>,
    ) -> Self {
        State {
            groups: BindGroups::new(driver.clone()),
            driver,
            readbacks,
            queue: Queue::default(),
            head: Head::default(),
            left: LeftBehind::default(),
            memory,
            rematerializers: Rematerializers::default(),
            cleanings: Cleanings::default(),
            costs: Costs::default(),
            pipelines: Pipelines::default(),
            batch: Batch::default(),
            pace: Pace::default(),
            staging_loss: StagingLoss::default(),
            diagnose,
            timing: Timing::default(),
            counters: Counters::default(),
        }
    }

    /// An op of a command: what happened to blocks before comes first.
    #[inline]
    pub(super) fn push_op(&mut self, op: Op) {
        if self.memory.has_changes() {
            diagnose::attend(self);
        }
        self.batch.push(op);
    }

    /// An op that writes to a storage.
    pub(super) fn write(&mut self, storage: &Storage, op: Op) {
        self.memory.record_operand(storage, true);
        self.push_op(op);
    }

    /// Work was submitted, with these dispatches.
    pub(super) fn submitted(&mut self, submission: Submission, dispatches: &[Entry]) {
        self.counters.submissions += 1;
        let (serial, commands) = (submission.serial, self.counters.commands);
        self.memory.happened(Event::Submission { serial, commands });
        self.tell_time();
        if self.timing.is_on() {
            (self.timing).kernels_ran(dispatches, &self.driver, &mut self.memory);
        }
        self.pace.submitted(submission);
    }

    /// Times kernels from now on, or no longer. What the batch holds already is nobody's.
    pub(super) fn time_kernels(&mut self, on: bool) {
        if !(on && self.timing.is_on()) {
            self.batch.time(self.timing.set(on));
        }
    }

    /// What happens from now on happens at this time. The clock is not read where nobody wants to
    /// know.
    pub(super) fn tell_time(&mut self) {
        if self.memory.keeps_history() {
            self.memory.set_time(self.timing.now_ns());
        }
    }

    /// Is all done that was submitted, as far as that was noticed?
    pub(super) fn is_device_idle(&self) -> bool {
        self.pace.is_idle(&self.driver)
    }

    /// Would an execution pass have nothing to do?
    pub(super) fn has_nothing_to_do(&self) -> bool {
        self.queue.is_empty() && self.left.is_empty() && self.batch.is_empty()
    }

    /// Something was appended, and so was made before.
    #[inline]
    pub(super) fn notice_pending(&mut self) {
        let (up_bytes, down_bytes) = self.memory.pending_bytes();
        let now_bytes = up_bytes.wrapping_sub(down_bytes);
        let peak_bytes = &mut self.counters.peak_pending_bytes;
        *peak_bytes = now_bytes.max(*peak_bytes);
    }

    /// What a command writes has no value: the reason goes to whoever asks for it.
    pub(super) fn poison(&mut self, cmd: &Cmd, cause: &Arc<Error>) {
        cmd.each_operand(|storage, role| {
            if role != Role::Read {
                self.memory.poison(storage, cause);
            }
        });
        if let Cmd::Read { reading, .. } = cmd {
            reading.fail((**cause).clone());
        }
    }

    /// Puts what was left behind by the last execution pass back in front of the queue, but for
    /// what nobody has a use for any more.
    pub(super) fn try_again(&mut self) {
        self.unplace_head();
        self.rematerializers.begin_pass();
        // The last comes first, and so the first is at the head in the end.
        let queue = &mut self.queue;
        self.left.take_wanted(|cmd, _| queue.push_head(cmd));
    }

    /// Takes back the places that the command at the head of the queue was given so far, or took
    /// over.
    pub(super) fn unplace_head(&mut self) {
        if let Some(cmd) = self.queue.head() {
            take_back(cmd, &mut self.memory, &mut self.counters);
        }
        self.unplace();
    }

    /// As [`unplace_head`](Self::unplace_head), of a command that was at the head.
    pub(super) fn unplace_cmd(&mut self, cmd: &Cmd) {
        take_back(cmd, &mut self.memory, &mut self.counters);
        self.unplace();
    }

    fn unplace(&mut self) {
        for storage in self.head.take_placed() {
            self.memory.unplace(&storage);
        }
    }

    /// The command at the head of the queue cannot run: not now, or not at all.
    pub(super) fn head_failed(&mut self, error: Error) {
        self.unplace_head();
        let head = self.queue.pop_head();
        // What needs more room than its parts do gives way to them.
        if head.as_ref().is_some_and(|cmd| self.queue.take_apart(cmd)) {
            return;
        }
        self.rematerializers.is_the_apps();
        match head {
            // It was only a hint, and must not hold anybody up.
            Some(Cmd::Prefetch(_)) | None => {}
            // The budget may be raised, and what the command was to change keeps its bytes.
            Some(cmd) if matches!(error, Error::NeverFits { .. }) => {
                self.left.push(cmd, error, &self.memory)
            }
            Some(cmd) if error.is_final() => self.poison(&cmd, &Arc::new(error)),
            Some(cmd) => self.left.push(cmd, error, &self.memory),
        }
    }
}

/// What a command took over that has not run. Only the last to hold a storage hands its place on,
/// so it was this command that did.
fn take_back(cmd: &Cmd, memory: &mut Memory, counters: &mut Counters) {
    cmd.each_operand(|storage, _| {
        if storage.is_donated() {
            memory.take_back(storage);
            counters.donated -= 1;
        }
    });
}
