//! The line that the tags of new storages name, if it is not the caller's. And the method that
//! errors of new commands name.
//!
//! A backward calls functions of the library, whose lines would tell the app nothing. Their
//! tensors belong to the lines of the app that recorded the operations. A method may be composed of
//! others, and its kernel may have another name. The app knows the name that it called.

use std::cell::Cell;
use std::marker::PhantomData;
use std::panic::Location;

type CallSite = Option<&'static Location<'static>>;

thread_local! {
    static SITE: Cell<CallSite> = const { Cell::new(None) };

    /// The outermost method; empty outside a method. Like `SITE` it has no destructor, so a thread
    /// may use it while it ends.
    static METHOD: Cell<&'static str> = const { Cell::new("") };
}

/// While it lives, the storages that its thread makes are for a line. Guards end in the opposite
/// order.
#[derive(Debug)]
#[must_use = "it ends when it is dropped"]
pub struct MadeFor {
    before: CallSite,
    method: &'static str,
    /// It belongs to the thread on which it began.
    _thread: PhantomData<*const ()>,
}

impl MadeFor {
    /// Storages are for this line, whoever makes them.
    pub fn line(site: &'static Location<'static>) -> Self {
        MadeFor::begin(Some(site), METHOD.get())
    }

    /// Storages are for the lines that make them, and commands for the methods that append them:
    /// those that the app's own functions call.
    pub fn callers() -> Self {
        MadeFor::begin(None, "")
    }

    /// Commands are for this method, unless a method that calls it has begun. Each operation begins
    /// with it, so it is as cheap as can be.
    #[inline]
    pub fn method(name: &'static str) -> InMethod {
        let is_outermost = METHOD.get().is_empty();
        if is_outermost {
            METHOD.set(name);
        }
        InMethod {
            is_outermost,
            _thread: PhantomData,
        }
    }

    /// The method that the app called; empty outside a method.
    #[inline]
    pub(crate) fn method_now() -> &'static str {
        METHOD.get()
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

    fn begin(site: CallSite, method: &'static str) -> Self {
        MadeFor {
            before: SITE.replace(site),
            method: METHOD.replace(method),
            _thread: PhantomData,
        }
    }
}

impl Drop for MadeFor {
    fn drop(&mut self) {
        let _ = SITE.try_with(|site| site.set(self.before));
        METHOD.set(self.method);
    }
}

/// While it lives, the commands that its thread appends are for a method.
#[derive(Debug)]
#[must_use = "it ends when it is dropped"]
pub struct InMethod {
    is_outermost: bool,
    /// It belongs to the thread on which it began.
    _thread: PhantomData<*const ()>,
}

impl Drop for InMethod {
    #[inline]
    fn drop(&mut self) {
        if self.is_outermost {
            METHOD.set("");
        }
    }
}
