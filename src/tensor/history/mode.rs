//! Whether this thread records operations.

use std::cell::Cell;
use std::marker::PhantomData;

thread_local! {
    /// The number of guards on this thread under which nothing is recorded. It is below 0 while a
    /// guard that does not count has ended.
    static PAUSED: Cell<i32> = const { Cell::new(0) };

    /// Counts the tensors with a history whose operations this thread did not record.
    static SKIPPED: Cell<u64> = const { Cell::new(0) };
}

/// Is nothing recorded on this thread?
pub(crate) fn is_paused() -> bool {
    PAUSED.get() > 0
}

/// Is an operation on a tensor with a history recorded?
pub(super) fn records_one() -> bool {
    let is_paused = is_paused();
    if is_paused {
        SKIPPED.set(SKIPPED.get().wrapping_add(1));
    }
    !is_paused
}

/// Calls a function and records nothing. Says whether it would have recorded something.
pub(crate) fn unrecorded<T>(function: impl FnOnce() -> T) -> (T, bool) {
    let _paused = Paused::new();
    let before = SKIPPED.get();
    let made = function();
    (made, SKIPPED.get() != before)
}

/// While it lives, its thread records nothing, or records again. Guards may end in any order.
#[derive(Debug)]
pub(crate) struct Paused {
    change: Change,
    /// It must end on the thread on which it began.
    _thread: PhantomData<*const ()>,
}

#[derive(Debug)]
enum Change {
    /// One guard more.
    More,
    /// The guards that were there do not count.
    Without(i32),
}

impl Paused {
    /// Nothing is recorded.
    pub(crate) fn new() -> Self {
        PAUSED.set(PAUSED.get() + 1);
        Paused::by(Change::More)
    }

    /// Operations are recorded, whatever guards there are.
    pub(crate) fn not() -> Self {
        Paused::by(Change::Without(PAUSED.replace(0)))
    }

    fn by(change: Change) -> Self {
        Paused {
            change,
            _thread: PhantomData,
        }
    }
}

impl Drop for Paused {
    fn drop(&mut self) {
        let now = PAUSED.get();
        PAUSED.set(match self.change {
            Change::More => now - 1,
            Change::Without(before) => now + before,
        });
    }
}
