//! The only way into wgpu: error scopes around the call, panics caught, and at the end the
//! question whether the device is still there. It costs more than many a call, so it is put once
//! where several calls make one step.

use std::panic::{AssertUnwindSafe, catch_unwind};
#[cfg(not(target_arch = "wasm32"))]
use std::pin::pin;
#[cfg(target_arch = "wasm32")]
use std::sync::MutexGuard;
use std::sync::PoisonError;
use std::task::{Context, Poll, Waker};

use super::super::{BoxFuture, DriverError, DriverResult, panic_message};
use super::Opened;

/// What a scope caught, once it is known: at once natively, some time later in a browser.
pub(super) type Late = BoxFuture<'static, Option<wgpu::Error>>;

/// The scopes around every call, the innermost last.
const SCOPES: [wgpu::ErrorFilter; 3] = [
    wgpu::ErrorFilter::OutOfMemory,
    wgpu::ErrorFilter::Internal,
    wgpu::ErrorFilter::Validation,
];

/// What became of a guarded call.
pub(super) struct Guarded<T> {
    value: DriverResult<T>,
    caught: [Late; 3],
}

impl Opened {
    /// Refuses when the device is known to be gone.
    pub(super) fn check(&self) -> DriverResult<()> {
        match self.progress.lost() {
            Some(reason) => Err(DriverError::Lost(reason.to_owned())),
            None => Ok(()),
        }
    }

    /// Runs calls to wgpu so that their errors reach us and nobody else.
    ///
    /// Scopes belong to a thread, natively, so nothing in `call` may be awaited. If the device is
    /// gone, wgpu calls back to say so, to us or to the app: the engine's lock must not be held.
    pub(super) fn guarded<T>(&self, call: impl FnOnce() -> T) -> Guarded<T> {
        self.guarded_or(call, Self::gone)
    }

    /// As [`guarded`](Self::guarded) for calls under the engine's lock: nobody is called back, and
    /// a loss that is found here has no better reason than that it was found.
    pub(super) fn guarded_quietly<T>(&self, call: impl FnOnce() -> T) -> Guarded<T> {
        self.guarded_or(call, Self::found_gone)
    }

    fn guarded_or<T>(
        &self,
        call: impl FnOnce() -> T,
        gone: impl FnOnce(&Self) -> DriverError,
    ) -> Guarded<T> {
        let mut guarded = self.scoped(call);
        if !self.is_here() {
            guarded.value = Err(gone(self));
        }
        guarded
    }

    /// Runs calls as [`guarded`](Self::guarded) does, where a success means nothing before a later
    /// call has succeeded which asks for the device: only a failure asks here.
    pub(super) fn in_passing<T>(&self, call: impl FnOnce() -> DriverResult<T>) -> DriverResult<T> {
        let result = self.at_once(call).and_then(|result| result);
        result.map_err(|error| match self.is_here() {
            true => error,
            false => self.gone(),
        })
    }

    /// Runs calls in scopes and tells what they caught: natively that is known at once, and what
    /// could keep it for later is not made.
    #[cfg(not(target_arch = "wasm32"))]
    fn at_once<T>(&self, call: impl FnOnce() -> T) -> DriverResult<T> {
        let scopes = SCOPES.map(|filter| self.device.push_error_scope(filter));
        let value = unscoped(|| Ok(call()));
        let mut first = None;
        // Scopes have to be popped in reverse order.
        for scope in scopes.into_iter().rev() {
            let popped = pin!(scope.pop());
            let mut context = Context::from_waker(Waker::noop());
            if let Poll::Ready(error) = popped.poll(&mut context) {
                first = first.or(error);
            }
        }
        verdict(value, first)
    }

    #[cfg(target_arch = "wasm32")]
    fn at_once<T>(&self, call: impl FnOnce() -> T) -> DriverResult<T> {
        self.now(self.scoped(call))
    }

    fn scoped<T>(&self, call: impl FnOnce() -> T) -> Guarded<T> {
        let [outer, middle, inner] = SCOPES.map(|filter| self.device.push_error_scope(filter));
        let value = unscoped(|| Ok(call()));
        // Scopes have to be popped in reverse order.
        let inner: Late = Box::pin(inner.pop());
        let middle: Late = Box::pin(middle.pop());
        let outer: Late = Box::pin(outer.pop());
        Guarded {
            value,
            caught: [inner, middle, outer],
        }
    }

    /// The verdict on a guarded call, without waiting. What a browser has yet to tell is kept
    /// and told by the next wait: a poll finds it too, but has nobody to tell.
    pub(super) fn now<T>(&self, guarded: Guarded<T>) -> DriverResult<T> {
        let mut first = None;
        let mut context = Context::from_waker(Waker::noop());
        for mut scope in guarded.caught {
            match scope.as_mut().poll(&mut context) {
                Poll::Ready(error) => first = first.or(error),
                Poll::Pending => self.keep(scope),
            }
        }
        verdict(guarded.value, first)
    }

