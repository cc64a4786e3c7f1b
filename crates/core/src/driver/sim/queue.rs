//! The virtual queue: submissions wait here and are executed late.
//!
//! ```text
//!   submit ──► [17] [18] [19] ──► executed at the front, in order
//!                                  when its lag is over      (a poll, a later submission)
//!                                  when a caller waits for it  (or for a later one)
//!                                  when a test runs it        (SimHandle::run)
//! ```
//!
//! Signals that are due are collected under the lock and set without it: see `SimDevice::with`.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::clock::{QueueClock, time_of};
use super::contents::{Contents, Mapping};
use super::counters::{Digest, SimCounters};
use super::faults::{Chance, FaultKind, FaultPlan, Site};
use super::options::{SimMode, SimOptions};
use super::work::{BoundRanges, Pipeline, Step, Work};
use crate::driver::table::Table;
use crate::driver::{
    Binding, BindingAccess, BufferId, DriverError, DriverResult, ReferenceKernel, Signal,
    Submission, panic_message,
};

/// A submission that is not executed yet.
struct Pending {
    serial: u64,
    /// The tick at which it is due.
    due: u64,
    /// The moment before which it does not end, if work takes time.
    ends_at: Option<Instant>,
    steps: Vec<Step>,
    params: Vec<u8>,
    done: Signal,
}

/// The outcome of an awaited event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Happened,
    Failed,
    Lost,
}

/// The state that the device's lock guards.
#[derive(Default)]
pub(super) struct State {
    pub(super) options: SimOptions,
    pub(super) memory: Contents,
    pub(super) pipelines: Table<Arc<Pipeline>>,
    pub(super) groups: Table<BoundRanges>,
    pub(super) faults: FaultPlan,
    pub(super) counters: SimCounters,
    pub(super) digest: Digest,
    /// The first requests that were refused or misused.
    pub(super) complaints: Vec<String>,
    pub(super) lost: Option<String>,
    /// Whether it was ever lost.
    pub(super) was_lost: Arc<AtomicBool>,
    /// Signals to set once the lock is released.
    pub(super) settled: Vec<(Signal, Fate)>,
    /// The options of the device that a reopening finds. `None` for the same options.
    pub(super) next: Option<SimOptions>,
    /// The bytes that other code of the process uses of the system's budget.
    pub(super) others_bytes: u64,
    /// Whether a device was replaced. Then callers may still release ids of an earlier device.
    pub(super) reopened: bool,
    chance: Chance,
    clock: QueueClock,
    pending: VecDeque<Pending>,
    /// Empty lists of steps, to be filled again. A new one for each submission would let the
    /// system's allocator merge what it keeps of small sizes, so all others would pay for it.
    pub(super) spare_steps: Vec<Vec<Step>>,
    /// The buffers with a requested mapping, in the order of the requests.
    pub(super) wanted: Vec<BufferId>,
    /// The number of polls and submissions.
    ticks: u64,
    pub(super) submitted: u64,
    pub(super) completed: u64,
    /// The number of interpreted dispatches.
    dispatches: u64,
}

const COMPLAINTS_KEPT: usize = 100;

/// Most lists of steps that are kept.
const SPARE_STEPS: usize = 8;

impl State {
    pub(super) fn new(options: SimOptions) -> Self {
        State {
            faults: FaultPlan::new(&options.faults, options.seed),
            // This generator differs from that of the faults: arming a fault must not change the
            // lateness.
            chance: Chance(options.seed ^ 0x6c61_7465),
            options,
            ..State::default()
        }
    }

    pub(super) fn has_contents(&self) -> bool {
        self.options.mode == SimMode::Contents
    }

    pub(super) fn pending(&self) -> usize {
        self.pending.len()
    }

    /// Begins every call of the driver: counts it, and applies a fault.
    pub(super) fn enter(&mut self, site: Site) -> DriverResult<()> {
        self.counters.count(site);
        self.still_here()?;
        self.suffer(site)
    }

    /// Applies the fault that strikes a call, if one does.
    pub(super) fn suffer(&mut self, site: Site) -> DriverResult<()> {
        let strike = self.faults.strike(|of| of.counts(site));
        self.counters.faults += u64::from(strike.is_some());
        match strike {
            None => Ok(()),
            Some(FaultKind::OutOfMemory) => Err(DriverError::OutOfMemory),
            Some(FaultKind::Invalid) => Err(DriverError::Invalid(format!("a fault at {site:?}"))),
            Some(FaultKind::Lost) => Err(self.lose(&format!("a fault at {site:?}"))),
        }
    }

