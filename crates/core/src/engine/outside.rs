//! Pressure from outside: callbacks of the app, the limit of the operating system, and memory that
//! stays unused for many polls.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::driver::OsLimit;

/// The engine asks the operating system at every eighth poll, because that is a call to the driver.
const POLLS_PER_QUESTION: u32 = 8;

/// Unused memory is released after this many polls: ten seconds at 60 polls a second.
const IDLE_POLLS: u32 = 600;

/// The most calls of the app's callbacks in one execution pass. A callback might free a little each
/// time and record work that needs more. Without this limit it would keep the pass busy for ever.
const MOST_ASKS: u32 = 256;

/// The shortage of memory that a callback gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Pressure {
    /// The bytes that the engine needs.
    pub wanted_bytes: u64,
    /// The bytes reserved on the device: slabs and staging.
    pub reserved_bytes: u64,
    /// The limit of the reserved bytes, if there is one.
    pub limit_bytes: Option<u64>,
}

#[cfg(not(target_arch = "wasm32"))]
pub(crate) type Callback = dyn Fn(&Pressure) + Send + Sync;
#[cfg(target_arch = "wasm32")]
pub(crate) type Callback = dyn Fn(&Pressure);

/// Keeps a callback registered until it is dropped. If the engine is just asking all callbacks, it
/// may still call this one once.
#[must_use = "the callback is removed as soon as this is dropped"]
pub struct PressureGuard {
    listeners: Weak<Mutex<Vec<Listener>>>,
    id: u64,
}

debug_by_name!(PressureGuard);

impl Drop for PressureGuard {
    fn drop(&mut self) {
        if let Some(listeners) = self.listeners.upgrade() {
            let mut listeners = listeners.lock();
            let gone = listeners.iter().position(|listener| listener.id == self.id);
            let gone = gone.map(|index| listeners.swap_remove(index));
            // The app's closure may hold tensors or other values, so it is dropped outside the
            // lock.
            drop(listeners);
            drop(gone);
        }
    }
}

struct Listener {
    id: u64,
    callback: Arc<Callback>,
}

/// The app's callbacks, and the limit of the operating system.
#[derive(Default)]
pub(crate) struct Outside {
    listeners: Arc<Mutex<Vec<Listener>>>,
    next_id: AtomicU64,
    /// How often this execution pass may still ask.
    asks_left: AtomicU32,
    polls: AtomicU32,
    /// The number of polls after which unused memory is released; 0 for never.
    pub(crate) idle_polls: AtomicU32,
    /// The limit that the operating system leaves to the process, if it gives one.
    pub(crate) os: Mutex<Option<OsLimit>>,
    /// The operating system's answer never changes, so the engine need not ask again.
    pub(crate) os_is_static: AtomicBool,
    /// What to do at the next error for lack of memory.
    #[cfg(all(feature = "snapshot", not(target_arch = "wasm32")))]
    pub(crate) at_shortage: Mutex<Option<AtShortage>>,
    /// The limit is below the reserved bytes. The next execution pass must shrink to it.
    pub(crate) must_shrink: AtomicBool,
    /// The ledger's count of lowered limits when an execution pass last began to shrink.
    pub(crate) lowered_before: AtomicU64,
}

/// What the app wants done when a request finds no memory.
#[cfg(all(feature = "snapshot", not(target_arch = "wasm32")))]
pub(crate) type AtShortage = Box<dyn FnOnce(&crate::engine::Engine) + Send>;

/// The result of a poll.
pub(crate) struct Polled {
    /// The number of polls before.
    pub(crate) polls: u32,
    /// Whether to ask the operating system now.
    pub(crate) asks: bool,
}

impl Outside {
    pub(crate) fn new() -> Self {
        let outside = Outside::default();
        outside.idle_polls.store(IDLE_POLLS, Ordering::Relaxed);
        outside
    }

    /// Registers a callback for shortages of memory.
    pub(crate) fn listen(&self, callback: Arc<Callback>) -> PressureGuard {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        self.listeners.lock().push(Listener { id, callback });
        PressureGuard {
            listeners: Arc::downgrade(&self.listeners),
            id,
        }
    }

    /// Allows to ask again at the start of an execution pass, because the app may have memory to
    /// free again.
    pub(crate) fn allow_asking(&self) {
        self.asks_left.store(MOST_ASKS, Ordering::Relaxed);
    }

    /// The callbacks to call. `None` if there are none, or this execution pass may not ask again.
    pub(crate) fn begin_asking(&self) -> Option<Vec<Arc<Callback>>> {
        if self.asks_left.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let listeners = self.listeners.lock();
        let callbacks: Vec<_> = listeners.iter().map(|one| one.callback.clone()).collect();
        (!callbacks.is_empty()).then_some(callbacks)
    }

    /// All were asked. If they freed nothing, the same pass does not ask again.
    pub(crate) fn end_asking(&self, has_freed: bool) {
        // Only the holder of the execution lock asks.
        let asks_left = match has_freed {
            true => self.asks_left.load(Ordering::Relaxed).saturating_sub(1),
            false => 0,
        };
        self.asks_left.store(asks_left, Ordering::Relaxed);
    }

    /// Counts a poll of the app.
    pub(crate) fn poll(&self) -> Polled {
        let polls = self.polls.fetch_add(1, Ordering::Relaxed);
        let asks = polls.is_multiple_of(POLLS_PER_QUESTION);
        Polled { polls, asks }
    }
}
