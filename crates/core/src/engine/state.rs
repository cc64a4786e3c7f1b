//! The state that the engine's lock guards: the parts that an execution pass works with.
//!
//! [`State`] is an open record: the engine names its parts. Each part keeps its own fields private,
//! but for the [`Batch`], which is mostly lists to fill and to empty.
//! This file has the methods that concern several parts.

pub(super) mod account;
pub(super) mod batch;
pub(super) mod caches;
pub(super) mod changes;
pub(super) mod cleaning;
pub(super) mod cost;
pub(super) mod destination;
pub(super) mod holds;
pub(super) mod lineage;
mod pace;
#[cfg(not(target_arch = "wasm32"))]
pub(super) mod reads_ahead;
pub(super) mod rematerializers;
pub(super) mod suspended;
pub(super) mod times;
mod timing;
mod waits;

use std::sync::Arc;

use smallvec::SmallVec;

use super::diagnose::{self, Diagnose};
use super::kernel::{Launch, Role};
use super::numbers::Counters;
use super::queue::Queue;
use super::queue::cmd::Cmd;
use super::queue::head::Head;
use super::queue::left_behind::LeftBehind;
use super::queue::staging_loss::StagingLoss;
use super::queue::steps::Steps;
use crate::alloc::Pools;
use crate::driver::{Device, Op, Submission};
use crate::error::Error;
use crate::memory::{Copies, Dead, DeadList, Event, Memory, Storage};
use crate::transfer::Readbacks;
use crate::units::Level;
use account::DryRunAccount;
use batch::Batch;
use caches::{BindGroups, Pipelines, ProgramId};
use changes::{BlockOp, RefusedChanges};
use cleaning::Cleanings;
use cost::Costs;
use holds::Holds;
use lineage::Lineages;
use pace::Pace;
use rematerializers::Rematerializers;
use suspended::SuspendedRestores;
use times::Entry;
use timing::Timing;
use waits::WaitsByMaker;

/// A submission for which others may be waiting ends after this much predicted time.
const LONG_BATCH_NS: f64 = 4e6;

/// The parts of an engine.
pub(super) struct State {
    pub(super) driver: Device,
    pub(super) readbacks: Arc<Readbacks>,
    /// Commands that wait for a pass, in program order.
    pub(super) queue: Queue,
    /// The places that the command at the head of the queue has already got.
    pub(super) head: Head,
    /// What runs before that command for its sake.
    pub(super) steps: Steps,
    /// Commands that found no room in the current pass.
    pub(super) left_behind: LeftBehind,
    /// The places of all storages.
    pub(super) memory: Memory,
    /// The functions that compute storages again.
    pub(super) rematerializers: Rematerializers,
    /// How values were made, while some are saved for a backward.
    pub(super) lineages: Lineages,
    /// Copies of storages that are on their way to other tiers.
    pub(super) cleanings: Cleanings,
    /// What a thread reads of evicted storages before their restore.
    #[cfg(not(target_arch = "wasm32"))]
    pub(super) reads_ahead: reads_ahead::ReadsAhead,
    /// The costs of restoring evicted bytes.
    pub(super) costs: Costs,
    pub(super) pipelines: Pipelines,
    pub(super) groups: BindGroups,
    /// The ops of the next submission.
    pub(super) batch: Batch,
    /// The highest priority of a batch that the driver is being given.
    pub(super) in_submission: Option<i8>,
    /// Moves and clears of refused batches that go before that.
    pub(super) refused_changes: RefusedChanges,
    pub(super) pace: Pace,
    /// The record of uploads that were lost with a device.
    pub(super) staging_loss: StagingLoss,
    /// Describes what a launch computes, in the words of the operation's caller.
    pub(super) operation: fn(&Launch) -> String,
    /// The diagnostics, if the app asked for any.
    pub(super) diagnose: Option<Box<Diagnose>>,
    pub(super) timing: Timing,
    /// Whether shares have had different priorities. From then on passes follow them.
    pub(super) has_priorities: bool,
    /// The restores in whose middle urgent commands run.
    pub(super) suspended_restores: SuspendedRestores,
    /// How long passes for a low priority held up the others.
    pub(super) holds: Holds,
    /// For whose memory passes waited.
    pub(super) waits: WaitsByMaker,
    /// What a dry run counts.
    pub(super) dry: Option<Box<DryRunAccount>>,
    pub(super) counters: Counters,
}

