//! An event on the device. A callback sets it once, and any thread may wait for it.

#[cfg(any(test, feature = "sim", target_arch = "wasm32"))]
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
#[cfg(any(test, feature = "sim", target_arch = "wasm32"))]
use std::task::Poll;
use std::task::Waker;

use parking_lot::Mutex;

const PENDING: u8 = 0;
const DONE: u8 = 1;
const FAILED: u8 = 2;
const LOST: u8 = 3;

/// A one-shot event. Cloning is cheap, and all clones are the same event.
#[derive(Clone, Debug)]
pub(crate) struct Signal(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    state: AtomicU8,
    serial: u64,
    wakers: Mutex<Vec<Waker>>,
}

impl Signal {
    /// An event that cannot happen before submission `serial` is done.
    pub(crate) fn after(serial: u64) -> Self {
        Signal(Arc::new(Inner {
            state: AtomicU8::new(PENDING),
            serial,
            wakers: Mutex::new(Vec::new()),
        }))
    }

    /// The serial of the submission that must be done first; 0 for none.
    pub(crate) fn serial(&self) -> u64 {
        self.0.serial
    }

    /// Sets the outcome: the event happened, or with `false` it never will. Only the first call
    /// counts.
    pub(crate) fn set(&self, happened: bool) {
        self.settle(if happened { DONE } else { FAILED });
    }

    /// Marks the event as lost with its device. This also replaces an earlier failure, which may
    /// have been reported before the loss was known.
    pub(crate) fn lose(&self) {
        self.settle(LOST);
        self.replace(FAILED, LOST);
    }

    /// Whether the event was lost with its device.
    pub(crate) fn is_lost(&self) -> bool {
        self.0.state.load(Ordering::Acquire) == LOST
    }

    /// Replaces a state, if it is the present one.
    fn replace(&self, old: u8, new: u8) -> bool {
        let (success, failure) = (Ordering::AcqRel, Ordering::Acquire);
        let state = &self.0.state;
        state.compare_exchange(old, new, success, failure).is_ok()
    }

    fn settle(&self, state: u8) {
        if self.replace(PENDING, state) {
            let wakers = std::mem::take(&mut *self.0.wakers.lock());
            wakers.into_iter().for_each(Waker::wake);
        }
    }

    /// Waits for the outcome. Native devices have other ways to wait.
    #[cfg(any(test, feature = "sim", target_arch = "wasm32"))]
    pub(super) async fn happened(&self) -> bool {
        poll_fn(|context| match self.outcome() {
            Some(happened) => Poll::Ready(happened),
            None => {
                self.wake_on_set(context.waker());
                Poll::Pending
            }
        })
        .await
    }

    /// `None` while the event is pending, then whether it happened.
    pub(crate) fn outcome(&self) -> Option<bool> {
        match self.0.state.load(Ordering::Acquire) {
            PENDING => None,
            state => Some(state == DONE),
        }
    }

    /// Wakes `waker` when the event happens, or at once if it already has. Native devices wake no
    /// waker.
    #[cfg(any(test, feature = "sim", target_arch = "wasm32"))]
    pub(crate) fn wake_on_set(&self, waker: &Waker) {
        let mut wakers = self.0.wakers.lock();
        if self.outcome().is_some() {
            drop(wakers);
            waker.wake_by_ref();
        } else if !wakers.iter().any(|other| other.will_wake(waker)) {
            wakers.push(waker.clone());
        }
    }
}
