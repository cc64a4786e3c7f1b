//! Pressure from outside: callbacks of the app, what the operating system leaves to us, and time
//! that passes without anybody using what is reserved.

use std::cell::Cell;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::execution_lock::ExecutionGuard;
use super::{Engine, block_on};
use crate::driver::{AdapterKind, OsLimit};
use crate::error::{Error, Result};

/// The operating system is asked at every so manieth poll: it is a call to the driver.
const POLLS_PER_QUESTION: u32 = 8;

/// Polls after which what nobody has used is given back: ten seconds at 60 a second.
const IDLE_POLLS: u32 = 600;

/// How often the app is asked in one execution pass, at most. One that frees a little and records
/// work that needs more, whenever it is asked, would keep the execution pass busy for ever.
const MOST_ROUNDS: u32 = 256;

/// What an app is told when memory is short.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Pressure {
    /// Bytes that should come free.
    pub wanted_bytes: u64,
    /// Bytes that are reserved on the device: slabs and staging.
    pub reserved_bytes: u64,
    /// What they are limited to, if they are.
    pub limit_bytes: Option<u64>,
}

#[cfg(not(target_arch = "wasm32"))]
pub(crate) type Callback = dyn Fn(&Pressure) + Send + Sync;
#[cfg(target_arch = "wasm32")]
pub(crate) type Callback = dyn Fn(&Pressure);

/// Keeps a callback registered until it is dropped. A round of callbacks that has begun by then, on
/// another thread or around the drop, may still call it once.
#[must_use = "the callback is removed as soon as this is dropped"]
pub struct PressureGuard {
    listeners: Weak<Mutex<Vec<Listener>>>,
    id: u64,
}

impl fmt::Debug for PressureGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PressureGuard")
    }
}

impl Drop for PressureGuard {
    fn drop(&mut self) {
        if let Some(listeners) = self.listeners.upgrade() {
            let mut listeners = lock(&listeners);
            let gone = listeners.iter().position(|listener| listener.id == self.id);
            let gone = gone.map(|index| listeners.swap_remove(index));
            // The app's closure may hold anything, also tensors: it goes without the lock.
            drop(listeners);
            drop(gone);
        }
    }
}

struct Listener {
    id: u64,
    callback: Arc<Callback>,
}

/// Who listens, and what was heard from the operating system.
#[derive(Default)]
pub(super) struct Outside {
    listeners: Arc<Mutex<Vec<Listener>>>,
    next_id: AtomicU64,
    /// How often the app may still be asked in this execution pass.
    rounds_left: AtomicU32,
    polls: AtomicU32,
    idle_polls: AtomicU32,
    os: Mutex<Option<OsLimit>>,
    /// What the system said never changes: there is no need to ask again.
    os_is_static: AtomicBool,
    /// The limit is below what is reserved: the next execution pass gets down to it.
    pub(super) must_shrink: AtomicBool,
    /// How often the limit had been lowered when an execution pass last began to get down to it.
    pub(super) lowered_before: AtomicU64,
}

impl fmt::Debug for Outside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outside").finish_non_exhaustive()
    }
}

impl Outside {
    pub(super) fn new() -> Self {
        let outside = Outside::default();
        outside.idle_polls.store(IDLE_POLLS, Ordering::Relaxed);
        outside
    }

    /// Is what the system said the size of something, which never changes?
    pub(super) fn os_is_static(&self) -> bool {
        self.os_is_static.load(Ordering::Relaxed)
    }

    /// An execution pass begins: the app may have something to drop again.
    pub(super) fn may_ask_anew(&self) {
        self.rounds_left.store(MOST_ROUNDS, Ordering::Relaxed);
    }
}

thread_local! {
    /// The engines for which this thread is inside a function of the app, by address, the innermost
    /// first; 0 for none. Without a destructor, so that a thread that ends may still call.
    static INSIDE: Cell<[usize; 4]> = const { Cell::new([0; 4]) };
}

/// This thread is inside a function of the app, perhaps under the execution lock.
pub(super) struct Inside([usize; 4]);

impl Drop for Inside {
    fn drop(&mut self) {
        INSIDE.set(self.0);
    }
}