impl State {
    pub(super) fn new(
        driver: Device,
        readbacks: Arc<Readbacks>,
        memory: (Pools, bool),
        dead_list: Arc<DeadList>,
    ) -> Self {
        let costs = Costs::new(driver.caps());
        // Nothing below can fail, so no code is needed here that drops all this.
        let (pools, never_move) = memory;
        let has_heap = driver.caps().host_heap;
        let memory = Memory::new(pools, never_move, has_heap, dead_list);
        State {
            groups: BindGroups::new(driver.clone()),
            timing: Timing::default(),
            driver,
            readbacks,
            queue: Queue::default(),
            head: Head::default(),
            steps: Steps::default(),
            left_behind: LeftBehind::default(),
            memory,
            rematerializers: Rematerializers::default(),
            lineages: Lineages::default(),
            cleanings: Cleanings::default(),
            #[cfg(not(target_arch = "wasm32"))]
            reads_ahead: reads_ahead::ReadsAhead::default(),
            costs,
            pipelines: Pipelines::default(),
            batch: Batch::default(),
            in_submission: None,
            refused_changes: RefusedChanges::default(),
            pace: Pace::default(),
            staging_loss: StagingLoss::default(),
            operation: |launch| launch.program.name().to_owned(),
            diagnose: None,
            has_priorities: false,
            suspended_restores: SuspendedRestores::default(),
            holds: Holds::default(),
            waits: WaitsByMaker::default(),
            dry: None,
            counters: Counters::default(),
        }
    }

    /// Adds an op of a command to the batch, after what earlier changes of blocks require.
    #[inline]
    pub(super) fn push_op(&mut self, op: Op) {
        self.handle_changes();
        self.batch.ops.push(op);
    }

    /// Handles changes of blocks before the next op. Clears what another share may have left in
    /// them, and lets the diagnostics fill and check them.
    #[inline]
    pub(super) fn handle_changes(&mut self) {
        if self.memory.previous.has_unclean() {
            self.clear_unclean();
        }
        if self.memory.canaries.has_changes() {
            diagnose::handle_changes(self);
        }
    }

    #[cold]
    fn clear_unclean(&mut self) {
        for (place, size_bytes) in self.memory.previous.take_unclean() {
            self.memory.slabs.touch(place);
            self.counters.hand_overs += 1;
            self.counters.cleared_bytes += size_bytes;
            self.batch.ops.push(Op::Clear(place.at(0), size_bytes));
            self.batch.changes.push(BlockOp::cleared(place, size_bytes));
        }
    }

    /// Adds an op that writes to a storage.
    pub(super) fn write(&mut self, storage: &Storage, op: Op) {
        self.memory.record_operand(storage, true);
        self.push_op(op);
    }

    /// Counts a submission with these dispatches.
    pub(super) fn submitted(&mut self, submission: Submission, dispatches: &[Entry]) {
        self.counters.submissions += 1;
        let (serial, commands) = (submission.serial, self.counters.commands);
        (self.memory.events).push(Event::Submission { serial, commands });
        self.update_time();
        if self.timing.times.is_some() {
            (self.timing).kernels_ran(dispatches, &self.driver, &mut self.memory);
        }
        self.pace.submitted(submission);
    }

    /// Counts the time of bytes on their way to or from these copies, in a dry run.
    pub(super) fn count_transfer(&mut self, copies: &Copies, bytes: u64) {
        if let Some(account) = &mut self.dry {
            let ns = self.costs.transfer_cost(copies.tier()).ns(bytes);
            account.transfer_ns = account.transfer_ns.saturating_add(ns);
        }
    }

