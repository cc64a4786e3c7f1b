//! The blocking form of calls: a wrapper around the asynchronous form.

#[cfg(not(target_arch = "wasm32"))]
use std::task::{Context, Poll};

#[cfg(target_arch = "wasm32")]
use crate::error::Error;
use crate::error::Result;

/// Runs a future to its end on this thread.
#[cfg(not(target_arch = "wasm32"))]
pub fn block_on<T>(_what: &'static str, future: impl Future<Output = Result<T>>) -> Result<T> {
    let (mut future, mut result) = (std::pin::pin!(future), None);
    wait(&mut |context| {
        future
            .as_mut()
            .poll(context)
            .map(|ready| result = Some(ready))
    });
    result.expect("the future has ended")
}

/// Waits until a poll is ready. The loop is compiled once, not for each type of future.
#[cfg(not(target_arch = "wasm32"))]
fn wait(poll: &mut dyn FnMut(&mut Context<'_>) -> Poll<()>) {
    pollster::block_on(std::future::poll_fn(poll));
}

/// Polls a future once, because nothing may block in a browser. Fails if the future is pending.
#[cfg(target_arch = "wasm32")]
pub fn block_on<T>(what: &'static str, future: impl Future<Output = Result<T>>) -> Result<T> {
    let mut future = std::pin::pin!(future);
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    match future.as_mut().poll(&mut context) {
        std::task::Poll::Ready(result) => result,
        std::task::Poll::Pending => Err(Error::WouldBlock { what }),
    }
}
