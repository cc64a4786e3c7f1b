//! Snapshots in files.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use lapidary_core::stats::Snapshot;
use lapidary_core::units::{Bytes, GIB};

use crate::cli::failure::{Failure, Result};
use crate::cli::style::clean_path;

/// The file may be endless. No snapshot is larger than this.
const MOST_BYTES: u64 = 4 * GIB;

/// Reads a snapshot.
pub(crate) fn read_snapshot(path: &Path) -> Result<Snapshot> {
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(|error| said(path, &error))?;
    let read = file.take(MOST_BYTES + 1).read_to_end(&mut bytes);
    let read = read.map_err(|error| said(path, &error))?;
    if read as u64 > MOST_BYTES {
        let what = format!(
            "it is larger than {}, so it is not a snapshot",
            Bytes(MOST_BYTES)
        );
        return Err(said(path, &what));
    }
    Snapshot::from_json(&bytes).map_err(|error| said(path, &error))
}

/// A failure that concerns a file.
pub(crate) fn said(path: &Path, what: &dyn std::fmt::Display) -> Failure {
    Failure::new(format!("{}: {what}", clean_path(path)))
}
