//! A folder with Debian trixie, for a newer lavapipe than this system's and for Wine. Programs that
//! were built here run in it, with the repository at its usual path.

use std::fs;
use std::path::PathBuf;

use crate::packages::{self, as_root, root_program};
use crate::process::{Result, Shell, cmd, ensure, root, target_dir};

/// The installed packages. Mesa is that of the backports. Without OpenGL, Wine shows no adapter.
const PACKAGES: &str = "libgl1 libgl1-mesa-dri/trixie-backports libglx-mesa0/trixie-backports \
    libvulkan1 mesa-vulkan-drivers/trixie-backports wine wine64";

/// Creates the folder unless it exists. This takes about two minutes and 1.9 GB.
fn provide(sh: &Shell) -> Result<PathBuf> {
    let folder = target_dir().join("trixie");
    // The stamp is written last. A folder without it is incomplete; other packages mean an old one.
    let stamp = folder.join("made-of");
    if fs::read_to_string(&stamp).is_ok_and(|text| text == PACKAGES) {
        return Ok(folder);
    }
    ensure!(
        packages::has_apt(),
        "debootstrap makes the folder, which this system has no apt-get for"
    );
    packages::install(sh, "debootstrap debian-archive-keyring")?;
    as_root(sh, &["rm", "-rf", "--one-file-system"], &[&folder])?;
    let debootstrap = ["debootstrap", "--variant=minbase", "trixie"];
    as_root(sh, &debootstrap, &[&folder])?;
    // The same package source has the backports.
    let script = r#"list=$0/etc/apt/sources.list
        sed -n 's/ trixie / trixie-backports /p' "$list" >> "$list" && grep -q backports "$list" &&
        chroot "$0" apt-get update -qq &&
        chroot "$0" apt-get install -y -qq --no-install-recommends "$@" &&
        chroot "$0" apt-get clean && printf %s "$MADE_OF" > "$0/made-of""#;
    let (root, made_of) = (root_program(sh)?, format!("MADE_OF={PACKAGES}"));
    let env = ["DEBIAN_FRONTEND=noninteractive", &made_of];
    let install = cmd!(sh, "{root} env {env...} sh -c {script} {folder}");
    install.args(PACKAGES.split_whitespace()).run()?;
    Ok(folder)
}

/// Writes a script that runs its arguments in the folder, behind `prefix`, for cargo's
/// `CARGO_TARGET_…_RUNNER`. The mounts end with the program. The target folder may be outside the
/// repository. `/tmp` and `/dev` are shared with this system.
pub(crate) fn runner(sh: &Shell, name: &str, prefix: &str) -> Result<PathBuf> {
    let folder = provide(sh)?.display().to_string();
    let sudo = match root_program(sh)? {
        "sudo" => "sudo --preserve-env ",
        _ => "",
    };
    let (root, target) = (root(), target_dir());
    let (root, target) = (root.display(), target.display());
    let text = format!(
        r#"#!/bin/sh
here=$PWD
exec {sudo}unshare --mount --propagation private sh -c '
here=$1 && shift
for path in /proc /sys /dev /tmp; do mount --rbind $path {folder}$path || exit 125; done
for path in "{root}" "{target}"; do
    mkdir -p "{folder}$path" && mount --rbind "$path" "{folder}$path" || exit 125
done
exec chroot "{folder}" sh -c "cd \"\$1\" && shift && exec {prefix} \"\$@\"" sh "$here" "$@"
' sh "$here" "$@"
"#
    );
    let script = target_dir().join(name);
    sh.write_file(&script, text)?;
    cmd!(sh, "chmod +x {script}").run()?;
    Ok(script)
}
