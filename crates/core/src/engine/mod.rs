//! Commands as values, and the one execution pass that places and runs them.
//!
//! An operation appends a [`Launch`] (or an upload, a clear, a read) and returns: nothing is
//! placed, encoded or bound. At a flush one execution pass takes the queue in order; it places what
//! each command needs, encodes it, and drops it, which frees what it was the last to hold, so the
//! next command may have the room. See `execute` for the step, `needs` for what it waits for,
//! `state` for what the lock guards.
//!
//! Locks, in order: the execution lock (asynchronous, held across a whole execution pass), then the
//! state or the staging, never both. Nothing is awaited, compiled, mapped or called back under the
//! state's lock.

mod ahead;
mod block;
mod caches;
mod cmd;
mod compact;
mod cost;
pub(crate) mod diagnose;
mod direct;
mod evict;
mod execute;
mod execution_lock;
pub(crate) mod fused;
pub(crate) mod kernel;
mod limits;
mod needs;
mod picked;
mod pressure;
mod read;
mod reclaim;
mod recovery;
mod reference;
mod rematerialize;
mod repack;
mod report;
mod restore;
pub mod sections;
mod share;
mod state;
mod tiers;
mod times;
#[cfg(any(test, feature = "sim"))]
mod touch;
mod trial;
mod upload;
pub mod wgsl;

use std::collections::VecDeque;
use std::panic::Location;
#[cfg(feature = "tracing")]
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use rustc_hash::FxHashMap;

use crate::driver::{Account, Caps, Device, Driver};
use crate::error::{Error, Result};
use crate::memory::{DeadList, HostAccount, Memory, Storage, TenantId};
use crate::transfer::{Readbacks, SpillOptions, SpillStore, Uploads};
use crate::tuning::Tuning;
use caches::{BindGroups, Pipelines};
use cost::Costs;
use diagnose::Diagnose;
use execution_lock::ExecutionLock;
use limits::Limits;
use pressure::Outside;
use rematerialize::Rematerializations;
use state::{Batch, Counters, LeftBehind, State};

pub(crate) use crate::transfer::refusal;
pub use block::block_on;
pub use cmd::Cmd;
pub use diagnose::Look;
pub use diagnose::{Diagnostics, Finding, Findings, Leak};
pub(crate) use diagnose::{UNWRITTEN, Wanted};
pub(crate) use kernel::{Arg, Kernel, Launch, Operand, Variant};
pub use pressure::{Pressure, PressureGuard};
pub(crate) use report::{EngineReport, Tally};
pub(crate) use share::Pinned;
pub use times::KernelTime;

/// Commands in the queue at which the caller executes the queue, if nobody else does: the device
/// has work early.
const FLUSH_AT_COMMANDS: usize = 256;

/// So many more commands in the queue, and the caller executes the queue if the device has nothing
/// to do.
const EARLY_COMMANDS: usize = 32;

/// Commands in the queue at which the caller waits for whoever executes the queue.
const QUEUE_LIMIT: usize = 16 * FLUSH_AT_COMMANDS;

/// One device's queue of commands, and everything that it takes to run them.
#[derive(Debug)]
pub struct Engine {
    /// The engine itself, for rematerializers.
    me: Weak<Engine>,
    driver: Device,
    uploads: Uploads,
    /// Staging of the execution pass's own, for storages that come back.
    restore_staging: Uploads,
    readbacks: Arc<Readbacks>,
    dead: Arc<DeadList>,
    /// The host's memory for storages that were evicted.
    host: Arc<HostAccount>,
    /// The disk for those that find no room there either.
    spill: SpillStore,
    limits: Mutex<Limits>,
    outside: Outside,
    /// What trials found, where they are made.
    tuning: Option<Tuning>,
    /// What is looked for, where something is.
    wanted: Option<Diagnostics>,
    findings: Findings,
    execution_lock: Arc<ExecutionLock>,
    /// Where bytes rest that come from the disk or a source, on their way to staging.
    scratch: Mutex<Vec<u8>>,
    state: Mutex<State>,
    #[cfg(feature = "tracing")]
    lost_is_told: AtomicBool,
}

