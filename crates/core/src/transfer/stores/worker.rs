//! The thread of a store, which makes all calls of it, one after the other.
//!
//! A call that nobody waits for any more is not made if it has not begun. Writes and removals keep
//! their order, so a value that was written late is removed all the same. Reads come first:
//! somebody waits for them, and no value is removed that is still to be read.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};

use super::ledger::StoreLedger;
use super::store::{Key, MOST_VALUE_BYTES, Store};
use crate::error::StoreFailure;
use crate::worker::{Run, Task};

type Outcome = Result<(), StoreFailure>;

/// A write or a read that is queued. It ends with the buffer of its bytes. On drop it is given up.
pub(super) struct Call(Task<(Outcome, Vec<u8>)>);

impl Call {
    /// Waits for the end of the call, until a time. Then the call is given up, with its buffer.
    pub(super) fn wait(self, until: Instant) -> (Outcome, Vec<u8>) {
        let ended = self.0.wait_until(Some(until));
        ended.unwrap_or((Err(StoreFailure::TimedOut), Vec::new()))
    }

    /// Whether it has ended.
    pub(super) fn has_ended(&self) -> bool {
        self.0.has_ended()
    }
}

/// Calls a function of the app; a panic counts as a failure.
fn guarded(call: impl FnOnce() -> Outcome) -> Outcome {
    let called = catch_unwind(AssertUnwindSafe(call));
    called.unwrap_or_else(|_| Err(StoreFailure::Other("it panicked".into())))
}

/// The parts of a block that are to be removed.
#[derive(Debug)]
pub(super) struct Removal {
    pub(super) first: Key,
    /// The next part to remove, and the number of parts that may have a value.
    pub(super) part: u32,
    pub(super) parts: u32,
    /// The bytes of the block that still count as used.
    pub(super) left_bytes: u64,
}

enum StoreJob {
    Call(Arc<dyn Run>),
    Remove(Removal),
}

/// A queue for a thread, which starts at the first job and ends with the worker.
pub(super) struct Worker(Arc<Inner>);

struct Inner {
    store: Arc<dyn Store>,
    state: Mutex<State>,
    queued: Condvar,
    removed: Condvar,
}

struct State {
    ledger: StoreLedger,
    reads: VecDeque<Arc<dyn Run>>,
    jobs: VecDeque<StoreJob>,
    /// Removals that failed, until they are tried again.
    failed: Vec<Removal>,
    /// When that is: reads in between do not put it off.
    retry_at: Option<Instant>,
    has_thread: bool,
    is_closed: bool,
}

impl State {
    /// Tries failed removals again.
    fn remove_failed(&mut self) {
        self.retry_at = None;
        let failed = std::mem::take(&mut self.failed);
        self.jobs.extend(failed.into_iter().map(StoreJob::Remove));
    }
}

debug_by_name!(Worker);

impl Drop for Worker {
    fn drop(&mut self) {
        self.0.state.lock().is_closed = true;
        self.0.queued.notify_all();
    }
}

impl Worker {
    pub(super) fn new(store: Arc<dyn Store>, ledger: StoreLedger) -> Worker {
        let state = State {
            ledger,
            reads: VecDeque::new(),
            jobs: VecDeque::new(),
            failed: Vec::new(),
            retry_at: None,
            has_thread: false,
            is_closed: false,
        };
        Worker(Arc::new(Inner {
            store,
            state: Mutex::new(state),
            queued: Condvar::new(),
            removed: Condvar::new(),
        }))
    }

    /// Looks at the account, or changes it.
    pub(super) fn ledger<T>(&self, look: impl FnOnce(&mut StoreLedger) -> T) -> T {
        look(&mut self.0.state.lock().ledger)
    }

    /// Reserves room for a block. Waits for removals under way until a time, if only they are in
    /// the way. Returns the failure if there is no room.
    pub(super) fn reserve(&self, bytes: u64, until: Instant) -> Outcome {
        let mut state = self.0.state.lock();
        loop {
            if let Some(refusal) = state.ledger.refusal() {
                return Err(refusal);
            }
            if state.ledger.reserve(bytes) {
                return Ok(());
            }
            let ledger = &state.ledger;
            let staying_bytes = (ledger.done.bytes.now).saturating_sub(ledger.leaving_bytes);
            let would_be_left = ledger.done.most_bytes.saturating_sub(staying_bytes);
            if would_be_left < bytes || !state.failed.is_empty() {
                return Err(StoreFailure::Full);
            }
            if self.0.removed.wait_until(&mut state, until).timed_out() {
                state.ledger.failed(&StoreFailure::TimedOut);
                return Err(StoreFailure::TimedOut);
            }
        }
    }

