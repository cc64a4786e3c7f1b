//! State files: named arrays of bytes, with element types and shapes, that outlive the process.
//!
//! A file is written beside the one that it is to replace, made durable, and only then given its
//! name: whatever fails or is killed on the way, the old file is there, whole. Each MiB has a
//! checksum that is compared before a byte of it is handed out, and so have the header and the
//! table; what lies between the arrays must be zero. So there is no bit that can change unseen.
//!
//! `format` is what the file looks like, `writer` and `reader` move the bytes, piece by piece.
//! Nothing here knows of tensors or devices. A file may come from anybody: no number in it is
//! believed before it is held against the file's length.

mod format;
mod reader;
#[cfg(test)]
mod tests;
mod writer;

use std::io::{self, ErrorKind};
use std::path::Path;

use super::replace::Failure;
use lapidary_core::{Error, Result, StateFailure};

pub(crate) use format::Entry;
pub(crate) use reader::StateReader;
pub(crate) use writer::StateWriter;

/// What is wrong with a file, or with what is to become one.
#[derive(Debug)]
struct Fault(StateFailure, String);

impl Fault {
    fn damaged(reason: impl Into<String>) -> Fault {
        Fault(StateFailure::Damaged, reason.into())
    }

    fn at(self, path: &Path) -> Error {
        Error::State {
            path: path.display().to_string(),
            failure: self.0,
            reason: self.1,
        }
    }
}

/// What the system said, of this attempt.
fn io_error(path: &Path, operation: &str, error: &io::Error) -> Error {
    let reason = format!("could not {operation}: {error}");
    Fault(kind_of(error.kind()), reason).at(path)
}

/// What kept a file from replacing another.
fn failed(path: &Path, failure: Failure) -> Error {
    Fault(kind_of(failure.kind), failure.reason).at(path)
}

fn kind_of(kind: ErrorKind) -> StateFailure {
    match kind {
        ErrorKind::NotFound => StateFailure::NotFound,
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => StateFailure::DiskFull,
        _ => StateFailure::Io,
    }
}

/// Refuses where files cannot be, or would have to be turned around.
fn check_system(path: &Path) -> Result<()> {
    let reason = if cfg!(not(any(unix, windows))) {
        "there are no files on this system"
    } else if cfg!(target_endian = "big") {
        "this machine keeps the high byte first, the file the low one"
    } else {
        return Ok(());
    };
    Err(Fault(StateFailure::Unavailable, reason.into()).at(path))
}
