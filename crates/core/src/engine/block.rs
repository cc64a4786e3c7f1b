//! The blocking form of calls: a wrapper around the asynchronous form.

#[cfg(target_arch = "wasm32")]
use crate::error::Error;
use crate::error::Result;

/// Runs a future to its end on this thread.
#[cfg(not(target_arch = "wasm32"))]
pub fn block_on<T>(_what: &'static str, future: impl Future<Output = Result<T>>) -> Result<T> {
    pollster::block_on(future)
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
