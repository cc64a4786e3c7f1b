//! The engine: one device, its memory, and the state that the lock guards.

use std::panic::{AssertUnwindSafe, Location, catch_unwind};
#[cfg(feature = "tracing")]
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::cost::Stopwatch;
use super::diagnose::{Diagnose, Diagnostics, Findings, Wanted};
use super::execution_lock::ExecutionLock;
use super::inside::{Inside, Recording};
use super::limits::Limits;
use super::outside::Outside;
use super::state::State;
use crate::driver::{Account, Caps, Device, Driver};
use crate::error::{Error, Result};
use crate::memory::{DeadList, HostAccount, Memory, Storage, TenantId};
use crate::transfer::{Readbacks, SpillOptions, SpillStore, Uploads};
use crate::tuning::Tuning;

/// One device's queue of commands, and everything that it takes to run them.
#[derive(Debug)]
pub struct Engine {
    pub(super) driver: Device,
    pub(super) uploads: Uploads,
    /// Staging of the execution pass's own, for storages that come back.
    pub(super) restore_staging: Uploads,
    pub(super) readbacks: Arc<Readbacks>,
    dead: Arc<DeadList>,
    /// The host's memory for storages that were evicted.
    pub(super) host: Arc<HostAccount>,
    /// The disk for those that find no room there either.
    pub(super) spill: SpillStore,
    pub(super) limits: Mutex<Limits>,
    pub(super) outside: Outside,
    /// What trials found, where they are made.
    tuning: Option<Tuning>,
    /// What is looked for, where something is.
    pub(super) wanted: Option<Diagnostics>,
    findings: Findings,
    pub(super) execution_lock: Arc<ExecutionLock>,
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
        let diagnose = looked_for.and_then(Diagnose::new);
        let state = State::new(driver.clone(), readbacks.clone(), memory, diagnose);
        Ok(Arc::new(Engine {
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

    /// What trials found, where they are made.
    pub fn tuning(&self) -> Option<&Tuning> {
        self.tuning.as_ref()
    }

    /// What is looked for, where something is.
    pub(crate) fn diagnostics(&self) -> Option<Diagnostics> {
        self.wanted
    }

    /// What was found.
    pub(crate) fn findings(&self) -> &Findings {
        &self.findings
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

    /// Is a storage one of this engine's?
    pub fn owns(&self, storage: &Storage) -> bool {
        storage.belongs_to(&self.dead)
    }

    /// Where a custom kernel says that it is gone.
    pub fn dead_list(&self) -> &Arc<DeadList> {
        &self.dead
    }

    /// The parts that the lock guards. Nothing is awaited, compiled, mapped or called back with it.
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Before any lock of the ledger or of what was heard from the operating system.
    pub(super) fn lock_limits(&self) -> MutexGuard<'_, Limits> {
        self.limits.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is gone by besides the ledger's limit.
    pub(super) fn limits(&self) -> Limits {
        *self.lock_limits()
    }

    pub(super) fn lock_scratch(&self) -> MutexGuard<'_, Vec<u8>> {
        self.scratch.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A stopwatch; one that stands still where times must not matter, or there is no clock.
    pub(super) fn stopwatch(&self) -> Stopwatch {
        Stopwatch::new(self.caps().backend != "sim")
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

    /// There is another device: its loss would be a new one.
    pub(super) fn is_found(&self) {
        #[cfg(feature = "tracing")]
        self.lost_is_told.store(false, Ordering::Relaxed);
    }

    /// Why a storage has no value (yet), if that is so after an execution pass.
    pub(crate) fn error_of(&self, storage: &Arc<Storage>) -> Result<()> {
        self.check_lost()?;
        let state = self.lock();
        if let Some(cause) = state.memory.poison_of(storage) {
            let made_at = storage.tag().to_string();
            return Err(Error::Poisoned { made_at, cause });
        }
        if let Some(cause) = state.rematerializers.failure(storage) {
            return Err((*cause).clone());
        }
        state.left.reason(storage).map_or(Ok(()), Err)
    }

    /// Which engine it is, for what a thread remembers.
    fn address(&self) -> usize {
        std::ptr::from_ref(self) as usize
    }

    /// The thread calls a function of the app until this is dropped: what waits for the execution
    /// lock meanwhile would wait for ever, and is refused.
    pub(super) fn inside(&self) -> Inside {
        Inside::enter(self.address())
    }

    /// Is this thread inside a function of the app that is called while others wait for it?
    pub(super) fn is_inside(&self) -> bool {
        Inside::is_of(self.address())
    }

    /// The thread runs a rematerializer until this is dropped.
    pub(super) fn recording(&self) -> Recording {
        Recording::begin(self.address())
    }

    /// Does this thread run a rematerializer of this engine?
    pub(super) fn is_recording(&self) -> bool {
        Recording::is_of(self.address())
    }

    /// Calls a function of the app's that waits for nothing of the device.
    #[cfg(not(target_arch = "wasm32"))]
    pub fn call_theirs<T>(&self, call: impl FnOnce() -> T) -> T {
        let _inside = self.inside();
        call()
    }

    /// Drops what may hold a function of the app, and whatever that holds: its `Drop` is the app's
    /// code as well. No lock of ours is held but, at most, the execution lock.
    pub(super) fn drop_theirs<T>(&self, theirs: T) {
        let _inside = self.inside();
        let _ = catch_unwind(AssertUnwindSafe(|| drop(theirs)));
    }

    /// Drops copies that are out of date, which may take the file system a while.
    pub(super) fn drop_gone(&self) {
        let gone = self.lock().memory.take_gone();
        gone.into_iter().for_each(|copies| self.drop_theirs(copies));
    }

    /// Frees what nobody holds any more, also what was held by rematerializers that nobody needs.
    pub(super) fn free_all_dead(&self) {
        loop {
            let (rematerializers, copies, _cleanings) = {
                let mut state = self.lock();
                state.free_dead();
                let rematerializers = state.rematerializers.take_dropped();
                let cleanings = state.cleanings.take_dead();
                let cleaned_bytes: u64 = cleanings.iter().map(|one| one.len_bytes).sum();
                state.counters.evicted_bytes += cleaned_bytes;
                (rematerializers, state.memory.take_gone(), cleanings)
            };
            if rematerializers.is_empty() && copies.is_empty() {
                break;
            }
            rematerializers
                .into_iter()
                .for_each(|rematerializer| self.drop_theirs(rematerializer));
            copies
                .into_iter()
                .for_each(|copies| self.drop_theirs(copies));
        }
    }
}
