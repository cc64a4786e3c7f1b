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
    #[cfg(not(target_arch = "wasm32"))]
    fn ask(&self) -> DriverResult<()> {
        let nothing = self.guarded(|| ());
        self.now(nothing)
    }

    /// A browser tells of a loss by itself; what else it has told by now is taken in.
    #[cfg(target_arch = "wasm32")]
    fn ask(&self) -> DriverResult<()> {
        self.sweep();
        self.check()
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
mod web {
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use super::super::guard::{Late, driver_error, told};
    use super::*;

    impl Opened {
        /// Waits until the browser calls back, and tells of errors that came late.
        pub(in super::super) async fn wait_for(&self, signal: &Signal) -> DriverResult<()> {
            self.check()?;
            self.tell_late()?;
            // A browser tells in order: what was asked before the last is known once that is.
            let last = self.late().pop();
            if let Some(last) = last {
                let scope = Some(last);
                Awaited { of: self, scope }.await;
                self.tell_late()?;
            }
            std::future::poll_fn(|context| {
                signal.wake_on_set(context.waker());
                match signal.outcome() {
                    Some(_) => Poll::Ready(()),
                    None => Poll::Pending,
                }
            })
            .await;
            self.outcome(signal)
        }

        fn tell_late(&self) -> DriverResult<()> {
            match self.take_late() {
                Some(error) => Err(driver_error(&error)),
                None => Ok(()),
            }
        }
    }

    /// A scope that is waited for, out of the list meanwhile. What it caught goes back into the
    /// list, to be told after what was caught before it; so does the scope itself, if the wait is
    /// given up.
    struct Awaited<'a> {
        of: &'a Opened,
        scope: Option<Late>,
    }

    impl Future for Awaited<'_> {
        type Output = ();

        fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
            if let Some(scope) = &mut self.scope {
                match scope.as_mut().poll(context) {
                    Poll::Ready(error) => self.scope = error.map(told),
                    Poll::Pending => return Poll::Pending,
                }
            }
            Poll::Ready(())
        }
    }

    impl Drop for Awaited<'_> {
        fn drop(&mut self) {
            if let Some(scope) = self.scope.take() {
                self.of.late().push(scope);
            }
        }
    }
}
