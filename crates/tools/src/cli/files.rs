//! Snapshots in files.

use std::fs::File;
use std::path::Path;

use lapidary_core::stats::Snapshot;

use crate::cli::failure::{Failure, Result};
use crate::cli::style::clean_path;

/// Reads a snapshot.
pub(crate) fn read_snapshot(path: &Path) -> Result<Snapshot> {
    let file = File::open(path).map_err(|error| said(path, &error))?;
    Snapshot::read_json(file).map_err(|error| said(path, &error))
}

/// A failure that concerns a file.
pub(crate) fn said(path: &Path, what: &dyn std::fmt::Display) -> Failure {
    Failure::new(format!("{}: {what}", clean_path(path)))
}