    /// Turns the timing of kernels on or off. Dispatches that are in the batch already count as
    /// `others`.
    pub(super) fn time_kernels(&mut self, on: bool) {
        if !(on && self.timing.times.is_some()) {
            self.batch.time(self.timing.set(on));
        }
    }

    /// Sets the time of the events that follow. Reads the clock only if the app keeps a history.
    pub(super) fn update_time(&mut self) {
        if self.memory.events.is_on() {
            self.memory.events.now_ns = self.timing.now_ns();
        }
    }

    /// Whether the batch takes so long that it should be submitted, if others may be waiting.
    pub(super) fn has_long_batch(&self) -> bool {
        self.batch.predicted_ns * self.driver.time_scale() >= LONG_BATCH_NS
    }

    /// Frees the storages and kernels that have no holder.
    #[inline]
    pub(super) fn free_dead(&mut self) {
        if self.memory.dead_list.has_any() {
            self.free_dead_now();
        }
    }

    fn free_dead_now(&mut self) {
        let mut kernels = SmallVec::<[ProgramId; 2]>::new();
        let mut rematerializers = SmallVec::<[u64; 2]>::new();
        let mut has_lost_share = false;
        self.memory.free_dead(|dead| match dead {
            Dead::Kernel(id) => kernels.push(ProgramId::Custom(id)),
            Dead::Fused(id) => kernels.push(ProgramId::Fused(id)),
            Dead::Rematerializer(id) => rematerializers.push(id),
            Dead::Share(_) => has_lost_share = true,
            Dead::Slot(_) | Dead::Watermark(_) | Dead::HeapBlock(_) => {}
        });
        for id in rematerializers {
            self.rematerializers.forget(id);
        }
        if has_lost_share {
            self.note_promises();
        }
        for kernel in kernels {
            self.pipelines.discard(kernel, &mut self.groups);
        }
    }

    /// Whether the device has finished all submissions, as far as the engine has noticed.
    pub(super) fn is_device_idle(&self) -> bool {
        self.pace.is_idle(&self.driver)
    }

    /// Frees the blocks of restores in whose middle urgent commands run. Returns the bytes that
    /// became free.
    pub(super) fn give_up_suspended_restores(&mut self) -> u64 {
        self.suspended_restores.give_up(&mut self.memory)
    }

    /// The refused submissions, without those of urgent commands in the middle of what the pass
    /// does.
    pub(super) fn refused_submissions(&self) -> u64 {
        self.counters.refused_submissions - self.holds.refused_amid
    }

    /// Numbers of which at least one grows with any change of what lies where.
    pub(super) fn change_marks(&self) -> [u64; 5] {
        [
            self.counters.commands,
            self.counters.restored_bytes,
            self.counters.refused_submissions,
            self.memory.slabs.freed,
            self.memory.slabs.moved_bytes(),
        ]
    }

    /// Whether an execution pass would have nothing to do.
    pub(super) fn has_nothing_to_do(&self) -> bool {
        let has_commands = !self.queue.is_empty() || !self.left_behind.is_empty();
        !has_commands && self.batch.is_empty() && !self.is_unsettled()
    }

    /// Whether something must run on the device before the host may look at slabs: moves of a
    /// refused batch, or clears.
    pub(super) fn is_unsettled(&self) -> bool {
        self.refused_changes.are_left() || self.memory.previous.has_unclean()
    }

    /// The bytes of storages without a place. The peak is that of the moments after an append.
    #[inline]
    pub(super) fn pending_bytes(&self) -> Level {
        let (up, down) = self.memory.dead_list.pending_bytes();
        let now = up.wrapping_sub(down);
        let peak = self.counters.peak_pending_bytes.max(now);
        Level {
            now,
            peak,
            up,
            down,
        }
    }

