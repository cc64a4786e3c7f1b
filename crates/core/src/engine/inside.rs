//! Which functions of the app this thread is inside of.
//!
//! The app is called under the execution lock: what waits for that lock meanwhile would wait for
//! ever, and is refused. What a rematerializer appends goes to a list of its own.

use std::cell::Cell;

thread_local! {
    /// The engines for which this thread is inside a function of the app, by address, the innermost
    /// first; 0 for none. Without a destructor, so that a thread that ends may still call.
    static INSIDE: Cell<[usize; 4]> = const { Cell::new([0; 4]) };

    /// The engine for which this thread runs a rematerializer, by address; 0 for none.
    static RECORDING: Cell<usize> = const { Cell::new(0) };
}

/// This thread is inside a function of the app until this is dropped, perhaps under the execution
/// lock.
pub(super) struct Inside([usize; 4]);

impl Inside {
    /// The thread calls a function of the app for the engine at this address.
    pub(super) fn enter(engine: usize) -> Self {
        let [first, second, third, _] = INSIDE.get();
        Inside(INSIDE.replace([engine, first, second, third]))
    }

    /// Is this thread inside a function of the app that the engine at this address called?
    pub(super) fn is_of(engine: usize) -> bool {
        INSIDE.get().contains(&engine)
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        INSIDE.set(self.0);
    }
}

/// While it lives, what this thread appends is a rematerializer's.
pub(super) struct Recording(usize);

impl Recording {
    /// The thread runs a rematerializer for the engine at this address.
    pub(super) fn begin(engine: usize) -> Self {
        Recording(RECORDING.replace(engine))
    }

    /// Does this thread run a rematerializer for the engine at this address?
    pub(super) fn is_of(engine: usize) -> bool {
        RECORDING.get() == engine
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        RECORDING.set(self.0);
    }
}
