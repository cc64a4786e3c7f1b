//! The errors of a call name the method that the app called, and the app's line.
//!
//! An operation may be composed of others, whose errors have their names. Each public method
//! renames the errors of what it calls; the outermost one does it last. The line is that of the
//! caller, as far as all functions between are `#[track_caller]`. Errors of commands that run later
//! get the name from `MadeFor::method`, with which each method that appends commands begins.

use std::panic::Location;

use lapidary_core::internal::MadeFor;
use lapidary_core::{Error, Result};

/// What stands in front of the line.
const AT: &str = " (called at ";

pub(crate) trait Called {
    /// Names this method and the caller's line in an error.
    #[track_caller]
    fn called(self, operation: &'static str) -> Self;

    /// Adds the caller's line to an error.
    #[track_caller]
    fn located(self) -> Self;
}

impl<T> Called for Result<T> {
    #[inline]
    #[track_caller]
    fn called(mut self, operation: &'static str) -> Self {
        if let Err(error) = &mut self {
            rename(error, operation);
            locate(error, Location::caller());
        }
        self
    }

    #[inline]
    #[track_caller]
    fn located(mut self) -> Self {
        if let Err(error) = &mut self {
            locate(error, Location::caller());
        }
        self
    }
}

#[cold]
fn rename(error: &mut Error, called: &'static str) {
    match error {
        Error::Shape { operation, .. }
        | Error::DType { operation, .. }
        | Error::Axis { operation, .. }
        | Error::Length { operation, .. }
        | Error::Foreign { operation }
        | Error::Gradient { operation, .. } => *operation = called,
        Error::NeverFits { by, .. } => *by = called.to_owned(),
        _ => {}
    }
}

#[cold]
fn locate(error: &mut Error, caller: &'static Location<'static>) {
    let caller = MadeFor::or(caller);
    if is_ours(caller.file()) {
        return;
    }
    let line = format!("{AT}{}:{})", caller.file(), caller.line());
    match error {
        Error::Shape { reason: text, .. }
        | Error::DType { at: text, .. }
        | Error::Length { at: text, .. }
        | Error::Axis { at: text, .. }
        | Error::NeverFits { by: text, .. }
            if !text.contains(AT) =>
        {
            // Further lines of a reason may point at a column.
            let first = text.find('\n').unwrap_or(text.len());
            text.insert_str(text[..first].trim_end_matches(':').len(), &line);
        }
        _ => {}
    }
}

/// Whether a file is one of this crate. An error from there gets its line further out.
fn is_ours(file: &str) -> bool {
    let sources = &file!()[..file!().len() - "tensor/called.rs".len()];
    file.starts_with(sources)
}
