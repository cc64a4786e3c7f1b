//! Snapshots of the suite's programs, read by the tools whose formats they are written in.

use crate::pip;
use crate::process::{Result, Shell, cmd, emptied, lines_of, target_dir};
use crate::suite::tests;

/// One of the smallest packages with the file: a wheel for a system without a GPU's libraries.
const TORCH: &str = "torch==2.5.1";
const SYSTEM: &str = "--platform macosx_11_0_arm64 --python-version 311 --abi none";
const MEMBER: &str = "torch/cuda/_memory_viz.py";

/// Writes the snapshots, and reads them with PyTorch's tool.
pub(crate) fn check(sh: &Shell) -> Result<String> {
    let tool = target_dir().join("memory_viz").join(TORCH);
    pip::fetch(sh, TORCH, SYSTEM, &[MEMBER], &tool)?;
    let folder = emptied(sh, "formats")?;
    let write = tests(sh, "--test tools -- snapshots_are_written_for_other_tools")?;
    write.env("LAPIDARY_FORMATS_FOLDER", &folder).run()?;
    let read = cmd!(sh, "python3 xtask/src/ci/memory_viz.py {tool} {folder}");
    let found = lines_of(read.env("PYTHONDONTWRITEBYTECODE", "1"))?;
    Ok(format!(
        "{} by {TORCH}",
        found.last().map_or("", |line| line)
    ))
}
