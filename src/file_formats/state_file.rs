//! State files: named arrays of bytes, with element types and shapes, that outlive the process.
//!
//! A new file is written beside the old one, made durable, and only then renamed over it. After any
//! failure, or a kill, the old file is still there, whole. Each MiB has a checksum that is compared
//! before a byte of it is returned. So have the header and the table. The gaps between the arrays
//! must be zero. So no changed bit goes unnoticed.
//!
//! `format` defines the bytes of the file; `writer` and `reader` move them, piece by piece. This
//! module knows no tensors and no devices. A file may come from anybody: every number in it is
//! checked against the file's length before it is used.

mod format;
mod reader;
#[cfg(test)]
mod tests;
mod writer;

use std::io::{self, ErrorKind};
use std::path::Path;

use super::replace::Failure;
use lapidary_core::{Error, Result, failure::StateFailure};

pub(crate) use format::StateEntry;
pub(crate) use reader::StateReader;
pub(crate) use writer::StateWriter;

/// A problem with a file that is read or written.
#[derive(Debug)]
struct StateFault(StateFailure, String);

impl StateFault {
    fn damaged(reason: impl Into<String>) -> StateFault {
        StateFault(StateFailure::Damaged, reason.into())
    }

    fn at(self, path: &Path) -> Error {
        Error::State {
            path: path.display().to_string(),
            failure: self.0,
            reason: self.1,
        }
    }
}

/// The system's error for this operation.
fn io_error(path: &Path, operation: &str, error: &io::Error) -> Error {
    let reason = format!("could not {operation}: {error}");
    StateFault(kind_of(error.kind()), reason).at(path)
}

/// The error of a failed replacement.
fn failed(path: &Path, failure: Failure) -> Error {
    StateFault(kind_of(failure.kind), failure.reason).at(path)
}

fn kind_of(kind: ErrorKind) -> StateFailure {
    match kind {
        ErrorKind::NotFound => StateFailure::NotFound,
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => StateFailure::DiskFull,
        _ => StateFailure::Io,
    }
}

/// Refuses systems without files, and big-endian machines.
fn check_system(path: &Path) -> Result<()> {
    let reason = if cfg!(not(any(unix, windows))) {
        "there are no files on this system"
    } else if cfg!(target_endian = "big") {
        "this machine is big-endian, and the file is little-endian"
    } else {
        return Ok(());
    };
    Err(StateFault(StateFailure::Unavailable, reason.into()).at(path))
}
