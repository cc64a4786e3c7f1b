//! A deep stack for recursion: shader texts are parsed, checked and translated recursively. Also
//! the message of a caught panic.

use std::any::Any;

/// Far more than the stacks that Rust, async runtimes or operating systems start threads with: 2
/// MiB, 1 MiB, or 512 KiB. Only the touched part takes memory.
#[cfg(not(target_arch = "wasm32"))]
const STACK_BYTES: usize = 32 << 20;

/// Runs work that recurses deeply on a thread with a large stack. If no thread can be started, it
/// runs on this one.
#[cfg(not(target_arch = "wasm32"))]
pub(crate) fn with_deep_stack<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    let (mut waiting, mut done) = (Some(work), None);
    on_deep_stack(&mut || done = waiting.take().map(|work| work()));
    done.expect("the work was run once")
}

#[cfg(not(target_arch = "wasm32"))]
fn on_deep_stack(work: &mut (dyn FnMut() + Send)) {
    use std::panic::resume_unwind;
    use std::thread;

    let ended = thread::scope(|scope| {
        let builder = thread::Builder::new().name("lapidary shaders".into());
        let builder = builder.stack_size(STACK_BYTES);
        let spawned = builder.spawn_scoped(scope, &mut *work);
        spawned.map(|thread| thread.join())
    });
    match ended {
        Ok(Ok(())) => {}
        Ok(Err(panic)) => resume_unwind(panic),
        // No thread was started.
        Err(_) => work(),
    }
}

/// A browser has one thread, and compiles outside of it.
#[cfg(target_arch = "wasm32")]
pub(crate) fn with_deep_stack<T>(work: impl FnOnce() -> T) -> T {
    work()
}

/// The message of a caught panic.
#[cold]
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