    /// Natively there is nothing to keep: a scope tells at once.
    #[cfg(not(target_arch = "wasm32"))]
    fn keep(&self, scope: Late) {
        let mut late = self.late.lock().unwrap_or_else(PoisonError::into_inner);
        late.push(scope);
    }

    /// Keeps a scope for later. Nobody may ever wait or poll, so what is known by now goes where
    /// the list would have to grow: half of it is free after that, and a scope costs little on
    /// average.
    #[cfg(target_arch = "wasm32")]
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

    /// Lets go of the scopes that are known by now. The first error among them stays for the next
    /// wait.
    #[cfg(target_arch = "wasm32")]
    pub(super) fn sweep(&self) {
        if let Some(error) = self.take_late() {
            self.late().insert(0, told(error));
        }
    }

    /// Lets go of the scopes that are known by now, and tells the first error among them.
    #[cfg(target_arch = "wasm32")]
    pub(super) fn take_late(&self) -> Option<wgpu::Error> {
        let mut first = None;
        // Whoever waits for a scope has taken it out of the list, so that no waker is lost here.
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

    #[cfg(target_arch = "wasm32")]
    pub(super) fn late(&self) -> MutexGuard<'_, Vec<Late>> {
        self.late.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The verdict on a guarded call, in a browser after a wait.
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

    /// Does the device still take calls? After a loss or a `destroy`, wgpu makes objects that do
    /// not work and reports nothing. What does tell is to ask for a mapping of a buffer that was
    /// destroyed: a device that is there objects, one that is gone is silent. (A buffer that
    /// could be mapped would be, now and then, by another thread's poll.)
    #[cfg(not(target_arch = "wasm32"))]
    fn is_here(&self) -> bool {
        use wgpu::ErrorFilter::Validation;
        if self.progress.lost().is_some() {
            return false;
        }
        // Nothing here calls back, so the lock may be held meanwhile.
        let probe = self.probe.lock().unwrap_or_else(PoisonError::into_inner);
        let asked = catch_unwind(AssertUnwindSafe(|| {
            let question = self.device.push_error_scope(Validation);
            probe.map_async(wgpu::MapMode::Read, .., |_| ());
            let answer = pollster::block_on(question.pop());
            // Only so that it can be asked again.
            let scope = self.device.push_error_scope(Validation);
            probe.unmap();
            drop(scope.pop());
            answer.is_some()
        }));
        asked.unwrap_or(false)
    }

    /// A browser tells by its promise that the device is lost, and by nothing else.
    #[cfg(target_arch = "wasm32")]
    fn is_here(&self) -> bool {
        self.progress.lost().is_none()
    }

    /// The device turned out to be gone: says so to all who wait. Before that wgpu has the chance
    /// to call back with the reason, to us or to the app, and to free what it holds.
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
        let reason = self.progress.lost().unwrap_or_default();
        DriverError::Lost(reason.to_owned())
    }
}

/// The buffer to ask the device with, destroyed already; none where the device takes no calls.
pub(super) fn probe(device: &wgpu::Device) -> Option<wgpu::Buffer> {
    use wgpu::ErrorFilter::{OutOfMemory, Validation};
    let [outer, inner] = [OutOfMemory, Validation].map(|filter| device.push_error_scope(filter));
    let probe = device.create_buffer(&wgpu::BufferDescriptor {
        label: Some("lapidary probe"),
        size: 8,
        usage: wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST,
        mapped_at_creation: false,
    });
    // A device that is gone made a buffer that cannot even be asked for.
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

/// Runs calls to wgpu whose result says what went wrong, or whose scopes are there already.
pub(super) fn unscoped<T>(call: impl FnOnce() -> DriverResult<T>) -> DriverResult<T> {
    catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|panic| {
        let message = panic_message(panic.as_ref());
        Err(DriverError::Invalid(format!("wgpu panicked: {message}")))
    })
}

/// An error that is known, in the place of the scope that caught it.
#[cfg(target_arch = "wasm32")]
pub(super) fn told(error: wgpu::Error) -> Late {
    Box::pin(std::future::ready(Some(error)))
}

fn verdict<T>(value: DriverResult<T>, error: Option<wgpu::Error>) -> DriverResult<T> {
    match (value, error) {
        (Err(DriverError::Lost(reason)), _) => Err(DriverError::Lost(reason)),
        (_, Some(error)) => Err(driver_error(&error)),
        (value, None) => value,
    }
}

/// wgpu's error in our words.
pub(super) fn driver_error(error: &wgpu::Error) -> DriverError {
    match error {
        wgpu::Error::OutOfMemory { .. } => DriverError::OutOfMemory,
        wgpu::Error::Validation { description, .. } | wgpu::Error::Internal { description, .. } => {
            DriverError::Invalid(description.clone())
        }
    }
}
