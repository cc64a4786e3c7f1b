//! The execution lock: an asynchronous mutex without data.
//!
//! An execution pass awaits slabs, pipelines and submissions with the engine's lock released. The
//! execution lock keeps it the only pass meanwhile. A dropped waiter leaves nothing behind: an
//! unlock wakes all waiters, and the first one to be polled gets the lock.
//!
//! In a browser a pass really waits, and the app may keep its future without polling it, or drop
//! it. So the work of such a pass belongs to the lock. Whoever wants the lock polls that work, and
//! so it always runs to its end. It is dropped with the last handle of the engine. It has none
//! itself, or it would keep the lock that keeps it.

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
use crate::finally::Finally;

/// Whether any pass of this program may have to wait.
const MAY_WAIT: bool = cfg!(any(target_arch = "wasm32", test, feature = "sim"));

#[derive(Default)]
pub(crate) struct ExecutionLock {
    waiters: Arc<Waiters>,
    /// The work of a pass that has the lock and may have to wait. Locked after `waiters`.
    work: Mutex<Option<Arc<Work>>>,
}

/// Those who wait for the lock. They are apart from the work, which has no handle of the lock, and
/// which in a browser may not change threads as a waker may.
#[derive(Default)]
pub(crate) struct Waiters(Mutex<State>);

#[derive(Default)]
struct State {
    taken: bool,
    /// Whether the pass that has the lock has left its work there.
    has_work: bool,
    /// The waiters for the lock, and the owner of the work if it waits for something else.
    waiting: Wakers,
}

/// The wakers of tasks, each once.
#[derive(Default)]
struct Wakers(Vec<Waker>);

/// Holds the execution lock until it is dropped. `None` once its work unlocks.
pub(crate) struct ExecutionGuard(Option<Arc<ExecutionLock>>);

impl ExecutionLock {
    pub(crate) fn new(waiters: Arc<Waiters>) -> Arc<Self> {
        Arc::new(ExecutionLock {
            waiters,
            work: Mutex::default(),
        })
    }

    /// Waits for the execution lock and polls the work of its holder meanwhile.
    pub(crate) async fn lock(self: &Arc<Self>) -> ExecutionGuard {
        loop {
            if let Some(guard) = self.lock_unless(|| false).await {
                return guard;
            }
        }
    }

    /// As [`lock`](Self::lock), but `None` if the lock's holder has done what the caller wants.
    /// `is_done` is asked whenever the holder [notifies](Waiters::notify) the waiters.
    pub(super) async fn lock_unless(
        self: &Arc<Self>,
        is_done: impl Fn() -> bool,
    ) -> Option<ExecutionGuard> {
        let is_locked = poll_fn(|context| {
            loop {
                let mut state = self.waiters.0.lock();
                if !state.taken {
                    state.taken = true;
                    return Poll::Ready(true);
                }
                state.waiting.add(context.waker());
                let work = self.work_of(&state);
                drop(state);
                // After the waker is there, so that no notice comes between.
                if is_done() {
                    return Poll::Ready(false);
                }
                if !work.is_some_and(|work| work.poll_to_end(self, context.waker())) {
                    return Poll::Pending;
                }
            }
        });
        is_locked.await.then(|| ExecutionGuard(Some(self.clone())))
    }

    /// The execution lock, if it is free. Work whose owner is gone runs as far as it can before.
    pub(super) fn try_lock(self: &Arc<Self>) -> Option<ExecutionGuard> {
        loop {
            let work = {
                let mut state = self.waiters.0.lock();
                if !state.taken {
                    state.taken = true;
                    return Some(ExecutionGuard(Some(self.clone())));
                }
                self.work_of(&state)
            };
            let work = work.filter(|work| !work.has_owner.load(Ordering::Acquire))?;
            if !work.poll_to_end(self, Waker::noop()) {
                return None;
            }
        }
    }

    fn work_of(&self, state: &State) -> Option<Arc<Work>> {
        (MAY_WAIT && state.has_work).then(|| self.work.lock().clone())?
    }

    /// The work of the lock's holder, from now on.
    fn begin(&self, work: Arc<Work>) {
        let mut state = self.waiters.0.lock();
        state.has_work = true;
        *self.work.lock() = Some(work);
    }

    fn unlock(&self) {
        let (work, waiting) = {
            let mut state = self.waiters.0.lock();
            state.taken = false;
            let has_work = MAY_WAIT && std::mem::take(&mut state.has_work);
            let work = has_work.then(|| self.work.lock().take());
            (work, std::mem::take(&mut state.waiting))
        };
        waiting.wake();
        // Outside the lock.
        drop(work);
    }
}

impl Waiters {
    /// Lets the waiters see whether the holder of the lock has done what they want.
    pub(super) fn notify(&self) {
        let waiting = std::mem::take(&mut self.0.lock().waiting);
        waiting.wake();
    }
}

/// A wake-up of the work wakes all waiters.
impl Wake for Waiters {
    fn wake(self: Arc<Self>) {
        self.notify();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.notify();
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
        if let Some(lock) = &self.0 {
            lock.unlock();
        }
    }
}

/// The work of a pass that has the execution lock. Its end unlocks.
struct Work {
    future: Mutex<Option<BoxFuture<'static, ()>>>,
    /// Tasks that found another task polling the work. They poll it next, because their wake-up may
    /// have come too late for the other task, which may never poll again.
    missed_wakers: Mutex<Wakers>,
    /// Whether somebody waits for the result.
    has_owner: AtomicBool,
}