    /// Queues a write, unless the store rests.
    pub(super) fn write(&self, key: Key, bytes: Vec<u8>) -> Result<Call, StoreFailure> {
        let store = self.0.store.clone();
        let (task, run) = Task::new(move || {
            let outcome = guarded(|| store.write(key, &bytes));
            (outcome, bytes)
        });
        let queue = |state: &mut State| state.jobs.push_back(StoreJob::Call(run));
        self.queue(queue).map(|()| Call(task))
    }

    /// Queues a read that fills `bytes`, unless the store rests.
    pub(super) fn read(&self, key: Key, mut bytes: Vec<u8>) -> Result<Call, StoreFailure> {
        let store = self.0.store.clone();
        let (task, run) = Task::new(move || {
            let outcome = guarded(|| store.read(key, &mut bytes));
            (outcome, bytes)
        });
        let queue = |state: &mut State| state.reads.push_back(run);
        self.queue(queue).map(|()| Call(task))
    }

    fn queue(&self, queue: impl FnOnce(&mut State)) -> Outcome {
        let mut state = self.0.state.lock();
        if let Some(failure) = state.ledger.resting() {
            return Err(failure);
        }
        queue(&mut state);
        self.wake(state)
    }

    /// Removes the parts of a block, whenever the store can do it.
    pub(super) fn remove(&self, removal: Removal) {
        let mut state = self.0.state.lock();
        let parts = u64::from(removal.parts - removal.part);
        // The parts behind these were never written.
        let leaving_bytes = removal.left_bytes.min(parts * MOST_VALUE_BYTES);
        (state.ledger.done.bytes).lower(removal.left_bytes - leaving_bytes);
        if parts == 0 {
            return;
        }
        state.ledger.leaving_bytes += leaving_bytes;
        state.jobs.push_back(StoreJob::Remove(Removal {
            left_bytes: leaving_bytes,
            ..removal
        }));
        // Without a thread nothing was ever written.
        let _ = self.wake(state);
    }

    fn wake(&self, mut state: MutexGuard<'_, State>) -> Outcome {
        if state.has_thread {
            drop(state);
            self.0.queued.notify_one();
            return Ok(());
        }
        let inner = self.0.clone();
        let name = "lapidary store".into();
        let thread = thread::Builder::new().name(name).spawn(move || inner.run());
        state.has_thread = thread.is_ok();
        let failure = |error: std::io::Error| StoreFailure::Other(format!("no thread: {error}"));
        thread.map(drop).map_err(failure)
    }
}

impl Inner {
    fn run(&self) {
        while let Some(job) = self.next_job() {
            match job {
                StoreJob::Call(call) => call.run(),
                StoreJob::Remove(removal) => self.remove(removal),
            }
        }
    }

    /// Waits for the next job. `None` if there will be no more.
    fn next_job(&self) -> Option<StoreJob> {
        let mut state = self.state.lock();
        loop {
            if !state.failed.is_empty() {
                let rest = state.ledger.rest.max(Duration::from_millis(1));
                let at = *state.retry_at.get_or_insert_with(|| Instant::now() + rest);
                if state.is_closed || at <= Instant::now() {
                    state.remove_failed();
                }
            }
            if let Some(call) = state.reads.pop_front() {
                return Some(StoreJob::Call(call));
            }
            if let Some(job) = state.jobs.pop_front() {
                return Some(job);
            }
            match state.retry_at {
                Some(at) => drop(self.queued.wait_until(&mut state, at)),
                None if state.is_closed => return None,
                None => self.queued.wait(&mut state),
            }
        }
    }

    /// Removes the parts of a block. Stops at a failure, and at a read that somebody waits for.
    fn remove(&self, mut removal: Removal) {
        while removal.part < removal.parts {
            let key = removal.first.of_part(removal.part);
            let outcome = guarded(|| self.store.remove(key));
            let mut state = self.state.lock();
            match outcome {
                Ok(()) | Err(StoreFailure::NotFound) => {}
                // Nobody reads the rest, and a store that fails may take a while for each value.
                Err(_) if state.is_closed => {
                    state.jobs.clear();
                    state.failed.clear();
                    return;
                }
                Err(failure) => {
                    state.ledger.failed(&failure);
                    state.failed.push(removal);
                    self.removed.notify_all();
                    return;
                }
            }
            let bytes = removal.left_bytes.min(MOST_VALUE_BYTES);
            removal.left_bytes -= bytes;
            removal.part += 1;
            state.ledger.done.bytes.lower(bytes);
            state.ledger.leaving_bytes -= bytes;
            state.remove_failed();
            self.removed.notify_all();
            if !state.reads.is_empty() && removal.part < removal.parts {
                state.jobs.push_front(StoreJob::Remove(removal));
                return;
            }
        }
    }
}
