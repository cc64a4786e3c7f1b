//! The only way into wgpu. Each call runs inside error scopes, panics are caught, and at the end
//! the guard asks whether the device still exists. That question costs more than many calls.
//! Several calls that form one step ask it once.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
#[cfg(not(target_arch = "wasm32"))]
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};

use super::super::{BoxFuture, DriverError, DriverResult, panic_message};
use super::progress::QueueProgress;

/// The error that a scope caught, once it is known: at once natively, later in a browser.
pub(super) type Late = BoxFuture<'static, Option<wgpu::Error>>;

/// The scopes of a call that runs.
type Scopes = [wgpu::ErrorScopeGuard; SCOPES.len()];

/// The scopes around every call, the innermost last.
const SCOPES: [wgpu::ErrorFilter; 3] = [
    wgpu::ErrorFilter::OutOfMemory,
    wgpu::ErrorFilter::Internal,
    wgpu::ErrorFilter::Validation,
];

/// The result of a guarded call, and its scopes.
pub(super) struct Guarded<T> {
    value: DriverResult<T>,
    caught: [Late; 3],
}

/// A device of wgpu with what the guard needs: whether it is lost, and the errors that it reports.
pub(super) struct Guard {
    pub(super) device: wgpu::Device,
    pub(super) progress: Arc<QueueProgress>,
    pub(super) buffers_created: AtomicU64,
    /// The longest single wait inside wgpu. `None` if waits inside wgpu are not allowed.
    #[cfg_attr(
        target_arch = "wasm32",
        allow(dead_code, reason = "a browser cannot block")
    )]
    pub(super) longest_wait: Option<Duration>,
    /// A destroyed buffer, with which the guard asks whether the device still takes calls.
    #[cfg_attr(
        target_arch = "wasm32",
        allow(dead_code, reason = "a browser tells by itself")
    )]
    probe: Mutex<wgpu::Buffer>,
    /// The scopes whose errors a browser has not reported yet.
    late: Mutex<Vec<Late>>,
}

impl Guard {
    /// `None` if the device takes no calls.
    pub(super) fn new(device: wgpu::Device, longest_wait: Option<Duration>) -> Option<Self> {
        let probe = probe(&device)?;
        Some(Guard {
            device,
            progress: Arc::default(),
            // The probe is the first buffer.
            buffers_created: AtomicU64::new(1),
            longest_wait,
            probe: Mutex::new(probe),
            late: Mutex::default(),
        })
    }

    /// Takes the device's callback for its loss. On an adopted device the callback belongs to the
    /// app, which may leave it to the engine.
    pub(super) fn watch_lost(&self) {
        let progress = Arc::clone(&self.progress);
        self.device
            .set_device_lost_callback(move |reason, message| {
                let reason = match (reason, message.trim().trim_end_matches('.')) {
                    (wgpu::DeviceLostReason::Destroyed, "") => "it was destroyed".to_owned(),
                    (_, "") => "its driver does not say why".to_owned(),
                    (_, message) => message.to_owned(),
                };
                progress.lose(&reason);
            });
    }

    /// Refuses if the device is known to be lost.
    pub(super) fn check(&self) -> DriverResult<()> {
        match self.progress.lost() {
            Some(reason) => Err(lost(reason)),
            None => Ok(()),
        }
    }

    /// Runs calls to wgpu so that only this driver gets their errors.
    ///
    /// Natively scopes belong to a thread, so `call` must not await. If the device is lost, wgpu
    /// calls back to the engine or the app, so the caller must not hold the engine's lock.
    pub(super) fn guarded<T>(&self, call: impl FnOnce() -> T) -> Guarded<T> {
        self.guarded_or(call, Self::gone)
    }

    /// As [`guarded`](Self::guarded), for calls under the engine's lock. wgpu calls no callback. So
    /// the reason for a loss that is found here is only that it was found.
    pub(super) fn guarded_quietly<T>(&self, call: impl FnOnce() -> T) -> Guarded<T> {
        self.guarded_or(call, Self::found_gone)
    }

    fn guarded_or<T>(
        &self,
        call: impl FnOnce() -> T,
        gone: fn(&Self) -> DriverError,
    ) -> Guarded<T> {
        let mut guarded = self.scoped(call);
        if !self.is_here() {
            guarded.value = Err(gone(self));
        }
        guarded
    }

    /// Runs calls as [`guarded`](Self::guarded) does, but asks the device only after an error.
    /// This is for calls whose success matters only if a later call succeeds, and that later call
    /// asks.
    pub(super) fn in_passing<T>(&self, call: impl FnOnce() -> DriverResult<T>) -> DriverResult<T> {
        let result = self.at_once(call).and_then(|result| result);
        result.map_err(|error| match self.is_here() {
            true => error,
            false => self.gone(),
        })
    }

