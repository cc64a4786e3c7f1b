//! Waiting for what is on its way, and polling.
//!
//! A wait inside wgpu ends the moment the device is done. But it keeps `Surface::present` out, and
//! when its time is up while another thread polls, wgpu 30 can panic. So only a device of our
//! own is waited for inside wgpu, for so long that the time is never up in earnest; a device that
//! is shared with an app is looked at again and again.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::super::{DriverError, DriverResult, REPLACED, Signal};
use super::{Opened, invalid};

impl Opened {
    /// Polls the device. wgpu panics here when the device turns out to be lost.
    pub(super) fn poll_device(&self, kind: wgpu::PollType) -> DriverResult<()> {
        self.look(kind)?;
        self.ask()
    }

    /// Asks whether the device is still there.
    fn ask(&self) -> DriverResult<()> {
        let nothing = self.guarded(|| ());
        self.now(nothing)
    }

    /// Polls the device without the question whether it is still there.
    pub(super) fn look(&self, kind: wgpu::PollType) -> DriverResult<()> {
        let result = catch_unwind(AssertUnwindSafe(|| self.device.poll(kind)));
        // What panicked was about the loss, which is found when the device is asked, or about time,
        // or was a callback of the app's: then the device is fine.
        drop(result);
        self.check()
    }

    fn outcome(&self, signal: &Signal) -> DriverResult<()> {
        match signal.outcome() {
            Some(true) => Ok(()),
            _ => {
                self.check()?;
                if signal.is_lost() {
                    return Err(DriverError::Lost(REPLACED.to_owned()));
                }
                invalid("the mapping was refused or ended before it began")
            }
        }
    }
}

#[cfg(not(target_arch = "wasm32"))]
mod native {
    use std::thread;
    use std::time::{Duration, Instant};

    use super::*;

    /// How long a device is looked at without a pause, and the pauses after that: a sixteenth of
    /// what was waited so far, so that no wait is much longer than it has to be. A system sleeps
    /// for 50 microseconds and more, however few it is asked for, so short waits have no pause.
    const RESTLESS: Duration = Duration::from_micros(500);
    const SHORTEST_PAUSE: Duration = Duration::from_micros(20);
    const LONGEST_PAUSE: Duration = Duration::from_millis(1);

    impl Opened {
        /// Blocks until the signal is set or the device is gone.
        #[allow(clippy::unused_async, reason = "in a browser the same function awaits")]
        pub(in super::super) async fn wait_for(&self, signal: &Signal) -> DriverResult<()> {
            self.check()?;
            if let Some(timeout) = self.longest_wait {
                self.wait_inside(signal, timeout)?;
            }
            if signal.outcome().is_none() {
                self.look_until_set(signal)?;
            }
            self.outcome(signal)
        }

        fn look_until_set(&self, signal: &Signal) -> DriverResult<()> {
            let started = Instant::now();
            loop {
                self.look(wgpu::PollType::Poll)?;
                if signal.outcome().is_some() {
                    break;
                }
                let waited = started.elapsed();
                if waited < RESTLESS {
                    thread::yield_now();
                } else {
                    self.ask()?;
                    thread::sleep((waited / 16).clamp(SHORTEST_PAUSE, LONGEST_PAUSE));
                }
            }
            self.ask()
        }

        /// Waits for the submission that must be done; if that was not all, for all of them: a
        /// buffer of the app's may wait for the app's work.
        fn wait_inside(&self, signal: &Signal, timeout: Duration) -> DriverResult<()> {
            let index = self.progress.index_of(signal.serial());
            let first = match index {
                Some(index) => wait(Some(index), timeout),
                None => wgpu::PollType::Poll,
            };
            for kind in [first, wait(None, timeout)] {
                if signal.outcome().is_none() {
                    self.check()?;
                    self.poll_device(kind)?;
                }
            }
            Ok(())
        }
    }

    fn wait(submission_index: Option<wgpu::SubmissionIndex>, timeout: Duration) -> wgpu::PollType {
        wgpu::PollType::Wait {
            submission_index,
            timeout: Some(timeout),
        }
    }
}

#[cfg(target_arch = "wasm32")]
impl Opened {
    /// Waits until the browser calls back, and tells of errors that came late.
    pub(super) async fn wait_for(&self, signal: &Signal) -> DriverResult<()> {
        self.check()?;
        let late = std::mem::take(&mut *self.late.lock().unwrap_or_else(|e| e.into_inner()));
        for scope in late {
            if let Some(error) = scope.await {
                return Err(super::guard::driver_error(&error));
            }
        }
        std::future::poll_fn(|context| {
            signal.wake_on_set(context.waker());
            match signal.outcome() {
                Some(_) => std::task::Poll::Ready(()),
                None => std::task::Poll::Pending,
            }
        })
        .await;
        self.outcome(signal)
    }
}
