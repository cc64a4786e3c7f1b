//! What the engine's lock guards: the queue, the memory, the caches, and the batch being encoded.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};
#[cfg(not(target_arch = "wasm32"))]
use std::time::Instant;

use rustc_hash::FxHashMap;

use super::ahead::Cleaning;
use super::caches::{BindGroups, Pipelines};
use super::cmd::Cmd;
use super::cost::Costs;
use super::diagnose::Diagnose;
use super::fused::{Fuse, Fused};
use super::kernel::{Custom, Role};
use super::rematerialize::{Rematerializations, Rematerializer};
use super::times::{Entry, Times};
use super::{EARLY_COMMANDS, FLUSH_AT_COMMANDS};
use crate::driver::{BufferId, Device, Op, Submission};
use crate::error::Error;
use crate::memory::{Event, Memory, Moved, Residency, Storage};
use crate::shortage::ReclaimCounts;
use crate::transfer::{Piece, Readbacks, Reading, Region};

pub(super) struct State {
    /// When the engine was made.
    #[cfg(not(target_arch = "wasm32"))]
    pub(super) opened: Instant,
    pub(super) driver: Device,
    pub(super) readbacks: Arc<Readbacks>,
    /// Commands in program order.
    pub(super) queue: VecDeque<Cmd>,
    /// Makes few commands of many, if that is wanted.
    pub(super) fuse: Option<Fuse>,
    /// The fused kernels that have a pipeline.
    pub(super) fused: Vec<Weak<Fused>>,
    /// So many commands at the head of the queue have gone through that.
    pub(super) planned: usize,
    /// The execution pass under way may leave commands at the end of the queue that others may yet
    /// join.
    pub(super) may_wait: bool,
    /// Commands that could not run in the execution pass under way, in program order.
    pub(super) left: LeftBehind,
    /// The rows that the command at the head of the queue picks of a table that is not on the
    /// device.
    pub(super) picking: Option<super::picked::Picking>,
    /// What was given a place for the command at the head of the queue, which still needs more.
    pub(super) placed: Vec<Weak<Storage>>,
    /// Copies on their way of what will have to leave before long.
    pub(super) cleaning: Vec<Cleaning>,
    /// What it costs to have back what is evicted.
    pub(super) costs: Costs,
    /// Slabs get down to a lowered limit: the command at the head of the queue spares nobody.
    pub(super) is_draining: bool,
    /// Looks for bugs, if that is wanted.
    pub(super) diagnose: Option<Box<Diagnose>>,
    /// What kernels take, if they are timed.
    pub(super) times: Option<Box<Times>>,
    pub(super) memory: Memory,
    pub(super) pipelines: Pipelines,
    pub(super) groups: BindGroups,
    pub(super) batch: Batch,
    /// Ops of one submission, at most.
    pub(super) most_batch_ops: usize,
    /// Ops of the next submission, while the device waits for work: few at first, then more.
    pub(super) next_batch_ops: usize,
    /// Commands in the queue at which the device is given some if it has none.
    pub(super) early_commands: usize,
    pub(super) counters: Counters,
    /// The most bytes that had no place when something was appended.
    pub(super) peak_pending_bytes: u64,
    pub(super) last_submission: Option<Submission>,
    /// How to make storages anew that were given up, by number.
    pub(super) rematerializers: FxHashMap<u64, Rematerializer>,
    pub(super) next_rematerializer: u64,
    /// Uploads that were staged in an earlier epoch were lost, for this reason.
    pub(super) staging_epoch: u64,
    pub(super) staging_lost: Option<Arc<Error>>,
    /// Rematerializers that nobody needs any more. They hold what is the app's: to be dropped
    /// without the lock.
    pub(super) dropped_rematerializers: Vec<Rematerializer>,
    pub(super) rematerializations: Rematerializations,
    /// What a rematerializer appends while it runs.
    pub(super) recorded: VecDeque<Cmd>,
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State").finish_non_exhaustive()
    }
}

impl State {
    /// Work was submitted, with these dispatches.
    pub(super) fn submitted(&mut self, serial: u64, dispatches: &[Entry]) {
        self.counters.submissions += 1;
        let commands = self.counters.commands;
        self.memory.happened(Event::Submission { serial, commands });
        self.tell_time();
        if self.times.is_some() {
            self.kernels_ran(dispatches);
        }
    }

    /// The kernels of the last submission, which are timed: it has been waited for.
    #[cold]
    fn kernels_ran(&mut self, dispatches: &[Entry]) {
        let now_ns = self.now_ns();
        let Some(times) = &mut self.times else { return };
        for (run, &entry) in self.driver.take_kernel_runs().iter().zip(dispatches) {
            let Some(kernel) = times.ran(entry, run.ns) else {
                continue;
            };
            if self.memory.keeps_history() {
                let [begin_ns, end_ns] = [run.began_before_ns, run.ended_before_ns]
                    .map(|before_ns| now_ns.saturating_sub(before_ns));
                self.memory.kernel_ran(kernel, begin_ns, end_ns);
            }
        }
    }

