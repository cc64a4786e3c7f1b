//! The execution lock: an asynchronous mutex without data.
//!
//! An execution pass awaits slabs, pipelines and submissions with the engine's lock released. The
//! execution lock keeps it the only pass meanwhile. A dropped waiter leaves nothing behind: an
//! unlock wakes all waiters, and the first one to be polled gets the lock.
//!
//! In a browser a pass really waits, and the app may keep its future without polling it. That
//! future holds the lock. So the pass lends its work to the lock as [`LockedWork`], and the waiters
//! for the lock poll that work.

#![cfg_attr(
    not(any(target_arch = "wasm32", test, feature = "sim")),
    allow(
        dead_code,
        reason = "natively only a simulated device makes a pass wait"
    )
)]

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use parking_lot::{Mutex, MutexGuard};

use crate::driver::{BoxFuture, MaybeSend};

/// Whether any pass of this program may have to wait.
const CAN_LEND: bool = cfg!(any(target_arch = "wasm32", test, feature = "sim"));

#[derive(Debug, Default)]
pub(in crate::engine) struct ExecutionLock {
    shared: Arc<Shared>,
    /// The work of the lock's holder, if waiters may poll it. Locked after `shared`.
    work: Mutex<Option<Arc<LockedWork>>>,
}

/// The waker's part. It is apart from the work because, in a browser, a waker may change threads
/// and the work may not.
#[derive(Debug, Default)]
struct Shared(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    taken: bool,
    /// Whether the holder has lent its work.
    is_lent: bool,
    /// The waiters for the lock, and the holder if it waits for something else.
    waiting: Wakers,
}

/// The wakers of tasks, each once.
#[derive(Debug, Default)]
struct Wakers(Vec<Waker>);

/// Holds the execution lock until it is dropped.
#[derive(Debug)]
pub(in crate::engine) struct ExecutionGuard(Arc<ExecutionLock>);

impl ExecutionLock {
    /// Waits for the execution lock and polls the holder's work meanwhile.
    pub(in crate::engine) async fn lock(self: &Arc<Self>) -> ExecutionGuard {
        loop {
            if let Some(guard) = self.lock_unless(|| false).await {
                return guard;
            }
        }
    }

    /// As [`lock`](Self::lock), but `None` if the lock's holder has done what the caller wants.
    /// `is_done` is asked whenever the holder [notifies](Self::notify) the waiters.
    pub(super) async fn lock_unless(
        self: &Arc<Self>,
        is_done: impl Fn() -> bool,
    ) -> Option<ExecutionGuard> {
        let is_locked = poll_fn(|context| {
            loop {
                let mut state = self.shared.lock();
                if !state.taken {
                    state.taken = true;
                    return Poll::Ready(true);
                }
                state.waiting.add(context.waker());
                let is_lent = CAN_LEND && state.is_lent;
                let work = is_lent.then(|| self.work().clone()).flatten();
                drop(state);
                // After the waker is there, so that no notice comes between.
                if is_done() {
                    return Poll::Ready(false);
                }
                if !work.is_some_and(|work| work.poll_to_end(&self.shared, context.waker())) {
                    return Poll::Pending;
                }
            }
        });
        is_locked.await.then(|| ExecutionGuard(self.clone()))
    }

    /// Lets the waiters see whether the holder has done what they want.
    pub(super) fn notify(&self) {
        self.shared.wake_by_ref();
    }

    /// The execution lock, if it is free.
    pub(super) fn try_lock(self: &Arc<Self>) -> Option<ExecutionGuard> {
        if std::mem::replace(&mut self.shared.lock().taken, true) {
            return None;
        }
        Some(ExecutionGuard(self.clone()))
    }

    /// Lets the waiters poll the work of the lock's holder.
    fn lend(&self, work: Arc<LockedWork>) {
        let mut state = self.shared.lock();
        state.is_lent = true;
        *self.work() = Some(work);
    }

    fn work(&self) -> MutexGuard<'_, Option<Arc<LockedWork>>> {
        self.work.lock()
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock()
    }
}

/// A wake-up of the lent work wakes all waiters.
impl Wake for Shared {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let waiting = std::mem::take(&mut self.lock().waiting);
        waiting.wake();
    }
}

impl Wakers {
    fn add(&mut self, waker: &Waker) {
        if !self.0.iter().any(|other| other.will_wake(waker)) {
            self.0.push(waker.clone());
        }
    }

    fn wake(self) {
        self.0.into_iter().for_each(Waker::wake);
    }
}

impl Drop for ExecutionGuard {
    fn drop(&mut self) {
        let (work, waiting) = {
            let mut state = self.0.shared.lock();
            state.taken = false;
            let is_lent = CAN_LEND && std::mem::take(&mut state.is_lent);
            let work = is_lent.then(|| self.0.work().take());
            (work, std::mem::take(&mut state.waiting))
        };
        waiting.wake();
        // The work may hold values of the app, so it is dropped outside the lock.
        drop(work);
    }
}

/// Work under the execution lock. It drops the lock at its end.
struct LockedWork {
    future: Mutex<Option<BoxFuture<'static, ()>>>,
    /// Tasks that found another task polling the work. They poll it next, because their wake-up may
    /// have come too late for the other task, which may never poll again.
    missed_wakers: Mutex<Wakers>,
    /// The owner of the result is gone, so the work must be dropped instead of polled.
    is_given_up: AtomicBool,
}

impl std::fmt::Debug for LockedWork {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LockedWork").finish_non_exhaustive()
    }
}