impl Engine {
    /// The thread calls a function of the app until this is dropped: what waits for the execution
    /// lock meanwhile would wait for ever, and is refused.
    pub(super) fn inside(&self) -> Inside {
        let [first, second, third, _] = INSIDE.get();
        let this = std::ptr::from_ref(self) as usize;
        Inside(INSIDE.replace([this, first, second, third]))
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

    /// Is this thread inside a function of the app that is called while others wait for it?
    pub(super) fn is_inside(&self) -> bool {
        INSIDE.get().contains(&(std::ptr::from_ref(self) as usize))
    }

    /// Waits for the execution lock.
    pub(super) async fn lock_execution(&self) -> Result<ExecutionGuard> {
        if self.is_inside() {
            return Err(Error::Reentered);
        }
        Ok(self.execution_lock.lock().await)
    }

    /// Calls back when memory is short.
    pub(crate) fn on_pressure(&self, callback: Arc<Callback>) -> PressureGuard {
        let id = self.outside.next_id.fetch_add(1, Ordering::Relaxed);
        let listeners = &self.outside.listeners;
        lock(listeners).push(Listener { id, callback });
        PressureGuard {
            listeners: Arc::downgrade(listeners),
            id,
        }
    }

    /// Asks the app; returns the bytes that came free. No lock of ours is held but the execution
    /// lock. After a round that freed nothing it is not asked again in the same execution pass.
    pub(super) fn call_back(&self, wanted_bytes: u64) -> u64 {
        let rounds_left = self.outside.rounds_left.load(Ordering::Relaxed);
        if rounds_left == 0 {
            return 0;
        }
        let callbacks: Vec<_> = lock(&self.outside.listeners)
            .iter()
            .map(|listener| listener.callback.clone())
            .collect();
        if callbacks.is_empty() {
            return 0;
        }
        let freed_before = self.lock().memory.freed_bytes();
        let levels = self.driver.ledger().levels();
        let pressure = Pressure {
            wanted_bytes,
            reserved_bytes: levels.reserved_bytes.now,
            limit_bytes: (levels.limit_bytes != u64::MAX).then_some(levels.limit_bytes),
        };
        for callback in callbacks {
            let _inside = self.inside();
            // A panic is the app's affair; what it freed before counts.
            let _ = catch_unwind(AssertUnwindSafe(|| callback(&pressure)));
            // Its guard may be gone by now, and this the last to hold it.
            self.drop_theirs(callback);
        }
        let mut state = self.lock();
        state.free_dead();
        let freed_bytes = state.memory.freed_bytes() - freed_before;
        let rounds_left = if freed_bytes > 0 { rounds_left - 1 } else { 0 };
        (self.outside.rounds_left).store(rounds_left, Ordering::Relaxed);
        freed_bytes
    }

    /// Lets finished work be noticed, the limit follow what the operating system leaves, and
    /// what is idle go. Waits only to get down to a limit that has fallen below what is held, and
    /// not in a browser.
    pub(crate) fn poll(&self) -> Result<()> {
        // Losing the device is the only failure that concerns the caller here.
        let _ = self.driver.poll();
        self.check_lost()?;
        self.driver.settle();
        self.driver.ledger().polled();
        let polls = self.outside.polls.fetch_add(1, Ordering::Relaxed);
        let asks = polls.is_multiple_of(POLLS_PER_QUESTION);
        if asks {
            self.follow_os();
        }
        if let Some(_execution_lock) = self.execution_lock.try_lock() {
            let must_shrink = self.outside.must_shrink.load(Ordering::Acquire);
            if asks && must_shrink && cfg!(not(target_arch = "wasm32")) {
                // Whoever polls may have no other work that would get down to it.
                block_on("Gpu::poll", self.shrink())?;
            }
            self.take_in_cleaned();
            self.release_idle(polls)?;
        }
        self.check_lost()
    }

    /// So many polls without a use, and what is reserved is given back; 0 for never.
    pub(crate) fn set_idle_polls(&self, polls: u32) {
        self.outside.idle_polls.store(polls, Ordering::Relaxed);
    }

    fn release_idle(&self, polls: u32) -> Result<()> {
        let idle_polls = self.outside.idle_polls.load(Ordering::Relaxed);
        let idle_slab = {
            let mut state = self.lock();
            state.free_dead();
            state.memory.polled(polls);
            let has_batch = !state.batch.is_empty();
            idle_polls > 0 && !has_batch && state.memory.next_idle(idle_polls).is_some()
        };
        if idle_slab {
            self.release(|memory| memory.next_idle(idle_polls))?;
        }
        if idle_polls > 0 && polls % idle_polls == idle_polls - 1 {
            for staging in [&self.uploads, &self.restore_staging] {
                let _ = staging.sweep();
                staging.trim_unused();
            }
            self.readbacks.trim_unused();
        }
        Ok(())
    }

    /// Asks the operating system what it leaves to us, and goes by it.
    pub(super) fn follow_os(&self) {
        if self.outside.os_is_static() {
            return;
        }
        let Some(os_budget) = self.driver.os_budget() else {
            return;
        };
        let is_static = os_budget.is_static;
        self.outside
            .os_is_static
            .store(is_static, Ordering::Relaxed);
        if is_static && self.caps().kind == AdapterKind::Cpu {
            // The heap of a software rasterizer is a number that its authors chose.
            return;
        }
        let ours_bytes = self.driver.ledger().levels().reserved_bytes.now;
        {
            let mut os = lock(&self.outside.os);
            match &mut *os {
                Some(limit) => drop(limit.follow(os_budget, ours_bytes)),
                none => *none = Some(OsLimit::new(os_budget, ours_bytes)),
            }
        }
        self.apply_limits();
    }

    /// What the operating system leaves to us, as far as it says.
    pub(super) fn os_limit_bytes(&self) -> Option<u64> {
        lock(&self.outside.os).as_ref().map(OsLimit::limit_bytes)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
