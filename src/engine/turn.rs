//! Whose turn it is to walk: an asynchronous mutex without data.
//!
//! The walk must await (a slab, a pipeline, a submission) with the engine's own lock released, and
//! yet be the only one: whoever holds the turn is. A waiter that is dropped leaves nothing behind:
//! giving the turn back wakes all who wait, and the first to be polled has it.

use std::future::poll_fn;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

#[derive(Debug, Default)]
pub(super) struct Turn {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    taken: bool,
    waiting: Vec<Waker>,
}

/// The turn, given back on drop.
#[derive(Debug)]
pub(super) struct TurnGuard<'a>(&'a Turn);

impl Turn {
    /// Waits for the turn.
    pub(super) async fn take(&self) -> TurnGuard<'_> {
        poll_fn(|context| {
            let mut state = self.lock();
            if !state.taken {
                state.taken = true;
                return Poll::Ready(());
            }
            if !state
                .waiting
                .iter()
                .any(|other| other.will_wake(context.waker()))
            {
                state.waiting.push(context.waker().clone());
            }
            Poll::Pending
        })
        .await;
        TurnGuard(self)
    }

    /// The turn, if nobody has it.
    pub(super) fn try_take(&self) -> Option<TurnGuard<'_>> {
        let mut state = self.lock();
        if std::mem::replace(&mut state.taken, true) {
            return None;
        }
        Some(TurnGuard(self))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for TurnGuard<'_> {
    fn drop(&mut self) {
        let waiting = {
            let mut state = self.0.lock();
            state.taken = false;
            std::mem::take(&mut state.waiting)
        };
        waiting.into_iter().for_each(Waker::wake);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[test]
    fn one_at_a_time_and_everyone_in_the_end() {
        let (turn, inside, done) = (Turn::default(), AtomicU32::new(0), AtomicU32::new(0));
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        let guard = pollster::block_on(turn.take());
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

    #[test]
    fn a_waiter_that_gave_up_keeps_nobody_waiting() {
        let turn = Turn::default();
        let held = turn.try_take();
        let mut waiting = Box::pin(turn.take());
        let mut context = std::task::Context::from_waker(Waker::noop());
        assert!(waiting.as_mut().poll(&mut context).is_pending());
        drop(waiting);
        drop(held);
        assert!(turn.try_take().is_some());
    }
}
