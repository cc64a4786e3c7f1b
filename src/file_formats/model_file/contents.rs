//! The bytes of a model file: read at positions, never mapped.
//!
//! If another process truncates a mapped file, the next access kills this process. A read at a
//! position returns an error instead. It costs the same single copy, from the system's cache to the
//! destination.
//!
//! What a source of the app gives may come later. So a range of it is awaited first, as a [`Part`],
//! and then read like all others.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use super::fault::ModelFault;
use lapidary_core::internal::SpillFile;
use lapidary_core::{Source, failure::ModelFailure};

pub(super) enum Contents {
    File {
        file: SpillFile,
        /// Size and time when the file was opened.
        len_bytes: u64,
        modified: Option<SystemTime>,
    },
    Bytes(Arc<[u8]>),
    Source {
        source: Source,
        len_bytes: u64,
    },
    Part(Part),
}

/// A range of a file that a source gave.
#[derive(Default)]
pub(super) struct Part {
    start_bytes: u64,
    pub(super) bytes: Vec<u8>,
    file_bytes: u64,
    /// Where the last read in vain ended.
    missed_bytes: AtomicU64,
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
            Contents::Source { len_bytes, .. } => *len_bytes,
            Contents::Part(part) => part.file_bytes,
        }
    }

    /// Awaits the rest of a range whose beginning a part has, if a source gives the file. Returns
    /// whether it does.
    pub(super) async fn fetch(
        &self,
        range: Range<u64>,
        into: &mut Part,
    ) -> Result<bool, ModelFault> {
        let Contents::Source { source, len_bytes } = self else {
            return Ok(false);
        };
        let (had, end) = (into.bytes.len(), range.end.min(*len_bytes));
        let missing = (end.saturating_sub(range.start) as usize).saturating_sub(had);
        if into.bytes.try_reserve_exact(missing).is_err() {
            let reason = format!("the host has no room for {missing} bytes of it");
            return Err(ModelFault(ModelFailure::Io, reason));
        }
        (into.start_bytes, into.file_bytes) = (range.start, *len_bytes);
        into.missed_bytes = AtomicU64::new(0);
        into.bytes.resize(had + missing, 0);
        if missing > 0 {
            let read = source.read_async(range.start + had as u64, &mut into.bytes[had..]);
            read.await.map_err(|error| io_fault("read it", &error))?;
        }
        Ok(true)
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
            Contents::Source { source, .. } => {
                let read = source.read(offset_bytes, into);
                read.map_err(|error| io_fault("read it", &error))
            }
            Contents::Part(part) => part.read(offset_bytes, into),
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

impl Part {
    fn read(&self, offset_bytes: u64, into: &mut [u8]) -> Result<(), ModelFault> {
        let from = offset_bytes.checked_sub(self.start_bytes);
        let from = from.and_then(|from| {
            let rest = self.bytes.get(usize::try_from(from).ok()?..)?;
            rest.get(..into.len())
        });
        let Some(from) = from else {
            let end_bytes = offset_bytes.saturating_add(into.len() as u64);
            self.missed_bytes.store(end_bytes, Ordering::Relaxed);
            return Err(ModelFault::damaged("it ends before"));
        };
        into.copy_from_slice(from);
        Ok(())
    }

    /// Where a read ended that needs more of the file, if there was one.
    pub(super) fn missed_bytes(&self) -> Option<u64> {
        let missed_bytes = self.missed_bytes.load(Ordering::Relaxed);
        (missed_bytes > 0 && missed_bytes <= self.file_bytes).then_some(missed_bytes)
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
