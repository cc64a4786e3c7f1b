//! The functions of the app that this thread is inside of.
//!
//! The app is called under the execution lock. A call of the app that waits for that lock would
//! wait for ever, so it is refused. Commands that a rematerializer appends go to a separate list.

use std::cell::Cell;

use crate::memory::MadeFor;
use crate::waits::Paused;

thread_local! {
    /// The addresses of the engines that called a function of the app on this thread, the innermost
    /// first; 0 for none. It has no destructor, so that a thread may call the engine while it ends.
    static INSIDE: Cell<[usize; 4]> = const { Cell::new([0; 4]) };

    /// The address of the engine that runs a rematerializer on this thread; 0 for none.
    static RECORDING: Cell<usize> = const { Cell::new(0) };
}

/// Until this is dropped, the thread is inside a function of the app, perhaps under the execution
/// lock. What the function makes is for its own lines and calls.
pub(super) struct Inside {
    before: [usize; 4],
    _made_for: MadeFor,
    _paused: Paused,
}

impl Inside {
    /// Notes that the engine at this address calls a function of the app.
    pub(super) fn enter(engine: usize) -> Self {
        let [first, second, third, _] = INSIDE.get();
        Inside {
            before: INSIDE.replace([engine, first, second, third]),
            _made_for: MadeFor::callers(),
            _paused: Paused::enter(),
        }
    }

    /// Whether the thread is inside a function of the app that the engine at this address called.
    pub(super) fn is_of(engine: usize) -> bool {
        INSIDE.get().contains(&engine)
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        INSIDE.set(self.before);
    }
}

/// Until this is dropped, the thread appends commands to the list of a rematerializer.
pub(super) struct Recording(usize);

impl Recording {
    /// Notes that the engine at this address runs a rematerializer.
    pub(super) fn begin(engine: usize) -> Self {
        Recording(RECORDING.replace(engine))
    }

    /// Whether this thread runs a rematerializer of the engine at this address.
    pub(super) fn is_of(engine: usize) -> bool {
        RECORDING.get() == engine
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        RECORDING.set(self.0);
    }
}
