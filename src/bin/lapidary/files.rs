//! Snapshots in files.

use std::fs;
use std::path::Path;

use lapidary::Snapshot;

use crate::failure::{Failure, Result};

/// Reads a snapshot.
pub(crate) fn read_snapshot(path: &Path) -> Result<Snapshot> {
    let bytes = fs::read(path).map_err(|error| said(path, &error))?;
    Snapshot::from_json(&bytes).map_err(|error| said(path, &error))
}

/// A failure that has to do with a file.
pub(crate) fn said(path: &Path, what: &dyn std::fmt::Display) -> Failure {
    Failure::new(format!("{}: {what}", path.display()))
}