    /// Runs a function of the app, which calls wgpu itself. An error of its calls is returned. A
    /// panic of the app goes on.
    pub(super) fn around_app<T>(&self, call: impl FnOnce() -> T) -> DriverResult<T> {
        let scopes = self.push_scopes();
        let value = call();
        // The app may have left a scope of its own behind, and wgpu panics at ours then.
        let caught = catch_unwind(AssertUnwindSafe(|| pop(scopes))).map_err(panicked)?;
        let value = Ok(value);
        self.now(Guarded { value, caught })
    }

    /// Runs calls in scopes and returns the errors that they caught. Natively these are known at
    /// once, so nothing is allocated to keep scopes for later.
    #[cfg(not(target_arch = "wasm32"))]
    fn at_once<T>(&self, call: impl FnOnce() -> T) -> DriverResult<T> {
        let scopes = self.push_scopes();
        let value = unscoped(|| Ok(call()));
        verdict(value, pop_at_once(scopes))
    }

    #[cfg(target_arch = "wasm32")]
    fn at_once<T>(&self, call: impl FnOnce() -> T) -> DriverResult<T> {
        self.now(self.scoped(call))
    }

    fn scoped<T>(&self, call: impl FnOnce() -> T) -> Guarded<T> {
        let scopes = self.push_scopes();
        let value = unscoped(|| Ok(call()));
        Guarded {
            value,
            caught: pop(scopes),
        }
    }

    fn push_scopes(&self) -> Scopes {
        SCOPES.map(|filter| self.device.push_error_scope(filter))
    }

    /// The result of a guarded call, without a wait. Errors that a browser reports later are kept
    /// for the next wait. A poll finds them too, but has no caller to report them to.
    pub(super) fn now<T>(&self, guarded: Guarded<T>) -> DriverResult<T> {
        verdict(guarded.value, self.first_of(guarded.caught))
    }

    /// The first error that is known, by the order of the scopes. Others are kept.
    fn first_of(&self, caught: [Late; 3]) -> Option<wgpu::Error> {
        let mut first = None;
        let mut context = Context::from_waker(Waker::noop());
        for mut scope in caught {
            match scope.as_mut().poll(&mut context) {
                Poll::Ready(error) => first = first.or(error),
                Poll::Pending => self.keep(scope),
            }
        }
        first
    }

    /// Keeps a scope for later. Natively no scope comes here, since all results are known at once.
    /// The app may never wait or poll. So when the list is full, the scopes with a known result are
    /// removed first. Then the list grows until half of it is free, so a scope costs little on
    /// average.
    fn keep(&self, scope: Late) {
        let mut late = self.late();
        if late.len() == late.capacity() {
            drop(late);
            self.sweep();
            late = self.late();
            let left = late.len();
            late.reserve(left);
        }
        late.push(scope);
    }

    /// Removes the scopes with a known result. The first error among them stays for the next wait.
    pub(super) fn sweep(&self) {
        if let Some(error) = self.take_late() {
            self.late().insert(0, as_late(error));
        }
    }

    /// Removes the scopes with a known result, and returns the first error among them.
    pub(super) fn take_late(&self) -> Option<wgpu::Error> {
        let mut first = None;
        // A waiting thread has taken its scope out of the list, so this poll replaces no waker.
        let mut context = Context::from_waker(Waker::noop());
        self.late()
            .retain_mut(|scope| match scope.as_mut().poll(&mut context) {
                Poll::Ready(error) => {
                    first = first.take().or(error);
                    false
                }
                Poll::Pending => true,
            });
        first
    }

