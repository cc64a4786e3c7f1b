//! The engine: a device, its memory, and the state that a lock guards.
//!
//! Each share of the device has its own [`Engine`], over the same [`EngineCore`]. Buffers and
//! handles hold the engine of their share, so whatever they make is in that share, too.

use std::ops::Deref;
use std::panic::{AssertUnwindSafe, catch_unwind};
#[cfg(feature = "tracing")]
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::{Mutex, MutexGuard};

use super::diagnose::{Diagnose, Diagnostics, Findings};
use super::inside::{Inside, Recording};
use super::outside::Outside;
use super::pass::execution_lock::{ExecutionLock, Waiters};
use super::state::State;
use super::state::cleaning::Cleaning;
use super::state::cost::Stopwatch;
use super::watermarks::WatermarkListeners;
use crate::driver::{Account, BoxFuture, Caps, Device, Driver};
use crate::error::{Error, Result};
use crate::memory::{Budget, DeadList, HostAccount, Memory, ShareHandle, ShareId, Storage};
use crate::transfer::{OpenStore, Readbacks, SpillOptions, SpillStore, Uploads, refusal};

/// The engine of a device, for one share of it.
pub struct Engine {
    core: Arc<EngineCore>,
    /// `None` for the work of a pass, which the lock keeps.
    execution_lock: Option<Arc<ExecutionLock>>,
    /// `None`: what it makes is in no share.
    share: Option<Arc<ShareHandle>>,
}

/// The queue of commands of one device, and all that the engine needs to run them.
pub struct EngineCore {
    pub(super) driver: Device,
    pub(super) uploads: Uploads,
    /// The staging of restores, which only execution passes use.
    pub(super) restore_staging: Uploads,
    pub(super) readbacks: Arc<Readbacks>,
    dead: Arc<DeadList>,
    /// The account of the host's memory for evicted storages.
    pub(super) host: Arc<HostAccount>,
    /// The stores of the app, the first to be used first.
    pub(super) stores: Vec<OpenStore>,
    /// The spill file for storages that find no room on the host.
    pub(super) spill: SpillStore,
    /// What the app has set.
    budget: Mutex<Budget>,
    pub(super) outside: Outside,
    pub(super) watermarks: WatermarkListeners,
    is_dry: bool,
    wanted: Option<Diagnostics>,
    findings: Findings,
    /// Those who wait for the execution lock.
    pub(super) waiters: Arc<Waiters>,
    /// A buffer for bytes from the disk or a source, on their way to staging.
    scratch: Mutex<Vec<u8>>,
    state: Mutex<State>,
    #[cfg(feature = "tracing")]
    pub(super) is_loss_logged: AtomicBool,
}

debug_by_name!(Engine, EngineCore);

/// An engine that may be gone. The share stays as long as this exists.
#[derive(Clone, Debug)]
pub(crate) struct WeakEngine {
    core: Weak<EngineCore>,
    execution_lock: Weak<ExecutionLock>,
    share: Option<Arc<ShareHandle>>,
}

impl WeakEngine {
    /// The engine itself, unless all its holders are gone.
    pub(super) fn own(&self) -> Option<Arc<Engine>> {
        Some(Arc::new(Engine {
            core: self.core.upgrade()?,
            execution_lock: Some(self.execution_lock.upgrade()?),
            share: self.share.clone(),
        }))
    }
}

impl Deref for Engine {
    type Target = EngineCore;

    fn deref(&self) -> &EngineCore {
        &self.core
    }
}

/// The options of an engine, which do not change later.
#[derive(Default)]
pub(crate) struct Setup {
    pub(crate) spill: SpillOptions,
    /// At most [`MOST_STORES`](crate::transfer::MOST_STORES).
    pub(crate) stores: Vec<OpenStore>,
    /// Compaction is off.
    pub(crate) never_move: bool,
    /// The engine is that of a dry run.
    pub(crate) is_dry: bool,
    /// The diagnostics to run.
    pub(crate) diagnostics: Option<Diagnostics>,
}

