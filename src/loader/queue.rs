//! The batches ahead: their order and their bounds.
//!
//! ```text
//!        next             next + 2
//!   ┌───────────┬───────────┬───────────┐
//!   │   ready   │ prepared  │   ready   │   at most `most_ahead`
//!   └───────────┴───────────┴───────────┘
//! ```
//!
//! Items get their places in the order in which the source gives them, so delivery needs no
//! sorting. The batch at the front waits for no bytes. So it is always finished, and its delivery
//! makes room for the others.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};
use std::time::Duration;

use lapidary_core::units::Level;

use super::LoaderStats;

/// The batches ahead, of type `T` each.
#[derive(Debug)]
pub(super) struct Queue<T> {
    most_ahead: usize,
    state: Mutex<State<T>>,
    /// Notified of every change of the state.
    changed: Condvar,
}

#[derive(Debug)]
struct State<T> {
    ahead: VecDeque<Ahead<T>>,
    /// The number of the batch at the front.
    next: u64,
    /// The thread that is in the source.
    in_source: Option<ThreadId>,
    has_ended: bool,
    is_closed: bool,
    stats: LoaderStats,
}

#[derive(Debug)]
struct Ahead<T> {
    /// `None` while it is being prepared.
    batch: Option<T>,
    uploaded_bytes: u64,
}

/// The state of the batch at the front.
#[derive(Debug)]
pub(super) enum Next {
    Ready,
    Pending,
    /// There is none, and there will be none.
    None,
}

impl<T> Queue<T> {
    pub(super) fn new(most_ahead: usize) -> Self {
        Queue {
            most_ahead,
            state: Mutex::new(State {
                ahead: VecDeque::new(),
                next: 0,
                in_source: None,
                has_ended: false,
                is_closed: false,
                stats: LoaderStats::default(),
            }),
            changed: Condvar::new(),
        }
    }

    /// Waits until this thread may ask the source. `false` when there is nothing more to do.
    pub(super) fn enter_source(&self) -> bool {
        let mut state = self.wait_until(|state| {
            let has_room = state.ahead.len() < self.most_ahead;
            state.is_over() || state.in_source.is_none() && has_room
        });
        if state.is_over() {
            return false;
        }
        state.in_source = Some(thread::current().id());
        true
    }

    /// Ends the turn at the source. `has_batch`: the call gave what becomes a batch. `has_ended`:
    /// nobody may ask again. Returns the number of the batch; `None` after a close.
    pub(super) fn leave_source(&self, has_batch: bool, has_ended: bool) -> Option<u64> {
        let mut state = self.lock();
        state.in_source = None;
        state.has_ended |= has_ended;
        let is_wanted = has_batch && !state.is_closed;
        let number = is_wanted.then(|| state.add());
        drop(state);
        self.changed.notify_all();
        number
    }

    /// Counts `bytes` of an upload for a batch. Waits until they fit in `most_bytes`, unless the
    /// batch is the next one. `false` if the loader was closed.
    pub(super) fn reserve(&self, number: u64, bytes: u64, most_bytes: u64) -> bool {
        let mut state = self.wait_until(|state| {
            let sum_bytes = state.stats.bytes_ahead.now.saturating_add(bytes);
            state.is_closed || number == state.next || sum_bytes <= most_bytes
        });
        let Some(ahead) = state.find(number) else {
            return false;
        };
        ahead.uploaded_bytes = ahead.uploaded_bytes.saturating_add(bytes);
        raise(&mut state.stats.bytes_ahead, bytes);
        true
    }

    /// Puts a batch in its place. Drops it if the loader was closed.
    pub(super) fn finish(&self, number: u64, batch: T) {
        let mut batch = Some(batch);
        let mut state = self.lock();
        if let Some(ahead) = state.find(number) {
            ahead.batch = batch.take();
        }
        drop(state);
        self.changed.notify_all();
    }

    pub(super) fn look(&self) -> Next {
        self.lock().look()
    }

    /// Waits until the batch at the front is ready, or there is none.
    pub(super) fn wait(&self) {
        drop(self.wait_until(|state| !matches!(state.look(), Next::Pending)));
    }

    /// Notes that the loop waited for the batch at the front.
    pub(super) fn count_wait(&self, waited: Duration, was_device_idle: bool) {
        let stats = &mut self.lock().stats;
        stats.waits += 1;
        stats.device_waits += u64::from(was_device_idle);
        stats.waited = stats.waited.saturating_add(waited);
    }

    /// Closes the queue, and returns the batches ahead.
    #[must_use]
    pub(super) fn close(&self) -> Vec<T> {
        let mut state = self.lock();
        state.is_closed = true;
        let ahead = std::mem::take(&mut state.ahead);
        for gone in &ahead {
            lower(&mut state.stats.batches_ahead, 1);
            lower(&mut state.stats.bytes_ahead, gone.uploaded_bytes);
        }
        drop(state);
        self.changed.notify_all();
        ahead.into_iter().filter_map(|gone| gone.batch).collect()
    }

    pub(super) fn is_closed(&self) -> bool {
        self.lock().is_closed
    }

    #[cfg(not(target_arch = "wasm32"))]
    pub(super) fn thread_in_source(&self) -> Option<ThreadId> {
        self.lock().in_source
    }

    pub(super) fn stats(&self) -> LoaderStats {
        self.lock().stats
    }

    fn wait_until(&self, is_met: impl Fn(&State<T>) -> bool) -> MutexGuard<'_, State<T>> {
        let state = self.lock();
        let waited = (self.changed).wait_while(state, |state| !is_met(state));
        waited.unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T, E> Queue<Result<T, E>> {
    /// The batch at the front, if it is ready.
    pub(super) fn take(&self) -> Option<Result<T, E>> {
        let mut state = self.lock();
        if !matches!(state.look(), Next::Ready) {
            return None;
        }
        let ready = state.ahead.pop_front()?;
        state.next += 1;
        lower(&mut state.stats.batches_ahead, 1);
        lower(&mut state.stats.bytes_ahead, ready.uploaded_bytes);
        match ready.batch {
            Some(Ok(_)) => state.stats.delivered += 1,
            _ => state.stats.failed += 1,
        }
        drop(state);
        self.changed.notify_all();
        ready.batch
    }
}

impl<T> State<T> {
    fn is_over(&self) -> bool {
        self.has_ended || self.is_closed
    }

    fn look(&self) -> Next {
        match self.ahead.front() {
            Some(ahead) if ahead.batch.is_some() => Next::Ready,
            None if self.is_over() => Next::None,
            _ => Next::Pending,
        }
    }

    /// Adds a place at the end. Returns its number.
    fn add(&mut self) -> u64 {
        self.ahead.push_back(Ahead {
            batch: None,
            uploaded_bytes: 0,
        });
        raise(&mut self.stats.batches_ahead, 1);
        self.next + self.ahead.len() as u64 - 1
    }

    fn find(&mut self, number: u64) -> Option<&mut Ahead<T>> {
        let index = number.checked_sub(self.next)?;
        self.ahead.get_mut(usize::try_from(index).ok()?)
    }
}

fn raise(level: &mut Level, by: u64) {
    level.up = level.up.wrapping_add(by);
    level.now = level.now.saturating_add(by);
    level.peak = level.peak.max(level.now);
}

fn lower(level: &mut Level, by: u64) {
    level.down = level.down.wrapping_add(by);
    level.now = level.now.saturating_sub(by);
}