/// Unlocks when it is dropped, unless the work has not ended. If the work panics, it has.
struct Ends<'a>(Option<&'a ExecutionLock>);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        if let Some(lock) = self.0 {
            lock.unlock();
        }
    }
}

impl Work {
    fn new(future: BoxFuture<'static, ()>) -> Self {
        Work {
            future: Mutex::new(Some(future)),
            missed_wakers: Mutex::default(),
            has_owner: AtomicBool::new(true),
        }
    }

    /// Polls the work, unless another thread is polling it; that thread then wakes `by`. Returns
    /// whether the work has ended.
    fn poll_to_end(&self, lock: &ExecutionLock, by: &Waker) -> bool {
        // It unlocks after `slot` is let go of, even if the work panics: whoever that wakes finds
        // the slot free.
        let mut ends = Ends(None);
        let tried = self.future.try_lock().or_else(|| {
            self.missed_wakers().add(by);
            // The other thread may have read `missed_wakers` just before this entry.
            self.future.try_lock()
        });
        let Some(mut slot) = tried else {
            return false;
        };
        let Some(mut future) = slot.take() else {
            return true;
        };
        ends.0 = Some(lock);
        let waker = Waker::from(lock.waiters.clone());
        let has_ended = (future.as_mut())
            .poll(&mut Context::from_waker(&waker))
            .is_ready();
        if !has_ended {
            ends.0 = None;
            *slot = Some(future);
            drop(slot);
        } else {
            drop(slot);
            // The values of the work are dropped outside its lock.
            drop(future);
        }
        let missed_wakers = std::mem::take(&mut *self.missed_wakers());
        missed_wakers.wake();
        has_ended
    }

    fn missed_wakers(&self) -> MutexGuard<'_, Wakers> {
        self.missed_wakers.lock()
    }
}

impl ExecutionGuard {
    /// Runs `work`, which gets no handle of the lock, and releases the lock. If this is dropped,
    /// whoever wants the lock runs the work to its end. `None` if it panicked in another task.
    pub(super) async fn run<T: MaybeSend + 'static>(
        mut self,
        work: impl Future<Output = T> + MaybeSend + 'static,
    ) -> Option<T> {
        let result = Arc::new(Mutex::new(None));
        let slot = result.clone();
        let work = Arc::new(Work::new(Box::pin(async move {
            let done = work.await;
            *slot.lock() = Some(done);
        })));
        let _owner = Finally(|| work.has_owner.store(false, Ordering::Release));
        // From now on the end of the work unlocks.
        let lock = self.0.take()?;
        lock.begin(work.clone());
        poll_fn(|context| {
            lock.waiters.0.lock().waiting.add(context.waker());
            let has_ended = work.poll_to_end(&lock, context.waker());
            let done = result.lock().take();
            match done.is_some() || has_ended {
                true => Poll::Ready(done),
                false => Poll::Pending,
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
        std::mem::forget(guard);
        execution_lock.begin(Arc::new(Work::new(Box::pin(work))));
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
            execution_lock.waiters.notify();
            assert!(here.as_mut().poll(&mut context).is_pending());
            goes_on.wait();
        });
        assert_eq!(woken.0.load(Ordering::SeqCst), 1);
        assert!(here.as_mut().poll(&mut context).is_ready());
    }

    /// Work that waits so often, and then counts.
    fn waits(times: u32, ended: &Arc<AtomicU32>) -> impl Future<Output = ()> + use<> {
        let (mut left, ended) = (times, ended.clone());
        poll_fn(move |context| {
            if left == 0 {
                ended.fetch_add(1, Ordering::SeqCst);
                return Poll::Ready(());
            }
            left -= 1;
            context.waker().wake_by_ref();
            Poll::Pending
        })
    }

    #[test]
    fn work_ends_wherever_its_owner_drops_it() {
        let ended = Arc::new(AtomicU32::new(0));
        for polls in 1..6 {
            let execution_lock = Arc::new(ExecutionLock::default());
            let guard = execution_lock.try_lock().unwrap();
            let mut owner = Box::pin(guard.run(waits(4, &ended)));
            let mut context = Context::from_waker(Waker::noop());
            let has_ended = (0..polls).any(|_| owner.as_mut().poll(&mut context).is_ready());
            assert_eq!(has_ended, polls > 4);
            drop(owner);
            // Each call that wants the lock without waiting for it gets the work a bit further.
            let tries = (0..).find(|_| execution_lock.try_lock().is_some());
            assert_eq!(tries, Some(4_u32.saturating_sub(polls)));
            assert_eq!(ended.load(Ordering::SeqCst), polls);
            drop(pollster::block_on(execution_lock.lock()));
        }
    }

    #[test]
    fn work_is_dropped_with_the_last_handle_of_the_lock() {
        let held = Arc::new(());
        let inside = held.clone();
        let execution_lock = Arc::new(ExecutionLock::default());
        let guard = execution_lock.try_lock().unwrap();
        let mut owner = Box::pin(guard.run(async move {
            std::future::pending::<()>().await;
            drop(inside);
        }));
        let mut context = Context::from_waker(Waker::noop());
        assert!(owner.as_mut().poll(&mut context).is_pending());
        drop(owner);
        assert!(execution_lock.try_lock().is_none());
        assert_eq!(Arc::strong_count(&held), 2);
        drop(execution_lock);
        assert_eq!(Arc::strong_count(&held), 1);
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
