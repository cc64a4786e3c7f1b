//! Packages on Debian and its derivatives.

use std::path::Path;
use std::sync::OnceLock;

use crate::process::{Context, Result, Shell, cmd, ensure, has, run_persistently};

/// Whether this system installs its packages with apt.
pub(crate) fn is_here() -> bool {
    Path::new("/usr/bin/apt-get").exists() && Path::new("/usr/bin/dpkg").exists()
}

/// Installs the missing ones of `packages`. If none is missing, it does nothing and asks for no
/// password. On other systems they may be there: whoever needs them says so.
pub(crate) fn install(sh: &Shell, packages: &[&str]) -> Result<()> {
    let is_missing = |package: &&&str| {
        let format = "--showformat=${db:Status-Status}";
        let query = cmd!(sh, "dpkg-query --show {format} {package}").ignore_stderr();
        query
            .ignore_status()
            .read()
            .is_ok_and(|status| status != "installed")
    };
    let missing: Vec<_> = packages.iter().filter(is_missing).collect();
    if missing.is_empty() || !is_here() {
        return Ok(());
    }
    update(sh)?;
    as_root(
        sh,
        &["apt-get", "install", "-y", "-qq", "--no-install-recommends"],
        &missing,
    )
}

/// Refreshes the package lists, once for each run of this program.
pub(crate) fn update(sh: &Shell) -> Result<()> {
    static UPDATED: OnceLock<()> = OnceLock::new();
    if UPDATED.get().is_none() {
        as_root::<&str>(sh, &["apt-get", "update", "-qq"], &[])?;
        let _ = UPDATED.set(());
    }
    Ok(())
}

/// Runs a command as root, by sudo if necessary, and again if it fails.
pub(crate) fn as_root<A: AsRef<std::ffi::OsStr>>(
    sh: &Shell,
    command: &[&str],
    args: &[A],
) -> Result<()> {
    let (root, env) = (root_program(sh)?, "DEBIAN_FRONTEND=noninteractive");
    let command = cmd!(sh, "{root} env {env} {command...} {args...}");
    run_persistently(command.ignore_stdout())
}

/// The program that runs its arguments as root.
pub(crate) fn root_program(sh: &Shell) -> Result<&'static str> {
    let is_root = cmd!(sh, "id -u")
        .read()
        .context("this system has no root")?
        == "0";
    ensure!(
        is_root || has(sh, "sudo", &["--version"]),
        "run this as root: there is no sudo"
    );
    Ok(if is_root { "env" } else { "sudo" })
}