/// What an engine is told when it is made, and keeps to.
#[derive(Default)]
pub(crate) struct Setup {
    pub(crate) spill: SpillOptions,
    /// Blocks stay where they are.
    pub(crate) never_move: bool,
    /// Variants of kernels are tried.
    pub(crate) tuning: Option<Tuning>,
    /// Bugs are looked for.
    pub(crate) diagnose: Option<Wanted>,
}

impl Engine {
    /// An engine over a driver.
    pub(crate) fn new(driver: Arc<dyn Driver>, setup: Setup) -> Result<Arc<Self>> {
        let spill = SpillStore::new(setup.spill)?;
        let driver = Device::new(driver);
        let dead = DeadList::new();
        let readbacks = Arc::new(Readbacks::new(driver.clone()));
        let mut memory = Memory::new(driver.caps(), setup.never_move, dead.clone())?;
        let wanted = setup
            .diagnose
            .as_ref()
            .map(|wanted| match driver.has_contents() {
                true => wanted.diagnostics,
                // Where buffers hold nothing there is nothing to see.
                false => wanted.diagnostics.without_looks(),
            });
        let findings = setup
            .diagnose
            .as_ref()
            .map(|wanted| wanted.findings.clone());
        let looked_for = setup.diagnose.filter(|_| driver.has_contents());
        if let Some(wanted) = &looked_for {
            let wanted = wanted.diagnostics;
            memory.watch_blocks(wanted.canaries, wanted.poison);
        }
        let state = State {
            diagnose: looked_for.and_then(Diagnose::new),
            times: None,
            #[cfg(not(target_arch = "wasm32"))]
            opened: std::time::Instant::now(),
            driver: driver.clone(),
            readbacks: readbacks.clone(),
            queue: VecDeque::new(),
            left: LeftBehind::default(),
            picking: None,
            placed: Vec::new(),
            cleaning: Vec::new(),
            costs: Costs::default(),
            is_draining: false,
            memory,
            pipelines: Pipelines::default(),
            groups: BindGroups::new(driver.clone()),
            batch: Batch::default(),
            most_batch_ops: execute::MAX_BATCH_OPS,
            next_batch_ops: execute::MAX_BATCH_OPS,
            early_commands: EARLY_COMMANDS,
            counters: Counters::default(),
            peak_pending_bytes: 0,
            last_submission: None,
            staging_epoch: 0,
            staging_lost: None,
            rematerializers: FxHashMap::default(),
            next_rematerializer: 0,
            dropped_rematerializers: Vec::new(),
            rematerializations: Rematerializations::default(),
            recorded: VecDeque::new(),
            fuse: None,
            fused: Vec::new(),
            planned: 0,
            may_wait: false,
        };
        Ok(Arc::new_cyclic(|me| Engine {
            me: me.clone(),
            uploads: Uploads::new(driver.clone(), Account::Uploads),
            restore_staging: Uploads::new(driver.clone(), Account::Restores),
            host: HostAccount::new(),
            spill,
            limits: Mutex::new(Limits::default()),
            outside: Outside::new(),
            tuning: setup.tuning,
            wanted,
            findings: findings.unwrap_or_default(),
            readbacks,
            driver,
            dead,
            execution_lock: Arc::default(),
            scratch: Mutex::default(),
            state: Mutex::new(state),
            #[cfg(feature = "tracing")]
            lost_is_told: AtomicBool::new(false),
        }))
    }

    /// From now on every command is submitted alone, and all that can be moved is moved after it.
    #[cfg(any(test, feature = "sim"))]
    pub(crate) fn compact_always(&self) {
        self.lock().most_batch_ops = 1;
    }

    /// What the device can do.
    pub fn caps(&self) -> &Caps {
        self.driver.caps()
    }

    /// The driver.
    pub(crate) fn driver(&self) -> &Device {
        &self.driver
    }

    /// What goes wrong with files, on a simulated device.
    #[cfg(any(test, feature = "sim"))]
    pub fn file_faults(&self) -> crate::driver::sim::FileFaults {
        self.spill.faults()
    }