    pub(super) fn late(&self) -> MutexGuard<'_, Vec<Late>> {
        self.late.lock()
    }

    /// The result of a guarded call. In a browser this waits.
    pub(super) async fn settled<T>(&self, guarded: Guarded<T>) -> DriverResult<T> {
        let mut first = None;
        for scope in guarded.caught {
            let error = scope.await;
            first = first.or(error);
        }
        let value = verdict(guarded.value, first);
        self.check()?;
        value
    }

    /// Whether the device still takes calls. After a loss or a `destroy`, wgpu creates objects that
    /// do not work and reports no error. But a request to map a destroyed buffer tells: an existing
    /// device reports an error, a lost one does not. (Another thread's poll would sometimes map a
    /// buffer that can be mapped.)
    #[cfg(not(target_arch = "wasm32"))]
    fn is_here(&self) -> bool {
        use wgpu::ErrorFilter::Validation;
        if self.progress.lost().is_some() {
            return false;
        }
        // Nothing here calls back, so the lock may be held.
        let probe = self.probe.lock();
        let asked = catch_unwind(AssertUnwindSafe(|| {
            let question = self.device.push_error_scope(Validation);
            probe.map_async(wgpu::MapMode::Read, .., |_| ());
            let answer = pollster::block_on(question.pop());
            // The unmap only makes the probe ready for the next question.
            let scope = self.device.push_error_scope(Validation);
            probe.unmap();
            drop(scope.pop());
            answer.is_some()
        }));
        asked.unwrap_or(false)
    }

    /// A browser reports a loss only by the promise of the device.
    #[cfg(target_arch = "wasm32")]
    fn is_here(&self) -> bool {
        self.progress.lost().is_none()
    }

    /// Reports the loss of the device to all waiting threads. Before that, a poll lets wgpu call
    /// back with the reason, to the engine or the app, and free its memory.
    pub(super) fn gone(&self) -> DriverError {
        if self.progress.lost().is_none() {
            let poll = || self.device.poll(wgpu::PollType::Poll);
            drop(catch_unwind(AssertUnwindSafe(poll)));
        }
        self.found_gone()
    }

    fn found_gone(&self) -> DriverError {
        self.progress
            .lose("it takes no more calls: it was destroyed, or its driver failed");
        lost(self.progress.lost().unwrap_or_default())
    }
}

#[cold]
fn lost(reason: &str) -> DriverError {
    DriverError::Lost(reason.to_owned())
}

/// A buffer for the question, already destroyed. `None` if the device takes no calls.
fn probe(device: &wgpu::Device) -> Option<wgpu::Buffer> {
    use wgpu::ErrorFilter::{OutOfMemory, Validation};
    let [outer, inner] = [OutOfMemory, Validation].map(|filter| device.push_error_scope(filter));
    let probe = device.create_buffer(&wgpu::BufferDescriptor {
        label: Some("lapidary probe"),
        size: 8,
        usage: wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST,
        mapped_at_creation: false,
    });
    // A lost device creates a buffer for which even a mapping cannot be requested.
    probe.map_async(wgpu::MapMode::Read, .., |_| ());
    let mut context = Context::from_waker(Waker::noop());
    let refused = matches!(
        Box::pin(inner.pop()).as_mut().poll(&mut context),
        Poll::Ready(Some(_))
    );
    let last = device.push_error_scope(Validation);
    probe.unmap();
    probe.destroy();
    drop(last.pop());
    drop(outer.pop());
    (!refused).then_some(probe)
}

/// Runs calls to wgpu that return their own errors, or that run inside scopes already.
pub(super) fn unscoped<T>(call: impl FnOnce() -> DriverResult<T>) -> DriverResult<T> {
    catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|panic| Err(panicked(panic)))
}

#[cold]
fn panicked(panic: Box<dyn Any + Send>) -> DriverError {
    let message = panic_message(panic.as_ref());
    DriverError::Invalid(format!("wgpu panicked: {message}"))
}

/// Takes scopes off. This has to happen in reverse order.
fn pop(scopes: Scopes) -> [Late; 3] {
    let [outer, middle, inner] = scopes;
    let inner: Late = Box::pin(inner.pop());
    let middle: Late = Box::pin(middle.pop());
    let outer: Late = Box::pin(outer.pop());
    [inner, middle, outer]
}

/// Takes scopes off, as [`pop`] does, and returns the first error that they caught.
#[cfg(not(target_arch = "wasm32"))]
fn pop_at_once(scopes: Scopes) -> Option<wgpu::Error> {
    let mut first = None;
    for scope in scopes.into_iter().rev() {
        let popped = pin!(scope.pop());
        let mut context = Context::from_waker(Waker::noop());
        if let Poll::Ready(error) = popped.poll(&mut context) {
            first = first.or(error);
        }
    }
    first
}

/// A known error in the form of a scope that caught it.
pub(super) fn as_late(error: wgpu::Error) -> Late {
    Box::pin(std::future::ready(Some(error)))
}

fn verdict<T>(value: DriverResult<T>, error: Option<wgpu::Error>) -> DriverResult<T> {
    match (value, error) {
        (Err(DriverError::Lost(reason)), _) => Err(DriverError::Lost(reason)),
        (_, Some(error)) => Err(driver_error(&error)),
        (value, None) => value,
    }
}

/// Converts an error of wgpu.
pub(super) fn driver_error(error: &wgpu::Error) -> DriverError {
    match error {
        wgpu::Error::OutOfMemory { .. } => DriverError::OutOfMemory,
        wgpu::Error::Validation { description, .. } | wgpu::Error::Internal { description, .. } => {
            DriverError::Invalid(description.clone())
        }
    }
}
