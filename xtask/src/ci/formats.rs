//! Snapshots of the suite's programs, read by the tools whose formats they are written in.

use std::fs;
use std::path::PathBuf;

use crate::pip::{self, python};
use crate::process::{Result, capture, run, target_dir};
use crate::suite::selected;

/// One of the smallest packages with the file: a wheel for a system without a GPU's libraries. It
/// is only unpacked.
const TORCH: &str = "torch==2.5.1";
const PLATFORM: &str = "macosx_11_0_arm64";
const MEMBER: &str = "torch/cuda/_memory_viz.py";

const CHECK: &str = include_str!("memory_viz.py");

/// Takes one file out of an archive.
const UNPACK: &str = "import pathlib, sys, zipfile
archive, member, folder = sys.argv[1:]
file = pathlib.Path(folder) / pathlib.Path(member).name
file.write_bytes(zipfile.ZipFile(archive).read(member))";

/// Writes the snapshots of the suite's programs, and reads them with PyTorch's tool.
pub(crate) fn memory_viz() -> Result<String> {
    pip::install()?;
    let tool = tool()?;
    let folder = target_dir().join("formats");
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}.", folder.display()))?;
    let mut tests = selected(
        &["--test", "tools"],
        &["snapshots_are_written_for_other_tools"],
    )?;
    run(tests.env("LAPIDARY_FORMATS_FOLDER", &folder))?;
    let script = tool.join("check.py");
    fs::write(&script, CHECK).map_err(|error| format!("{}: {error}.", script.display()))?;
    let found = capture(python().arg(script).arg(&tool).arg(&folder))?;
    print!("{found}");
    let last = found.lines().last().unwrap_or_default();
    Ok(format!("{last} by {TORCH}"))
}

/// The folder of PyTorch's `_memory_viz.py`, which is kept beside the build.
fn tool() -> Result<PathBuf> {
    let folder = target_dir().join("memory_viz").join(TORCH);
    let file = folder.join("_memory_viz.py");
    if file.is_file() {
        return Ok(folder);
    }
    let explain = |error: std::io::Error| format!("{}: {error}.", folder.display());
    let download = folder.join("download");
    let system = [
        "--platform",
        PLATFORM,
        "--python-version",
        "311",
        "--abi",
        "none",
    ];
    let wheel = pip::download(TORCH, &system, &download)?;
    let mut unpack = python();
    unpack.args(["-c", UNPACK]).arg(&wheel).arg(MEMBER);
    capture(unpack.arg(&folder))?;
    fs::remove_dir_all(&download).map_err(explain)?;
    Ok(folder)
}