    /// Times kernels from now on, or no longer. What the batch holds already is nobody's.
    pub(super) fn time_kernels(&mut self, on: bool) {
        if on && self.times.is_some() {
            return;
        }
        self.batch.timed.clear();
        self.times = on.then(|| Box::new(Times::new()));
        if let Some(times) = &self.times {
            let is_dispatch = |op: &&Op| matches!(op, Op::Dispatch { .. });
            let before = self.batch.ops.iter().filter(is_dispatch).count();
            self.batch.timed.resize(before, times.others());
        }
    }

    /// What happens from now on happens at this time. The clock is not read where nobody wants to
    /// know.
    pub(super) fn tell_time(&mut self) {
        if self.memory.keeps_history() {
            self.memory.set_time(self.now_ns());
        }
    }

    /// Nanoseconds since the device was opened; 0 in a browser.
    pub(super) fn now_ns(&self) -> u64 {
        #[cfg(not(target_arch = "wasm32"))]
        return u64::try_from(self.opened.elapsed().as_nanos()).unwrap_or(u64::MAX);
        #[cfg(target_arch = "wasm32")]
        return 0;
    }

    /// Is all done that was submitted, as far as that was noticed?
    pub(super) fn is_device_idle(&self) -> bool {
        let last = self.last_submission.as_ref();
        last.is_none_or(|last| last.serial <= self.driver.completed())
    }

    /// Is it time to let the queue run? There are many commands, or the device has had nothing to
    /// do while some were recorded.
    pub(super) fn is_time_to_run(&mut self) -> bool {
        let waiting = self.queue.len();
        if waiting < self.early_commands.min(FLUSH_AT_COMMANDS) {
            return false;
        }
        if waiting >= FLUSH_AT_COMMANDS {
            return true;
        }
        self.early_commands = waiting + EARLY_COMMANDS;
        self.driver.caps().begins_early() && self.is_device_idle()
    }

    /// Uploads whose staged bytes wait behind a command that found no room.
    pub(super) fn uploads_left_behind(&self) -> u64 {
        let left = self.left.cmds.iter();
        left.filter(|(cmd, _)| matches!(cmd, Cmd::Upload { .. }))
            .count() as u64
    }
}

/// How often things happened since the engine was opened.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counters {
    pub(super) commands: u64,
    /// Those of them that no rematerializer recorded: what rematerializers do may be undone, and
    /// done again.
    pub(super) commands_of_app: u64,
    /// Of the bytes that were moved, those that came to nothing, and those that were moved back.
    pub(super) undone_bytes: u64,
    pub(super) submissions: u64,
    pub(super) slabs_created: u64,
    pub(super) donated: u64,
    pub(super) refusals: u64,
    pub(super) staging_waits: u64,
    /// Submissions that the driver refused.
    pub(super) refused_submissions: u64,
    /// Plans carried out that moved blocks.
    pub(super) compactions: u64,
    /// Bytes written out to the host or to disk.
    pub(super) evicted_bytes: u64,
    /// Bytes given up because they were elsewhere too.
    pub(super) dropped_bytes: u64,
    /// Bytes restored.
    pub(super) restored_bytes: u64,
    /// What came of each reclaim step.
    pub(super) reclaim_counts: ReclaimCounts,
}

/// Encoded commands on their way to one submission.
#[derive(Debug, Default)]
pub(super) struct Batch {
    pub(super) ops: Vec<Op>,
    pub(super) params: Vec<u8>,
    /// Staged bytes that the ops copy from.
    pub(super) regions: Vec<Region>,
    /// Reads whose copies are among the ops, with their buffers.
    pub(super) reads: Vec<(Arc<Reading>, Piece, (BufferId, u64))>,
    /// Of each dispatch among the ops, where its time counts; empty where nobody wants to know.
    pub(super) timed: Vec<Entry>,
    /// Storages that the ops bring back.
    pub(super) arrived: Vec<Weak<Storage>>,
    /// Blocks that the ops move.
    pub(super) moved: Vec<Moved>,
    /// Nothing else may join: what it does is not ours to vouch for.
    pub(super) is_closed: bool,
    /// About how much the dispatches are to do, as [`Caps::most_work`](crate::driver::Caps) counts
    /// it.
    pub(super) work: u64,
    /// The custom kernel in it, whose pipeline stays until it is submitted.
    pub(super) custom: Option<Arc<Custom>>,
}

impl Batch {
    pub(super) fn is_empty(&self) -> bool {
        self.ops.is_empty()
    }

    /// Does it keep the device busy with more than copies?
    pub(super) fn computes(&self) -> bool {
        let mut ops = self.ops.iter();
        ops.any(|op| matches!(op, Op::Dispatch { .. }))
    }