    /// Loses the device. Submissions that are not executed never will be.
    pub(super) fn lose(&mut self, reason: &str) -> DriverError {
        let reason = self.lost.get_or_insert_with(|| reason.to_string()).clone();
        self.was_lost.store(true, Ordering::Release);
        let given_up = self.pending.drain(..);
        (self.settled).extend(given_up.map(|pending| (pending.done, Fate::Lost)));
        for id in std::mem::take(&mut self.wanted) {
            if let Some(buffer) = self.memory.get_mut(id) {
                let mapping = std::mem::replace(&mut buffer.mapping, Mapping::None);
                self.cancel(mapping);
            }
        }
        self.memory.retire(u64::MAX);
        DriverError::Lost(reason)
    }

    /// Releases all objects, because no caller can call the driver any more.
    pub(super) fn close(&mut self) {
        self.lose("its driver was dropped");
        self.memory.destroy_all();
        self.groups = Table::default();
        self.pipelines = Table::default();
    }

    /// Records a broken rule.
    pub(super) fn complain(&mut self, what: String) {
        self.counters.complaints += 1;
        if self.complaints.len() < COMPLAINTS_KEPT {
            self.complaints.push(what);
        }
    }

    /// Records a broken rule and returns it as an error.
    pub(super) fn refuse(&mut self, what: String) -> DriverError {
        self.complain(what.clone());
        DriverError::Invalid(what)
    }

    /// Refuses what broke a rule.
    pub(super) fn allow(&mut self, checked: Result<(), String>) -> DriverResult<()> {
        checked.map_err(|why| self.refuse(why))
    }

    /// Keeps a list of steps, if few are kept.
    fn give_back(&mut self, mut steps: Vec<Step>) {
        if self.spare_steps.len() < SPARE_STEPS && steps.capacity() > 0 {
            steps.clear();
            self.spare_steps.push(steps);
        }
    }

    /// Queues steps that were checked, and executes the submissions that are due.
    pub(super) fn push(&mut self, steps: Vec<Step>, params: Vec<u8>) -> DriverResult<Submission> {
        let is_executed = steps.iter().any(Step::is_interpreted);
        if is_executed {
            self.run(usize::MAX);
            for step in &steps {
                if let Err(error) = self.execute(step.clone(), &params) {
                    return Err(self.give_up(error));
                }
            }
        }
        self.submitted += 1;
        let serial = self.submitted;
        for step in &steps {
            self.mark_used(step, serial);
        }
        let ends_at = match self.options.speed {
            Some(speed) if self.options.keeps_time => {
                let taken = time_of(&steps, &self.memory, speed);
                self.counters.busy_ns += taken.as_nanos() as u64;
                Some(self.clock.end_of(taken, Instant::now()))
            }
            _ => None,
        };
        let done = Signal::after(serial);
        let most = self.options.lag_submissions;
        let lag = match self.options.jitter {
            true => self.chance.below(u64::from(most) + 1),
            false => u64::from(most),
        };
        self.ticks += 1;
        // Without contents there is nothing to execute, and only time passes.
        let mut later = Vec::new();
        match self.has_contents() && !is_executed {
            true => later = steps,
            false => self.give_back(steps),
        }
        self.pending.push_back(Pending {
            serial,
            due: self.ticks + lag,
            ends_at,
            steps: later,
            params,
            done: done.clone(),
        });
        self.run_due();
        Ok(Submission { serial, done })
    }

    /// Handles the failure of an executed step.
    fn give_up(&mut self, error: DriverError) -> DriverError {
        match error {
            DriverError::Lost(reason) => self.lose(&reason),
            DriverError::Kernel(fault) => {
                self.complain(fault.to_string());
                DriverError::Kernel(fault)
            }
            error => error,
        }
    }

    /// Lets the time of one poll pass.
    pub(super) fn tick(&mut self) {
        self.ticks += 1;
        self.run_due();
    }

    fn run_due(&mut self) {
        let is_due = |front: &Pending, ticks: u64| {
            front.due <= ticks && front.ends_at.is_none_or(|end| end <= Instant::now())
        };
        while (self.pending.front()).is_some_and(|front| is_due(front, self.ticks)) {
            self.run_front();
        }
        self.settle_mappings();
    }

    /// Executes this many submissions, due or not. Returns the number that it executed.
    pub(super) fn run(&mut self, count: usize) -> usize {
        let count = count.min(self.pending.len());
        (0..count).for_each(|_| self.run_front());
        self.settle_mappings();
        count
    }

