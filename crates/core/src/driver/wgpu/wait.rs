//! Waits for submissions and mappings, and polls.
//!
//! A wait inside wgpu ends as soon as the device is done. But it blocks `Surface::present`. And
//! wgpu 30 can panic when the wait times out while another thread polls. So only a device of our
//! own is waited for inside wgpu, with a timeout that is never reached in practice. A device shared
//! with an app is polled again and again.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::super::failure::invalid;
use super::super::{DriverError, DriverResult, Signal};
use super::guard::Guard;

impl Guard {
    /// Polls the device. wgpu panics here if it finds that the device is lost.
    pub(super) fn poll_device(&self, kind: wgpu::PollType) -> DriverResult<()> {
        self.look(kind)?;
        self.ask()
    }

    /// Asks whether the device still exists.
    #[cfg(not(target_arch = "wasm32"))]
    fn ask(&self) -> DriverResult<()> {
        let nothing = self.guarded(|| ());
        self.now(nothing)
    }

    /// A browser reports a loss by itself. This takes in its other reports so far.
    #[cfg(target_arch = "wasm32")]
    fn ask(&self) -> DriverResult<()> {
        self.sweep();
        self.check()
    }

    /// Polls the device without asking whether it still exists.
    pub(super) fn look(&self, kind: wgpu::PollType) -> DriverResult<()> {
        let result = catch_unwind(AssertUnwindSafe(|| self.device.poll(kind)));
        // A panic may concern the loss, which is found when the device is asked, or a timeout. It
        // may also come from a callback of the app; then the device works.
        drop(result);
        self.check()
    }

    fn outcome(&self, signal: &Signal) -> DriverResult<()> {
        match signal.outcome() {
            Some(true) => Ok(()),
            _ => {
                self.check()?;
                if signal.is_lost() {
                    return Err(DriverError::replaced());
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

    /// The time of polling without pauses. After it, each pause is a sixteenth of the time waited
    /// so far, so that no wait is much too long. A system sleeps for at least 50 microseconds, even
    /// if less is requested, so short waits have no pauses.
    const RESTLESS: Duration = Duration::from_micros(500);
    const SHORTEST_PAUSE: Duration = Duration::from_micros(20);
    const LONGEST_PAUSE: Duration = Duration::from_millis(1);

    impl Guard {
        /// Blocks until the signal is set or the device is lost.
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

        /// Waits for the submission that must be done. If that is not enough, it waits for all
        /// submissions: a buffer of the app may wait for the app's work.
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

    use super::super::guard::{Late, as_late, driver_error};
    use super::*;

    impl Guard {
        /// Waits until the browser calls back, and returns errors that it reported late.
        pub(in super::super) async fn wait_for(&self, signal: &Signal) -> DriverResult<()> {
            self.check()?;
            self.tell_late()?;
            // A browser reports in order: once the last report is known, all earlier ones are.
            let last = self.late().pop();
            if let Some(last) = last {
                let scope = Some(last);
                Awaited { of: self, scope }.await;
                self.tell_late()?;
            }
            signal.happened().await;
            self.outcome(signal)
        }

        fn tell_late(&self) -> DriverResult<()> {
            match self.take_late() {
                Some(error) => Err(driver_error(&error)),
                None => Ok(()),
            }
        }
    }

    /// A scope that a wait has taken out of the list. Its error returns to the end of the list, so
    /// that earlier errors are reported first. If the wait is dropped, the scope itself returns to
    /// the list.
    struct Awaited<'a> {
        of: &'a Guard,
        scope: Option<Late>,
    }

    impl Future for Awaited<'_> {
        type Output = ();

        fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
            if let Some(scope) = &mut self.scope {
                match scope.as_mut().poll(context) {
                    Poll::Ready(error) => self.scope = error.map(as_late),
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
