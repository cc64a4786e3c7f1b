//! The line that the tags of new storages name, if it is not the caller's.
//!
//! A backward calls functions of the library, whose lines would tell the app nothing. Their
//! tensors belong to the lines of the app that recorded the operations.

use std::cell::Cell;
use std::marker::PhantomData;
use std::panic::Location;

type CallSite = Option<&'static Location<'static>>;

thread_local! {
    static SITE: Cell<CallSite> = const { Cell::new(None) };
}

/// While it lives, the storages that its thread makes are for a line. Guards end in the opposite
/// order.
#[derive(Debug)]
#[must_use = "it ends when it is dropped"]
pub struct MadeFor {
    before: CallSite,
    /// It belongs to the thread on which it began.
    _thread: PhantomData<*const ()>,
}

impl MadeFor {
    /// Storages are for this line, whoever makes them.
    pub fn line(site: &'static Location<'static>) -> Self {
        MadeFor::begin(Some(site))
    }

    /// Storages are for the lines that make them: the app's own functions.
    pub fn callers() -> Self {
        MadeFor::begin(None)
    }

    /// Storages are for the caller's line, also where a closure makes them.
    #[track_caller]
    pub fn caller() -> Self {
        MadeFor::line(MadeFor::or(Location::caller()))
    }

    /// The line for what this caller makes now.
    pub fn or(caller: &'static Location<'static>) -> &'static Location<'static> {
        // While a thread ends, its thread-local values may be gone already.
        let site = SITE.try_with(Cell::get).ok().flatten();
        site.unwrap_or(caller)
    }

    fn begin(site: CallSite) -> Self {
        MadeFor {
            before: SITE.replace(site),
            _thread: PhantomData,
        }
    }
}

impl Drop for MadeFor {
    fn drop(&mut self) {
        let _ = SITE.try_with(|site| site.set(self.before));
    }
}