impl Engine {
    /// An engine over a driver.
    pub(crate) fn new(driver: Arc<dyn Driver>, setup: Setup) -> Result<Arc<Self>> {
        let spill = SpillStore::new(setup.spill)?;
        let driver = Device::new(driver);
        let dead = DeadList::new();
        let readbacks = Arc::new(Readbacks::new(driver.clone()));
        let pools = Memory::pools(driver.caps(), setup.never_move)?;
        let wanted = setup.diagnostics.map(|wanted| match driver.has_contents() {
            true => wanted,
            // Without contents of buffers there is nothing to check.
            false => wanted.without_looks(),
        });
        // Allocates first, and fills in the state last. So the code that drops an engine exists
        // once, and not also for a failure here.
        let core = Arc::new_cyclic(|_| EngineCore {
            uploads: Uploads::new(driver.clone(), Account::Uploads),
            restore_staging: Uploads::new(driver.clone(), Account::Restores),
            host: HostAccount::new(),
            stores: setup.stores,
            spill,
            budget: Mutex::default(),
            outside: Outside::new(),
            watermarks: WatermarkListeners::default(),
            is_dry: setup.is_dry,
            wanted,
            findings: Findings::default(),
            readbacks: readbacks.clone(),
            driver: driver.clone(),
            dead: dead.clone(),
            waiters: Arc::default(),
            scratch: Mutex::default(),
            #[cfg(feature = "tracing")]
            is_loss_logged: AtomicBool::new(false),
            state: Mutex::new(State::new(
                driver,
                readbacks,
                (pools, setup.never_move),
                dead,
            )),
        });
        if let Some(wanted) = wanted {
            let state = &mut *core.state.lock();
            (state.memory).watch_blocks(wanted.canaries, wanted.poison);
            state.diagnose = Diagnose::new(wanted);
        }
        let execution_lock = Some(ExecutionLock::new(core.waiters.clone()));
        Ok(Arc::new(Engine {
            core,
            execution_lock,
            share: None,
        }))
    }

    /// The engine of a share of the same device.
    pub(crate) fn of_share(&self, share: Option<Arc<ShareHandle>>) -> Arc<Self> {
        Arc::new(Engine {
            core: self.core.clone(),
            execution_lock: self.execution_lock.clone(),
            share,
        })
    }

    /// This engine for the work of a pass, which the execution lock keeps.
    #[cfg(any(target_arch = "wasm32", test, feature = "sim"))]
    pub(super) fn without_lock(&self) -> Arc<Self> {
        Arc::new(Engine {
            core: self.core.clone(),
            execution_lock: None,
            share: self.share.clone(),
        })
    }

    /// The execution lock. The work of a pass has it already.
    pub(super) fn execution_lock(&self) -> Result<&Arc<ExecutionLock>> {
        self.execution_lock.as_ref().ok_or(Error::Reentered)
    }

    /// This engine without keeping the device alive.
    pub(super) fn downgrade(&self) -> WeakEngine {
        let lock = self.execution_lock.as_ref();
        WeakEngine {
            core: Arc::downgrade(&self.core),
            execution_lock: lock.map_or_else(Weak::new, Arc::downgrade),
            share: self.share.clone(),
        }
    }

    /// The engine of the whole device, without keeping it alive.
    pub(crate) fn downgrade_device(&self) -> WeakEngine {
        WeakEngine {
            share: None,
            ..self.downgrade()
        }
    }

    /// Whether the device has shares now.
    pub(super) fn has_shares(&self) -> bool {
        !self.lock().memory.shares.is_empty()
    }

    /// The share that this engine is for.
    pub fn share(&self) -> Option<&Arc<ShareHandle>> {
        self.share.as_ref()
    }

    /// Refuses what a closed share may not do.
    pub(crate) fn check_open(&self) -> Result<()> {
        self.share().map_or(Ok(()), |share| share.check_open())
    }

    /// The number of that share.
    #[inline]
    pub(super) fn share_id(&self) -> ShareId {
        (self.share.as_deref()).map_or(ShareId::MAIN, ShareHandle::id)
    }

    /// Its passes run commands of this priority and higher ones. Those of the device's own engine
    /// run all, also those of shares that no handle is left of.
    pub(super) fn least_priority(&self) -> i8 {
        self.share().map_or(i8::MIN, |share| share.priority())
    }

    /// Is it an engine of the same device, for this share or another one?
    pub fn is_same_device(&self, other: &Engine) -> bool {
        Arc::ptr_eq(&self.core, &other.core)
    }

    /// Is it an engine of the same device and share?
    pub fn is_same(&self, other: &Engine) -> bool {
        let id = |engine: &Engine| engine.share.as_ref().map(|share| share.id());
        self.is_same_device(other) && id(self) == id(other)
    }

    /// What the device can do.
    pub fn caps(&self) -> &Caps {
        self.driver.caps()
    }

    pub(crate) fn driver(&self) -> &Device {
        &self.driver
    }

    /// The faults of files on a simulated device.
    #[cfg(any(test, feature = "sim"))]
    pub fn file_faults(&self) -> crate::driver::sim::FileFaults {
        self.spill.faults()
    }

    /// Whether this is the engine of a dry run, which has no values.
    pub(crate) fn is_dry(&self) -> bool {
        self.is_dry
    }

    /// The diagnostics that the app asked for.
    pub(crate) fn diagnostics(&self) -> Option<Diagnostics> {
        self.wanted
    }

    /// The findings of the diagnostics.
    pub(crate) fn findings(&self) -> &Findings {
        &self.findings
    }

    /// The list to which a dropped custom kernel adds itself.
    pub fn dead_list(&self) -> &Arc<DeadList> {
        &self.dead
    }