    /// Marks the results of a command as poisoned. Later uses of them get the cause.
    pub(super) fn poison(&mut self, cmd: &Cmd, cause: &Arc<Error>) {
        // A storage without a value leaves first.
        self.left_behind.refused = None;
        // The pages of a launch that has not run are as before. What reads them after it also reads
        // the launch's table, which has no value now.
        let (pages, table) = match cmd {
            Cmd::Launch(launch) => (launch.pages.as_ref(), launch.page_table()),
            _ => (None, None),
        };
        if let Some(table) = table {
            self.memory.slots.poison(table, cause);
        }
        cmd.each_operand(&mut |storage, role| {
            let is_page = pages.is_some_and(|pages| pages.has(storage));
            if role != Role::Read && !is_page {
                self.memory.slots.poison(storage, cause);
            }
        });
        if let Cmd::Read { reading, .. } = cmd {
            reading.fail(Error::clone(cause));
        }
    }

    /// Begins to run the queue: puts the commands that were left behind back at the head of the
    /// queue. Drops those whose results nothing can use any more.
    pub(super) fn take_up_left_behind(&mut self) {
        self.unplace_head();
        self.steps.begin_pass();
        // A rematerializer computes from its inputs as they are now, before commands that waited
        // write to them.
        if let Some(error) = self.left_behind.first_error() {
            let steps = self.queue.take_steps();
            self.left_behind.add_steps(steps, &error);
        }
        let queue = &mut self.queue;
        queue.begin_again();
        // The last command comes first, so the first command ends up at the head.
        (self.left_behind).take_wanted(&self.memory, |cmd, _| queue.push_head(cmd));
    }

    /// Takes back the places that the command at the head of the queue has got or taken over.
    pub(super) fn unplace_head(&mut self) {
        if let Some(cmd) = self.queue.head() {
            take_back(cmd, &mut self.memory, &mut self.counters);
        }
        self.unplace();
    }

    /// As [`unplace_head`](Self::unplace_head), for a command that was just removed from the head.
    pub(super) fn unplace_cmd(&mut self, cmd: &Cmd) {
        take_back(cmd, &mut self.memory, &mut self.counters);
        self.unplace();
    }

    fn unplace(&mut self) {
        for storage in self.head.take_placed() {
            self.memory.unplace(&storage);
        }
    }

    /// Notes that a command has left the queue and has not run.
    pub(super) fn left(&mut self, cmd: &Cmd) {
        match cmd {
            Cmd::TakeOver { to, .. } => self.steps.finish(to, None),
            _ => drop(self.steps.end_command()),
        }
    }

    /// Handles a failure of the command at the head of the queue: it cannot run now, or never.
    pub(super) fn head_failed(&mut self, error: Error) {
        self.unplace_head();
        let head = self.queue.pop_head();
        // A fused command may need more memory than its parts. Then the parts take its place.
        if head.as_ref().is_some_and(|cmd| self.queue.take_apart(cmd)) {
            return;
        }
        let is_step = self.steps.is_any_under_way();
        let error = match &head {
            Some(cmd) => error.asked_by(|| cmd.described(self.operation)),
            None => error,
        };
        if let Some(cmd) = &head {
            self.left(cmd);
        }
        // After `NeverFits` the app may raise the budget, and the command's targets keep their
        // bytes until then.
        let is_final = error.is_final() && !matches!(error, Error::NeverFits { .. });
        match head {
            // A prefetch is only a hint and must not block other commands.
            Some(Cmd::Prefetch(_)) | None => {}
            Some(cmd) if is_final => self.poison(&cmd, &Arc::new(error)),
            Some(cmd) => (self.left_behind).push(cmd, error, is_step, &self.memory),
        }
    }
}

/// Undoes the takeovers of a command that has not run. Only the last holder of a storage hands its
/// place on, so this command did it.
fn take_back(cmd: &Cmd, memory: &mut Memory, counters: &mut Counters) {
    cmd.each_operand(&mut |storage, _| {
        if storage.is_donated() {
            memory.take_back(storage);
            counters.donated -= 1;
        }
    });
}