impl LockedWork {
    fn new(future: BoxFuture<'static, ()>) -> Self {
        LockedWork {
            future: Mutex::new(Some(future)),
            missed_wakers: Mutex::default(),
            is_given_up: AtomicBool::new(false),
        }
    }

    /// Polls the work, unless another thread is polling it; that thread then wakes `by`. Returns
    /// whether the work has ended.
    fn poll_to_end(&self, shared: &Arc<Shared>, by: &Waker) -> bool {
        let tried = self.future.try_lock().or_else(|| {
            self.missed_wakers().add(by);
            // The other thread may have read `missed_wakers` just before this entry.
            self.future.try_lock()
        });
        let Some(mut future) = tried else {
            return false;
        };
        let waker = Waker::from(shared.clone());
        let mut context = Context::from_waker(&waker);
        let ended = match future.as_mut() {
            Some(running) => running.as_mut().poll(&mut context).is_ready(),
            None => true,
        };
        let done = ended.then(|| future.take());
        drop(future);
        let missed_wakers = std::mem::take(&mut *self.missed_wakers());
        missed_wakers.wake();
        // The values of the work are dropped outside its lock.
        drop(done);
        if self.is_given_up.load(Ordering::SeqCst) {
            self.end();
            return true;
        }
        ended
    }

    fn give_up(&self) {
        self.is_given_up.store(true, Ordering::SeqCst);
        self.end();
    }

    /// Drops the rest of the work. If a thread is polling it, that thread drops it.
    fn end(&self) {
        let future = self.future.try_lock().and_then(|mut future| future.take());
        drop(future);
    }

    fn missed_wakers(&self) -> MutexGuard<'_, Wakers> {
        self.missed_wakers.lock()
    }
}

/// Gives up the work when it is dropped.
struct WorkOwner(Arc<LockedWork>);

impl Drop for WorkOwner {
    fn drop(&mut self) {
        self.0.give_up();
    }
}

impl ExecutionGuard {
    /// Runs `work` and releases the lock. Waiters for the lock poll the work meanwhile.
    pub(super) async fn lend<T: MaybeSend + 'static>(
        self,
        work: impl Future<Output = T> + MaybeSend + 'static,
    ) -> T {
        let result = Arc::new(Mutex::new(None));
        let slot = result.clone();
        let (lender, shared) = (self.0.clone(), self.0.shared.clone());
        let owner = WorkOwner(Arc::new(LockedWork::new(Box::pin(async move {
            let done = work.await;
            *slot.lock() = Some(done);
            drop(self);
        }))));
        lender.lend(owner.0.clone());
        poll_fn(|context| {
            loop {
                shared.lock().waiting.add(context.waker());
                let done = result.lock().take();
                if let Some(done) = done {
                    return Poll::Ready(done);
                }
                if !owner.0.poll_to_end(&shared, context.waker()) {
                    return Poll::Pending;
                }
            }
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::pin;
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[test]
    fn one_at_a_time_and_everyone_in_the_end() {
        let (execution_lock, inside, done) = (
            Arc::new(ExecutionLock::default()),
            AtomicU32::new(0),
            AtomicU32::new(0),
        );
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        let guard = pollster::block_on(execution_lock.lock());
                        assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                        inside.fetch_sub(1, Ordering::SeqCst);
                        drop(guard);
                        done.fetch_add(1, Ordering::SeqCst);
                    }
                });
            }
        });
        assert_eq!(done.load(Ordering::SeqCst), 1600);
    }

    /// Counts how often it is woken.
    #[derive(Default)]
    struct Woken(AtomicU32);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn what_happens_while_another_polls_is_not_missed() {
        let execution_lock = Arc::new(ExecutionLock::default());
        let guard = execution_lock.try_lock();
        let (polled, goes_on) = (Arc::new(Barrier::new(2)), Arc::new(Barrier::new(2)));
        let mut is_first = true;
        let (inside, until) = (polled.clone(), goes_on.clone());
        let work = poll_fn(move |_| {
            if std::mem::take(&mut is_first) {
                inside.wait();
                until.wait();
                return Poll::Pending;
            }
            Poll::Ready(())
        });
        execution_lock.lend(Arc::new(LockedWork::new(Box::pin(async move {
            work.await;
            drop(guard);
        }))));
        let mut here = pin!(execution_lock.lock());
        let woken = Arc::new(Woken::default());
        let waker = Waker::from(woken.clone());
        let mut context = Context::from_waker(&waker);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut kept = pin!(execution_lock.lock());
                let mut noop = Context::from_waker(Waker::noop());
                // Polled once, and never again.
                assert!(kept.as_mut().poll(&mut noop).is_pending());
            });
            polled.wait();
            execution_lock.shared.wake_by_ref();
            assert!(here.as_mut().poll(&mut context).is_pending());
            goes_on.wait();
        });
        assert_eq!(woken.0.load(Ordering::SeqCst), 1);
        assert!(here.as_mut().poll(&mut context).is_ready());
    }

    #[test]
    fn a_waiter_that_gave_up_keeps_nobody_waiting() {
        let execution_lock = Arc::new(ExecutionLock::default());
        let held = execution_lock.try_lock();
        let mut waiting = Box::pin(execution_lock.lock());
        let mut context = Context::from_waker(Waker::noop());
        assert!(waiting.as_mut().poll(&mut context).is_pending());
        drop(waiting);
        drop(held);
        assert!(execution_lock.try_lock().is_some());
    }
}