    /// Locks the state. The holder must not await, compile, map or call the app.
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Locks the budget. Taken after the state's lock, and before any lock of the ledger or of the
    /// operating system's limits.
    pub(super) fn lock_budget(&self) -> MutexGuard<'_, Budget> {
        self.budget.lock()
    }

    pub(super) fn lock_scratch(&self) -> MutexGuard<'_, Vec<u8>> {
        self.scratch.lock()
    }

    /// A stopwatch. It does not run on a simulated device, in a dry run, or without a clock.
    pub(super) fn stopwatch(&self) -> Stopwatch {
        Stopwatch::new(self.has_clock())
    }

    /// Whether times are measured.
    pub(super) fn has_clock(&self) -> bool {
        self.caps().backend != "sim" && !self.is_dry
    }

    /// Returns an error if the device is lost.
    #[inline]
    pub fn check_lost(&self) -> Result<()> {
        match self.driver.may_be_lost() {
            false => Ok(()),
            true => self.check_lost_now(),
        }
    }

    #[cold]
    fn check_lost_now(&self) -> Result<()> {
        match self.driver.lost() {
            None => Ok(()),
            Some(reason) => {
                #[cfg(feature = "tracing")]
                if !self.is_loss_logged.swap(true, Ordering::Relaxed) {
                    tell!(ERROR, "the device is lost", { reason = &*reason });
                }
                Err(Error::DeviceLost { reason })
            }
        }
    }

    /// The reason why a storage has no value, or no value yet, after an execution pass.
    pub(super) fn error_of(&self, storage: &Arc<Storage>) -> Result<()> {
        self.check_lost()?;
        let state = self.lock();
        if let Some(cause) = state.memory.slots.poison_of(storage) {
            let made_at = storage.tag().to_string();
            return Err(Error::Poisoned { made_at, cause });
        }
        if let Some(cause) = state.steps.failure(storage) {
            return Err(Error::clone(&cause));
        }
        state.left_behind.reason(storage).map_or(Ok(()), Err)
    }

    /// The engine's identity, for the thread-local lists of `inside`.
    pub(super) fn address(&self) -> usize {
        Arc::as_ptr(&self.core) as usize
    }

    /// Marks this thread as inside a function of the app until the guard is dropped. Calls that
    /// would wait for the execution lock are refused meanwhile, because they would wait for ever.
    pub(super) fn inside(&self) -> Inside {
        Inside::enter(self.address())
    }

    /// Whether this thread is inside a function of the app that the engine called.
    pub fn is_inside(&self) -> bool {
        Inside::is_of(self.address())
    }

    /// Whether this thread runs a rematerializer of this engine.
    pub(super) fn is_recording(&self) -> bool {
        Recording::is_of(self.address())
    }

    /// Calls a function of the app that does not wait for the device.
    #[cfg(not(target_arch = "wasm32"))]
    pub fn call_theirs<T>(&self, call: impl FnOnce() -> T) -> T {
        let _inside = self.inside();
        call()
    }

    /// Drops a value that may hold a function of the app. Its `Drop` may run code of the app, so
    /// the caller holds no lock but, at most, the execution lock.
    pub(super) fn drop_app_value<T>(&self, theirs: T) {
        let _inside = self.inside();
        let _ = catch_unwind(AssertUnwindSafe(|| drop(theirs)));
    }

    /// Drops stale copies. The file system may take a while for this.
    pub(super) fn drop_stale_copies(&self) {
        let gone = self.lock().memory.slots.take_gone();
        gone.into_iter().for_each(|one| self.drop_app_value(one));
    }

    /// Frees all storages without holders, including those that dropped rematerializers held.
    pub(super) fn free_all_dead(&self) {
        loop {
            let (rematerializers, copies, _cleanings) = {
                let mut state = self.lock();
                state.free_dead();
                let rematerializers = std::mem::take(&mut state.rematerializers.dropped);
                let cleanings = state.cleanings.take_dead();
                let cleaned_bytes: u64 = cleanings.iter().map(Cleaning::moved_bytes).sum();
                state.counters.evicted_bytes += cleaned_bytes;
                (rematerializers, state.memory.slots.take_gone(), cleanings)
            };
            if rematerializers.is_empty() && copies.is_empty() {
                break;
            }
            (rematerializers.into_iter()).for_each(|one| self.drop_app_value(one));
            copies.into_iter().for_each(|one| self.drop_app_value(one));
        }
    }

    /// Waits until the device has finished all submissions.
    pub(super) fn wait_idle(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            let last = self.lock().pace.last().cloned();
            if let Some(submission) = last {
                let waited = self.driver.wait(&submission.done).await;
                self.check_lost()?;
                waited.map_err(|error| refusal("to wait for a submission", error))?;
            }
            self.driver.settle();
            Ok(())
        })
    }
}