    /// A storage of at least `bytes` (padded to 16), without a place yet, tagged with the caller.
    #[inline]
    #[track_caller]
    pub fn storage(&self, bytes: u64) -> Result<Arc<Storage>> {
        let limit_bytes = self.caps().max_buffer_bytes & !15;
        if bytes > limit_bytes {
            return Err(Error::NeverFits {
                what: "a buffer",
                requested_bytes: bytes,
                limit_bytes,
                hint: "Split it into several",
            });
        }
        let site = Location::caller();
        let dead = self.dead.clone();
        Ok(Storage::new(bytes, TenantId::MAIN, site, dead))
    }

    /// A storage was given a name: if it has a block already, that is another holder's now.
    pub fn renamed(&self, storage: &Storage) {
        if storage.slot().is_some() {
            self.lock().memory.renamed(storage);
        }
    }

    /// Is a storage one of this engine's?
    pub fn owns(&self, storage: &Storage) -> bool {
        storage.belongs_to(&self.dead)
    }

    /// Where a custom kernel says that it is gone.
    pub fn dead_list(&self) -> &Arc<DeadList> {
        &self.dead
    }

    /// Appends a kernel.
    ///
    /// # Errors
    /// `Foreign` for a storage of another engine, `NeverFits` when the operands need more bindings
    /// than a dispatch has, `Driver` for more workgroups than one takes, `DeviceLost`.
    pub fn launch(self: &Arc<Self>, launch: Launch) -> Result<()> {
        self.check_launch(&launch)?;
        let mut state = self.to_append()?;
        // With the lock: whoever sees the new version appends its reads after this.
        launch.bump_versions();
        self.end_of(&mut state).push_back(Cmd::Launch(launch));
        self.appended(state);
        Ok(())
    }

    /// Appends a clear of the whole storage to zero.
    pub fn clear(self: &Arc<Self>, storage: &Arc<Storage>) -> Result<()> {
        // Spelled out, a short command is not moved as if it were a long one.
        let mut state = self.to_append()?;
        self.end_of(&mut state)
            .push_back(Cmd::Clear(storage.clone()));
        self.appended(state);
        Ok(())
    }

    /// Runs all that was appended. Returns once it is submitted, not once it is done. Commands
    /// that find no room stay queued: their error is for those who want their results.
    pub(crate) async fn flush(self: &Arc<Self>) -> Result<()> {
        self.check_lost()?;
        let pass = async {
            let execution_lock = self.lock_execution().await?;
            self.with_execution_lock(execution_lock, move |engine| async move {
                engine.execute().await
            })
            .await
        };
        in_span!("flush", {}, pass).await
    }

    /// Runs what `storage` needs; the error is the storage's own.
    pub async fn force(self: &Arc<Self>, storage: &Arc<Storage>) -> Result<()> {
        self.check_lost()?;
        let execution_lock = self.lock_execution().await?;
        let storage = storage.clone();
        let work = move |engine: Arc<Self>| async move {
            engine.execute().await?;
            // The next execution pass, of whichever thread, will forget what this one has left
            // behind.
            engine.error_of(&storage)
        };
        self.with_execution_lock(execution_lock, work).await
    }

    /// Waits until the device has done everything that was appended.
    pub async fn finish(self: &Arc<Self>) -> Result<()> {
        self.flush().await?;
        self.wait_idle().await
    }

    /// Why a storage has no value (yet), if that is so after an execution pass.
    pub(crate) fn error_of(&self, storage: &Arc<Storage>) -> Result<()> {
        self.check_lost()?;
        let state = self.lock();
        if let Some(cause) = state.memory.poison_of(storage) {
            let made_at = storage.tag().to_string();
            return Err(Error::Poisoned { made_at, cause });
        }
        if let Some(cause) = state.rematerializations.failure(storage) {
            return Err((*cause).clone());
        }
        state.left.reason(storage).map_or(Ok(()), Err)
    }

    /// Is the device still there?
    pub(crate) fn check_lost(&self) -> Result<()> {
        match self.driver.lost() {
            None => Ok(()),
            Some(reason) => {
                #[cfg(feature = "tracing")]
                self.tell_lost(&reason);
                Err(Error::DeviceLost { reason })
            }
        }
    }

