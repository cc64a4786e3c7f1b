//! The device that driver and handle share, and its lock.

use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::task::Poll;

use parking_lot::Mutex;

use super::files::FileFaults;
use super::queue::{Fate, State};
use crate::driver::Caps;

/// The state that driver and handle share.
pub(super) struct SimDevice {
    pub(super) caps: Caps,
    pub(super) pauses: u32,
    pub(super) files: FileFaults,
    /// Whether it was ever lost.
    pub(super) was_lost: Arc<AtomicBool>,
    pub(super) state: Mutex<State>,
}

impl SimDevice {
    /// Runs `work` under the lock, and sets the due signals after the lock is released: a woken
    /// thread may call the driver at once.
    pub(super) fn with<R>(&self, work: impl FnOnce(&mut State) -> R) -> R {
        let mut state = self.state.lock();
        let result = work(&mut state);
        let settled = std::mem::take(&mut state.settled);
        drop(state);
        for (signal, fate) in settled {
            match fate {
                Fate::Happened => signal.set(true),
                Fate::Failed => signal.set(false),
                Fate::Lost => signal.lose(),
            }
        }
        result
    }

    /// A future that is pending as often as the options say.
    pub(super) fn pause(&self) -> impl Future<Output = ()> {
        let mut left = self.pauses;
        poll_fn(move |context| {
            if left == 0 {
                return Poll::Ready(());
            }
            left -= 1;
            context.waker().wake_by_ref();
            Poll::Pending
        })
    }
}

debug_by_name!(SimDevice);
