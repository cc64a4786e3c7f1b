//! Errors of a kernel, shown at their line with carets below the place.

use std::ops::Range;
use std::sync::Arc;

use crate::error::{Error, KernelError};
use crate::excerpt::{excerpt, shown};

/// Most characters of a line that an excerpt shows.
const MOST_COLUMNS: usize = 100;

/// Most characters of a message from another library.
const MOST_MESSAGE: usize = 1000;

/// An error about a kernel as a whole.
pub(super) fn error(kernel: &str, message: impl Into<String>) -> Error {
    error_with(kernel, message.into(), String::new())
}

/// An error about a place in the kernel's text, if it is known.
pub(super) fn error_at(
    kernel: &str,
    text: &str,
    place: impl Into<Option<Range<usize>>>,
    label: &str,
    message: impl Into<String>,
) -> Error {
    let excerpt = place.into().map(|place| excerpt(text, place, label));
    error_with(kernel, message.into(), excerpt.unwrap_or_default())
}

fn error_with(kernel: &str, message: String, excerpt: String) -> Error {
    Error::Kernel(Arc::new(KernelError {
        kernel: shown(kernel, MOST_COLUMNS).replace('\n', " "),
        message: shown(&message, MOST_MESSAGE),
        excerpt,
    }))
}
