//! A folder with Debian trixie, for a newer lavapipe than this system's and for Wine. Programs that
//! were built here run in it, with the repository at its usual path.

use std::fs;
use std::path::{Path, PathBuf};

use crate::apt;
use crate::process::{Result, root, run_persistently, run_quietly, target_dir};

/// The installed packages. Mesa is that of the backports. Without OpenGL, Wine shows no adapter.
const PACKAGES: &[&str] = &[
    "libgl1",
    "libgl1-mesa-dri/trixie-backports",
    "libglx-mesa0/trixie-backports",
    "libvulkan1",
    "mesa-vulkan-drivers/trixie-backports",
    "wine",
    "wine64",
];

/// The path of the complete folder.
pub(crate) struct Trixie(PathBuf);

impl Trixie {
    /// Creates the folder unless it exists. This takes about two minutes and 1.9 GB.
    pub(crate) fn provide() -> Result<Self> {
        let trixie = Trixie(target_dir().join("trixie"));
        // The stamp is written last. A folder without it is incomplete; other packages mean an old
        // one.
        let (stamp, made_of) = (trixie.0.join("made-of"), PACKAGES.join("\n"));
        if fs::read_to_string(&stamp).is_ok_and(|text| text == made_of) {
            return Ok(trixie);
        }
        if !apt::is_here() {
            return Err(
                "debootstrap makes the folder, which this system has no apt-get for.".into(),
            );
        }
        apt::install(&["debootstrap", "debian-archive-keyring"])?;
        run_quietly(
            apt::as_root("rm")?
                .args(["-rf", "--one-file-system"])
                .arg(&trixie.0),
        )?;
        fs::create_dir_all(target_dir()).map_err(|error| explain(&target_dir(), &error))?;
        let mut debootstrap = apt::as_root("debootstrap")?;
        debootstrap
            .args(["--variant=minbase", "trixie"])
            .arg(&trixie.0);
        run_quietly(&mut debootstrap)?;
        trixie.add_backports()?;
        trixie.apt(&["update", "-qq"])?;
        let install = ["install", "-y", "-qq", "--no-install-recommends"];
        trixie.apt(&[&install, PACKAGES].concat())?;
        trixie.apt(&["clean"])?;
        trixie.write("made-of", &made_of)?;
        Ok(trixie)
    }

    /// Adds the backports of the same package source, which are newer than the release.
    fn add_backports(&self) -> Result {
        let list = self.0.join("etc/apt/sources.list");
        let text = fs::read_to_string(&list).map_err(|error| explain(&list, &error))?;
        let backports = text.replace(" trixie ", " trixie-backports ");
        if backports == text {
            return Err(format!("{} names no trixie.", list.display()));
        }
        self.write("etc/apt/sources.list", &(text + &backports))
    }

    fn apt(&self, args: &[&str]) -> Result {
        let mut apt = apt::as_root("chroot")?;
        apt.arg(&self.0);
        apt.args(["env", "DEBIAN_FRONTEND=noninteractive", "apt-get"]);
        run_persistently(apt.args(args))
    }

    /// Writes a file of the folder, which belongs to root.
    fn write(&self, name: &str, text: &str) -> Result {
        let draft = target_dir().join("trixie-draft");
        fs::write(&draft, text).map_err(|error| explain(&draft, &error))?;
        run_quietly(apt::as_root("cp")?.arg(&draft).arg(self.0.join(name)))
    }

    /// Writes a script that runs its arguments in the folder, behind `prefix`, for cargo's
    /// `CARGO_TARGET_…_RUNNER`. The mounts end with the program.
    pub(crate) fn runner(&self, name: &str, prefix: &str) -> Result<PathBuf> {
        let script = target_dir().join(name);
        let sudo = match apt::is_root() {
            true => "",
            false => "sudo --preserve-env ",
        };
        let text = script_text(sudo, &self.0, &root(), prefix);
        fs::write(&script, text).map_err(|error| explain(&script, &error))?;
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            let executable = fs::Permissions::from_mode(0o755);
            fs::set_permissions(&script, executable).map_err(|error| explain(&script, &error))?;
        }
        Ok(script)
    }
}

/// The target folder may be outside the repository. `/tmp` and `/dev` are shared with this system.
fn script_text(sudo: &str, folder: &Path, root: &Path, prefix: &str) -> String {
    let (folder, root, target) = (folder.display(), root.display(), target_dir());
    let target = target.display();
    format!(
        "#!/bin/sh\n\
         here=$PWD\n\
         exec {sudo}unshare --mount --propagation private sh -c '\n\
         here=$1 && shift\n\
         for path in /proc /sys /dev /tmp; do mount --rbind $path {folder}$path || exit 125; done\n\
         for path in \"{root}\" \"{target}\"; do\n\
         mkdir -p \"{folder}$path\" && mount --rbind \"$path\" \"{folder}$path\" || exit 125\n\
         done\n\
         exec chroot \"{folder}\" sh -c \"cd \\\"\\$1\\\" && shift && exec {prefix} \\\"\\$@\\\"\" sh \"$here\" \"$@\"\n\
         ' sh \"$here\" \"$@\"\n"
    )
}

fn explain(path: &Path, error: &std::io::Error) -> String {
    format!("{}: {error}.", path.display())
}
