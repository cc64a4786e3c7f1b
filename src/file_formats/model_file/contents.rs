//! The bytes of a model file: read at positions, never mapped.
//!
//! If another process truncates a mapped file, the next access kills this process. A read at a
//! position returns an error instead. It costs the same single copy, from the system's cache to the
//! destination.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use super::fault::ModelFault;
use lapidary_core::failure::ModelFailure;
use lapidary_core::internal::SpillFile;

pub(super) enum Contents {
    File {
        file: SpillFile,
        /// Size and time when the file was opened.
        len_bytes: u64,
        modified: Option<SystemTime>,
    },
    Bytes(Arc<[u8]>),
}

impl Contents {
    pub(super) fn open(path: &Path) -> Result<Contents, ModelFault> {
        check_files()?;
        let failed = |error| io_fault("open it", &error);
        // Check before opening: opening a pipe waits for its other end, and a device has no end.
        let kind = fs::metadata(path).map_err(failed)?;
        if !kind.is_file() {
            let reason = match kind.is_dir() {
                true => "it is a folder",
                false => "it is not a regular file",
            };
            return Err(ModelFault(ModelFailure::Io, reason.into()));
        }
        let file = File::open(path).map_err(failed)?;
        let known = file.metadata().map_err(failed)?;
        let file = SpillFile::over(file);
        Ok(Contents::File {
            file,
            len_bytes: known.len(),
            modified: known.modified().ok(),
        })
    }

    pub(super) fn len_bytes(&self) -> u64 {
        match self {
            Contents::File { len_bytes, .. } => *len_bytes,
            Contents::Bytes(bytes) => bytes.len() as u64,
        }
    }

    /// Fills `into` from a position on. It returns no bytes of a file that has changed.
    pub(super) fn read(&self, offset_bytes: u64, into: &mut [u8]) -> Result<(), ModelFault> {
        match self {
            Contents::Bytes(bytes) => {
                let from = usize::try_from(offset_bytes).ok();
                let from = from.and_then(|from| bytes.get(from..)?.get(..into.len()));
                let from = from.ok_or_else(|| ModelFault::damaged("it ends before"))?;
                into.copy_from_slice(from);
                Ok(())
            }
            Contents::File {
                file,
                len_bytes,
                modified,
            } => {
                let read = file.read(into, offset_bytes);
                // Check after reading: an unchanged file now was unchanged during the read.
                let now = file
                    .metadata()
                    .map_err(|error| io_fault("read its size and time", &error))?;
                if now.len() != *len_bytes {
                    let reason = format!(
                        "it had {len_bytes} bytes when it was opened, and has {} now",
                        now.len()
                    );
                    return Err(ModelFault(ModelFailure::Changed, reason));
                }
                if now.modified().ok() != *modified {
                    let reason = "it was written to after it had been opened";
                    return Err(ModelFault(ModelFailure::Changed, reason.into()));
                }
                match read {
                    Ok(true) => Ok(()),
                    Ok(false) => Err(ModelFault::damaged("it ends before")),
                    Err(error) => Err(io_fault("read it", &error)),
                }
            }
        }
    }
}

/// Refuses systems without files.
pub(super) fn check_files() -> Result<(), ModelFault> {
    if cfg!(not(any(unix, windows))) {
        let reason = "there are no files on this system";
        return Err(ModelFault(ModelFailure::Unavailable, reason.into()));
    }
    Ok(())
}

/// The system's error for this operation.
fn io_fault(operation: &str, error: &std::io::Error) -> ModelFault {
    let reason = format!("could not {operation}: {error}");
    ModelFault(kind_of(error.kind()), reason)
}

pub(super) fn kind_of(kind: ErrorKind) -> ModelFailure {
    match kind {
        ErrorKind::NotFound => ModelFailure::NotFound,
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => ModelFailure::DiskFull,
        _ => ModelFailure::Io,
    }
}