    /// The time until a signal can be set. `None` if that is now.
    pub(super) fn time_left(&self, signal: &Signal) -> Option<Duration> {
        let mut pending = self.pending.iter();
        let awaited = pending.find(|one| one.serial == signal.serial())?;
        let left = awaited.ends_at?.saturating_duration_since(Instant::now());
        (!left.is_zero()).then_some(left)
    }

    /// Executes the submissions that a signal waits for.
    pub(super) fn run_until(&mut self, signal: &Signal) -> DriverResult<()> {
        let serial = signal.serial();
        if serial > self.submitted {
            let why = format!("wait for submission {serial}, which was never made");
            return Err(self.refuse(why));
        }
        while (self.pending.front()).is_some_and(|front| front.serial <= serial) {
            self.run_front();
        }
        self.settle_mappings();
        Ok(())
    }

    fn run_front(&mut self) {
        let Some(Pending {
            serial,
            mut steps,
            params,
            done,
            ..
        }) = self.pending.pop_front()
        else {
            return;
        };
        for step in steps.drain(..) {
            if let Err(error) = self.execute(step, &params) {
                self.settled.push((done, Fate::Lost));
                self.give_up(error);
                return;
            }
        }
        self.give_back(steps);
        self.completed = serial;
        self.settled.push((done, Fate::Happened));
        self.memory.retire(serial);
    }

    fn execute(&mut self, step: Step, params: &[u8]) -> DriverResult<()> {
        match step {
            Step::Copy(src, dst, size_bytes) => self.memory.copy(src, dst, size_bytes),
            Step::Clear(at, size_bytes) => self.memory.clear(at, size_bytes),
            Step::Write(at, bytes) => self.memory.write(at, &params[bytes]),
            Step::Dispatch {
                kernel,
                bindings,
                params: range,
                groups,
            } => {
                let params = &params[range];
                return match &kernel.work {
                    Work::Nothing => Ok(()),
                    Work::Reference(reference) => self
                        .dispatch(reference, &kernel, &bindings, params)
                        .map_err(DriverError::Lost),
                    Work::Wgsl(program) => {
                        let views = bindings.iter().zip(&kernel.bindings);
                        let views = views.map(|(binding, access)| {
                            let is_written = *access == BindingAccess::ReadWrite;
                            (self.memory.load(binding), is_written)
                        });
                        let seed = self.dispatches;
                        self.dispatches += 1;
                        let written = program.run(views.collect(), params, groups, seed)?;
                        for (index, bytes) in written {
                            self.memory.store(&bindings[index], &bytes);
                        }
                        Ok(())
                    }
                };
            }
        }
        Ok(())
    }

    /// Runs a reference kernel on copies of its bindings. A reference kernel that panics loses the
    /// device, as a kernel that crashes does.
    fn dispatch(
        &mut self,
        reference: &ReferenceKernel,
        kernel: &Pipeline,
        bindings: &[Binding],
        params: &[u8],
    ) -> Result<(), String> {
        let mut seen: Vec<Vec<u8>> = bindings.iter().map(|b| self.memory.load(b)).collect();
        let label = &kernel.label;
        catch_unwind(AssertUnwindSafe(|| reference(&mut seen, params))).map_err(|panic| {
            let why = panic_message(&*panic);
            format!("the reference kernel of `{label}` panicked: {why}")
        })?;
        for ((binding, access), bytes) in bindings.iter().zip(&kernel.bindings).zip(&seen) {
            if bytes.len() as u64 != binding.size_bytes {
                return Err(format!(
                    "the reference kernel of `{label}` changed a binding's length"
                ));
            }
            if *access == BindingAccess::ReadWrite {
                self.memory.store(binding, bytes);
            }
        }
        Ok(())
    }

    fn mark_used(&mut self, step: &Step, serial: u64) {
        let mut mark = |id: BufferId| {
            if let Some(buffer) = self.memory.get_mut(id) {
                buffer.last_use = serial;
            }
        };
        let counters = &mut self.counters;
        match step {
            Step::Copy(src, dst, size_bytes) => {
                counters.copies += 1;
                counters.copied_bytes += size_bytes;
                mark(src.0);
                mark(dst.0);
            }
            Step::Clear(at, _) => {
                counters.clears += 1;
                mark(at.0);
            }
            Step::Write(at, _) => mark(at.0),
            Step::Dispatch { bindings, .. } => {
                counters.dispatches += 1;
                bindings.iter().for_each(|binding| mark(binding.buffer));
            }
        }
    }

    /// The result of a call during which the device may have been lost.
    pub(super) fn still_here(&self) -> DriverResult<()> {
        match &self.lost {
            Some(reason) => Err(DriverError::Lost(reason.clone())),
            None => Ok(()),
        }
    }
}
