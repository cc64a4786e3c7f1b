//! Pressure from outside: callbacks of the app, what the operating system leaves to us, and time
//! that passes without anybody using what is reserved.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crate::driver::{OsBudget, OsLimit};

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
    must_shrink: AtomicBool,
    /// How often the limit had been lowered when an execution pass last began to get down to it.
    lowered_before: AtomicU64,
}

impl fmt::Debug for Outside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outside").finish_non_exhaustive()
    }
}

/// The app is asked once.
pub(super) struct Round {
    pub(super) callbacks: Vec<Arc<Callback>>,
    /// For [`Outside::end_round`].
    pub(super) rounds_left: u32,
}

/// The app has polled.
pub(super) struct Polled {
    /// How often before.
    pub(super) polls: u32,
    /// Is it time to ask the operating system?
    pub(super) asks: bool,
}

impl Outside {
    pub(super) fn new() -> Self {
        let outside = Outside::default();
        outside.idle_polls.store(IDLE_POLLS, Ordering::Relaxed);
        outside
    }

    /// Calls back when memory is short.
    pub(super) fn listen(&self, callback: Arc<Callback>) -> PressureGuard {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        lock(&self.listeners).push(Listener { id, callback });
        PressureGuard {
            listeners: Arc::downgrade(&self.listeners),
            id,
        }
    }

    /// An execution pass begins: the app may have something to drop again.
    pub(super) fn may_ask_anew(&self) {
        self.rounds_left.store(MOST_ROUNDS, Ordering::Relaxed);
    }

    /// Who is to be asked; `None` if nobody is, or not again in this execution pass.
    pub(super) fn begin_round(&self) -> Option<Round> {
        let rounds_left = self.rounds_left.load(Ordering::Relaxed);
        if rounds_left == 0 {
            return None;
        }
        let listeners = lock(&self.listeners);
        let callbacks: Vec<_> = listeners.iter().map(|one| one.callback.clone()).collect();
        (!callbacks.is_empty()).then_some(Round {
            callbacks,
            rounds_left,
        })
    }

    /// All were asked. After a round that freed nothing nobody is asked again in the same pass.
    pub(super) fn end_round(&self, rounds_left: u32, has_freed: bool) {
        let rounds_left = if has_freed { rounds_left - 1 } else { 0 };
        self.rounds_left.store(rounds_left, Ordering::Relaxed);
    }

    /// The app polls.
    pub(super) fn poll(&self) -> Polled {
        let polls = self.polls.fetch_add(1, Ordering::Relaxed);
        let asks = polls.is_multiple_of(POLLS_PER_QUESTION);
        Polled { polls, asks }
    }

    /// So many polls without a use, and what is reserved is given back; 0 for never.
    pub(super) fn idle_polls(&self) -> u32 {
        self.idle_polls.load(Ordering::Relaxed)
    }

    pub(super) fn set_idle_polls(&self, polls: u32) {
        self.idle_polls.store(polls, Ordering::Relaxed);
    }

    /// Is what the system said the size of something, which never changes?
    pub(super) fn os_is_static(&self) -> bool {
        self.os_is_static.load(Ordering::Relaxed)
    }

    /// What the system said never changes, or it may.
    pub(super) fn set_os_static(&self, is_static: bool) {
        self.os_is_static.store(is_static, Ordering::Relaxed);
    }

    /// Goes by what the operating system says, of which so many bytes are ours.
    pub(super) fn follow_os(&self, os_budget: OsBudget, ours_bytes: u64) {
        match &mut *lock(&self.os) {
            Some(limit) => drop(limit.follow(os_budget, ours_bytes)),
            none => *none = Some(OsLimit::new(os_budget, ours_bytes)),
        }
    }

    /// What the operating system leaves to us, as far as it says.
    pub(super) fn os_limit_bytes(&self) -> Option<u64> {
        lock(&self.os).as_ref().map(OsLimit::limit_bytes)
    }

    /// Is the limit below what is reserved?
    pub(super) fn must_shrink(&self) -> bool {
        self.must_shrink.load(Ordering::Acquire)
    }

    pub(super) fn set_must_shrink(&self, must_shrink: bool) {
        self.must_shrink.store(must_shrink, Ordering::Release);
    }

    /// The limit was lowered so often by now: was it since an execution pass last got down to it?
    pub(super) fn is_newly_lowered(&self, times: u64) -> bool {
        self.lowered_before.load(Ordering::Acquire) != times
    }

    /// An execution pass begins to get down to a limit that was lowered so often by now.
    pub(super) fn begin_shrink(&self, times: u64) {
        self.may_ask_anew();
        self.lowered_before.store(times, Ordering::Release);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
