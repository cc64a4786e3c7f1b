//! The page of the example `snapshot`: the pictures of the documentation, which nightly compares
//! with what the program shows now, and the test of the page.

use std::fs;
use std::path::PathBuf;

use crate::browser::script;
use crate::driver::cargo_with_gpu;
use crate::process::{Result, root, run, target_dir};
use crate::suite::FEATURES;

/// Makes the pictures.
pub(crate) fn pictures(_args: &[String]) -> Result {
    script("pictures.mjs", &[pages(None)?, root().join("docs")]).map(drop)
}

/// Are the pictures those of this version?
pub(crate) fn check() -> Result<String> {
    script(
        "pictures.mjs",
        &[pages(None)?, root().join("docs"), "--check".into()],
    )
}

/// Opens the pages of a real run, of two compared snapshots, and of a million events.
pub(crate) fn page() -> Result<String> {
    pages(None)?;
    script("snapshot.mjs", &[pages(Some("--many"))?])
}

/// Runs the example that writes snapshots and their pages. Returns their folder.
fn pages(option: Option<&str>) -> Result<PathBuf> {
    let folder = target_dir().join("pages");
    fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}.", folder.display()))?;
    let mut example = cargo_with_gpu()?;
    example.args(["run", "--release", "--quiet"]).args(FEATURES);
    example.args(["--example", "snapshot", "--"]).arg(&folder);
    run(example.args(option))?;
    Ok(folder)
}