    /// Empties it, keeping its allocations.
    pub(super) fn clear(&mut self) {
        self.ops.clear();
        self.params.clear();
        self.regions.clear();
        self.reads.clear();
        self.timed.clear();
        self.arrived.clear();
        self.moved.clear();
        self.is_closed = false;
        self.work = 0;
        self.custom = None;
    }
}

/// Commands that wait for room, and those that must not overtake them.
///
/// A command that finds no room stays behind, and with it every later one that reads what it
/// writes, or writes what it reads or writes, or what a rematerializer would compute that from; all
/// others go on. So one thread's shortage is not another's error, and order holds wherever it can
/// be observed.
#[derive(Debug, Default)]
pub(super) struct LeftBehind {
    pub(super) cmds: Vec<(Cmd, Error)>,
    /// By address of the storage; the commands above, and what is below, keep the storages alive.
    touched: FxHashMap<usize, Touched>,
    /// What rematerializers would compute the commands' operands from.
    sources: Vec<Arc<Storage>>,
}

#[derive(Debug)]
struct Touched {
    written: bool,
    error: Error,
}

impl LeftBehind {
    /// Leaves a command behind.
    pub(super) fn push(&mut self, cmd: Cmd, error: Error, memory: &Memory) {
        let touched = &mut self.touched;
        let mut touch = |storage: &Arc<Storage>, role| {
            let touched = touched.entry(address(storage)).or_insert(Touched {
                written: false,
                error: error.clone(),
            });
            touched.written |= role != Role::Read;
        };
        cmd.each_operand(|storage, role| {
            touch(storage, role);
            if role != Role::Write {
                let sources = memory.sources_of(storage);
                sources.iter().for_each(|source| touch(source, Role::Read));
                self.sources.extend(sources);
            }
        });
        self.cmds.push((cmd, error));
    }

    /// Why this command must wait behind one that was left, if it must.
    pub(super) fn holds_up(&self, cmd: &Cmd) -> Option<Error> {
        if self.cmds.is_empty() {
            return None;
        }
        let mut reason = None;
        // To have a value again changes nothing for those who only read it.
        let changes = !matches!(cmd, Cmd::TakeOver { .. });
        cmd.each_operand(|storage, role| {
            let touched = self.touched.get(&address(storage));
            let hindered =
                touched.filter(|touched| touched.written || changes && role != Role::Read);
            if let Some(touched) = hindered {
                reason = Some(touched.error.clone());
            }
        });
        reason
    }

    /// Why a storage does not have its value yet.
    pub(super) fn reason(&self, storage: &Arc<Storage>) -> Option<Error> {
        let touched = self.touched.get(&address(storage))?;
        touched.written.then(|| touched.error.clone())
    }

    /// Why a reading was left behind, if it was.
    pub(super) fn reason_of_reading(&self, wanted: &Arc<Reading>) -> Option<Error> {
        let mut cmds = self.cmds.iter();
        cmds.find_map(|(cmd, error)| match cmd {
            Cmd::Read { reading, .. } if Arc::ptr_eq(reading, wanted) => Some(error.clone()),
            _ => None,
        })
    }

    /// The error of the first command that was left.
    pub(super) fn first_error(&self) -> Option<Error> {
        self.cmds.first().map(|(_, error)| error.clone())
    }

    /// Takes out all commands, the last first, and hands those on which are to be tried again. The
    /// others write what nobody asks for any more: no tensor, and no command behind them.
    pub(super) fn take_wanted(&mut self, mut receive: impl FnMut(Cmd, Error)) {
        self.touched.clear();
        self.sources.clear();
        // How often each storage is held by the commands that are still to be looked at.
        let mut held: FxHashMap<usize, usize> = FxHashMap::default();
        for (cmd, _) in &self.cmds {
            cmd.each_operand(|storage, _| *held.entry(address(storage)).or_default() += 1);
        }
        for (cmd, error) in std::mem::take(&mut self.cmds).into_iter().rev() {
            let mut wanted = match &cmd {
                Cmd::Read { reading, .. } => !reading.is_cancelled(),
                _ => false,
            };
            cmd.each_operand(|storage, role| {
                let held = held.get(&address(storage)).copied().unwrap_or(0);
                // What is written to the app's own buffer, the app may look at without us.
                let seen = storage.residency() == Residency::Imported;
                wanted |= role != Role::Read && (seen || Arc::strong_count(storage) > held);
            });
            cmd.each_operand(|storage, _| {
                if let Some(held) = held.get_mut(&address(storage)) {
                    *held -= 1;
                }
            });
            if wanted {
                receive(cmd, error);
            }
        }
    }
}

pub(super) fn address(storage: &Arc<Storage>) -> usize {
    Arc::as_ptr(storage) as usize
}