    /// Once for each loss.
    #[cfg(feature = "tracing")]
    #[cold]
    fn tell_lost(&self, reason: &str) {
        if !self.lost_is_told.swap(true, Ordering::Relaxed) {
            tell!(ERROR, "the device is lost", { reason = reason });
        }
    }

    /// Appends commands, with nobody's between them.
    fn push(self: &Arc<Self>, cmds: impl IntoIterator<Item = Cmd>) -> Result<()> {
        self.push_with(|_| cmds)
    }

    /// Appends commands that depend on the state of then.
    fn push_with<C: IntoIterator<Item = Cmd>>(
        self: &Arc<Self>,
        make: impl FnOnce(&State) -> C,
    ) -> Result<()> {
        let mut state = self.to_append()?;
        let cmds = make(&state);
        self.end_of(&mut state).extend(cmds);
        self.appended(state);
        Ok(())
    }

    fn push_one(self: &Arc<Self>, cmd: Cmd) -> Result<()> {
        let mut state = self.to_append()?;
        self.end_of(&mut state).push_back(cmd);
        self.appended(state);
        Ok(())
    }

    /// The state, for commands to be appended.
    fn to_append(&self) -> Result<MutexGuard<'_, State>> {
        self.check_lost()?;
        Ok(self.lock())
    }

    /// Where this thread's commands go.
    fn end_of<'a>(&self, state: &'a mut State) -> &'a mut VecDeque<Cmd> {
        match self.is_recording() {
            true => &mut state.recorded,
            false => &mut state.queue,
        }
    }

    /// Commands were appended: lets them run if it is time.
    fn appended(self: &Arc<Self>, mut state: MutexGuard<'_, State>) {
        state.notice_pending();
        if self.is_recording() || !state.is_time_to_run() {
            return;
        }
        let waiting = state.queue.len();
        drop(state);
        self.run_appended(waiting);
    }

    /// So many commands wait, and it is time that they run.
    #[cold]
    fn run_appended(self: &Arc<Self>, waiting: usize) {
        if waiting >= QUEUE_LIMIT {
            // Whatever goes wrong here belongs to the tensors concerned.
            let _ = block_on("a full queue", self.flush());
            return;
        }
        self.run_if_nobody_does();
        let mut state = self.lock();
        state.early_commands = state.queue.len() + EARLY_COMMANDS;
    }

    /// Lets what was appended run, unless somebody does anyway.
    fn run_if_nobody_does(&self) {
        if let Some(_execution_lock) = self.execution_lock.try_lock() {
            let _ = block_on("an automatic flush", self.execute_early());
        }
    }

    /// Has the device done everything that was appended so far?
    fn is_idle(&self) -> bool {
        let state = self.lock();
        state.queue.is_empty() && state.is_device_idle()
    }

    /// How many bindings of storages a dispatch has, at most.
    pub fn most_windows(&self) -> u64 {
        // One fewer than the limit: some drivers miscount. A layout counts up to 255.
        let most = self.caps().max_storage_bindings.saturating_sub(1);
        u64::from(most.min(u8::MAX.into()))
    }

    fn check_launch(&self, launch: &Launch) -> Result<()> {
        let caps = self.caps();
        let mut are_single = true;
        for (index, arg) in launch.args.iter().enumerate() {
            if !self.owns(&arg.storage) {
                return Err(Error::Foreign {
                    operation: "a kernel",
                });
            }
            are_single &= launch.shown_bytes(index) <= caps.max_binding_bytes;
        }
        let most = self.most_windows();
        // As nearly always: one window an operand.
        let is_small = are_single && launch.args.len() as u64 <= most;
        if !is_small && launch.windows(caps.max_binding_bytes) > most {
            // Each window counts whole: what it leaves unused is no use to another operand.
            return Err(Error::NeverFits {
                what: "what the bindings of one kernel show",
                requested_bytes: launch.windows(caps.max_binding_bytes) * caps.max_binding_bytes,
                limit_bytes: most * caps.max_binding_bytes,
                hint: "Work on slices of them",
            });
        }
        if launch.groups.iter().any(|&groups| groups > caps.max_groups) {
            return Err(Error::Driver {
                what: "a dispatch",
                message: format!(
                    "{:?} workgroups, at most {}",
                    launch.groups, caps.max_groups
                ),
            });
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
