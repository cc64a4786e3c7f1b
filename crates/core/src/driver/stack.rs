//! Room to recurse: shader texts are parsed, checked and translated by recursion. And what is
//! said by those who panic over them.

use std::any::Any;

/// Far more than a thread has that Rust, an async runtime or the operating system starts: 2 MiB,
/// 1 MiB, or 512 KiB. Only what is touched is taken.
#[cfg(not(target_arch = "wasm32"))]
const STACK_BYTES: usize = 32 << 20;

/// Does work that recurses deeply, on a thread with the stack for it; here if there can be no
/// thread.
#[cfg(not(target_arch = "wasm32"))]
pub(crate) fn with_deep_stack<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    use std::panic::resume_unwind;
    use std::thread;

    // Whoever runs it takes it out.
    let mut waiting = Some(work);
    let done = thread::scope(|scope| {
        let builder = thread::Builder::new().name("lapidary shaders".into());
        let builder = builder.stack_size(STACK_BYTES);
        let spawned = builder.spawn_scoped(scope, || waiting.take().map(|work| work()));
        spawned.map_or(Ok(None), |thread| thread.join())
    });
    match (done, waiting) {
        (Ok(Some(value)), _) => value,
        (Err(panic), _) => resume_unwind(panic),
        (Ok(None), work) => work.expect("no thread was started, so nobody took the work")(),
    }
}

/// A browser has one thread, and compiles elsewhere.
#[cfg(target_arch = "wasm32")]
pub(crate) fn with_deep_stack<T>(work: impl FnOnce() -> T) -> T {
    work()
}

/// What a caught panic said.
pub(crate) fn panic_message(panic: &(dyn Any + Send)) -> &str {
    let owned = panic.downcast_ref::<String>().map(String::as_str);
    owned
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("no message")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deep_work_is_done_on_a_thread_with_little_stack() {
        fn deep(levels: u64) -> u64 {
            let frame = std::hint::black_box([levels; 64]);
            if levels == 0 {
                0
            } else {
                deep(levels - 1) + frame[63] / levels
            }
        }
        let small = std::thread::Builder::new().stack_size(64 << 10);
        let done = small.spawn(|| with_deep_stack(|| deep(10_000))).unwrap();
        assert_eq!(done.join().unwrap(), 10_000);
        let panicked = std::panic::catch_unwind(|| with_deep_stack(|| assert_eq!(1, 2)));
        assert!(panicked.is_err());
    }
}
