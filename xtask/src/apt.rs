//! Packages on Debian and its derivatives. On other systems each function returns an error.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

use crate::process::{Result, capture, command, run_persistently, run_quietly};

/// Whether this system installs its packages with apt.
pub(crate) fn is_here() -> bool {
    let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
    is_debian_like(&release) && Path::new("/usr/bin/apt-get").exists()
}

/// Installs the missing ones of `packages`. If none is missing, it does nothing and asks for no
/// password.
pub(crate) fn install(packages: &[&str]) -> Result {
    let missing: Vec<_> = packages
        .iter()
        .filter(|package| !is_installed(package))
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    update()?;
    let mut install = as_root("apt-get")?;
    install
        .args(["install", "-y", "-qq", "--no-install-recommends"])
        .args(missing);
    run_persistently(&mut install)
}

/// Unpacks a package into `folder` without installing it.
pub(crate) fn unpack(package: &str, folder: &Path) -> Result {
    update()?;
    let _ = fs::remove_dir_all(folder);
    fs::create_dir_all(folder).map_err(|error| format!("{}: {error}.", folder.display()))?;
    run_persistently(
        command("apt-get")
            .current_dir(folder)
            .args(["download", "-qq", package]),
    )?;
    let listing =
        fs::read_dir(folder).map_err(|error| format!("{}: {error}.", folder.display()))?;
    let archive = listing
        .flatten()
        .map(|entry| entry.path())
        .find(|path| path.extension().is_some_and(|extension| extension == "deb"));
    let archive = archive.ok_or(format!("apt-get brought no package file for {package}."))?;
    run_quietly(command("dpkg").arg("-x").arg(&archive).arg(folder))?;
    fs::remove_file(&archive).map_err(|error| format!("{}: {error}.", archive.display()))
}

/// Refreshes the package lists, once for each run of this program.
fn update() -> Result {
    static UPDATED: OnceLock<Result> = OnceLock::new();
    let refresh = || {
        if !is_here() {
            return Err("this system has no apt-get.".into());
        }
        run_persistently(as_root("apt-get")?.args(["update", "-qq"]))
    };
    UPDATED.get_or_init(refresh).clone()
}

fn is_installed(package: &str) -> bool {
    let mut query = command("dpkg-query");
    query.args(["--show", "--showformat=${db:Status-Status}", package]);
    capture(&mut query).is_ok_and(|status| status == "installed")
}

/// Whether this program runs as root.
pub(crate) fn is_root() -> bool {
    capture(command("id").arg("-u")).is_ok_and(|id| id.trim() == "0")
}

/// A command that runs as root.
pub(crate) fn as_root(program: &str) -> Result<Command> {
    let mut started = if is_root() {
        command(program)
    } else if capture(command("sudo").arg("--version")).is_ok() {
        let mut sudo = command("sudo");
        sudo.args(["--preserve-env=DEBIAN_FRONTEND", program]);
        sudo
    } else {
        return Err(format!(
            "`{program}` needs root, and there is no sudo: run this as root."
        ));
    };
    started.env("DEBIAN_FRONTEND", "noninteractive");
    Ok(started)
}

fn is_debian_like(release: &str) -> bool {
    release.lines().any(|line| {
        let Some((key, value)) = line.split_once('=') else {
            return false;
        };
        matches!(key, "ID" | "ID_LIKE")
            && value
                .trim_matches('"')
                .split(' ')
                .any(|word| matches!(word, "debian" | "ubuntu"))
    })
}

#[cfg(test)]
mod tests {
    use super::is_debian_like;

    #[test]
    fn debian_and_its_children_are_known_by_their_release_file() {
        assert!(is_debian_like("NAME=\"Debian GNU/Linux\"\nID=debian\n"));
        assert!(is_debian_like("ID=linuxmint\nID_LIKE=\"ubuntu debian\"\n"));
        assert!(!is_debian_like("ID=fedora\nNAME=\"not debian\"\n"));
        assert!(!is_debian_like(""));
    }
}
