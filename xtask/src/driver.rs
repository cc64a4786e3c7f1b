//! Provides a Vulkan driver, a software driver if necessary, before a program needs one.

use std::env::{self, consts::ARCH};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use serde_json::Value;

use crate::apt;
use crate::process::{Result, Shell, bail, cmd, ensure, run_persistently, target_dir};

/// The packages with the loader and the software driver, for systems on which we cannot install
/// them.
const BY_HAND: &str = "there is no Vulkan driver. A software one comes with
    Fedora:    sudo dnf install mesa-vulkan-drivers vulkan-loader
    Arch:      sudo pacman -S vulkan-swrast vulkan-icd-loader
    openSUSE:  sudo zypper install libvulkan_lvp libvulkan1
    Alpine:    sudo apk add mesa-vulkan-swrast vulkan-loader
    elsewhere: the packages with Mesa's lavapipe and with libvulkan.so.1";

const LOADER: &str = "libvulkan.so.1";

/// Makes sure that programs find a Vulkan driver, on systems whose own API is Vulkan.
pub(crate) fn ensure_gpu(sh: &Shell) -> Result<()> {
    static READY: OnceLock<()> = OnceLock::new();
    if !cfg!(target_os = "linux") {
        return Ok(());
    }
    if env::var_os("XDG_RUNTIME_DIR").is_none() {
        // Without this variable the software driver prints a warning, which worries newcomers.
        let folder = target_dir().join("runtime");
        cmd!(sh, "mkdir -p -m 700 {folder}").quiet().run()?;
        sh.set_var("XDG_RUNTIME_DIR", folder);
    }
    if READY.get().is_some() {
        return Ok(());
    }
    if !(has_driver(sh)? && has_library(sh, LOADER)) {
        ensure!(apt::is_here(), BY_HAND);
        println!("There is no Vulkan driver here: installing Mesa's software one.");
        apt::install(sh, &["mesa-vulkan-drivers", "libvulkan1"])?;
        let is_here = has_driver(sh)? && has_library(sh, LOADER);
        ensure!(
            is_here,
            "the packages of the Vulkan driver are installed, but not their files"
        );
    }
    let _ = READY.set(());
    Ok(())
}

/// Installs OpenBLAS if possible: the benches show shares of its speed. Without it they show none.
pub(crate) fn offer_openblas(sh: &Shell) {
    let name = "libopenblas.so.0";
    if cfg!(target_os = "linux") && !has_library(sh, name) {
        if let Err(error) = apt::install(sh, &["libopenblas0-pthread"]) {
            eprintln!("OpenBLAS is not here, so matrix products have no share: {error}");
        }
    }
}

/// The description file of SwiftShader's driver, unpacked from Chromium's package if necessary.
pub(crate) fn swiftshader(sh: &Shell) -> Result<PathBuf> {
    let folder = target_dir().join("swiftshader");
    let library = folder.join("usr/lib/chromium/libvk_swiftshader.so");
    if !library.exists() {
        apt::update(sh)?;
        sh.remove_path(&folder)?;
        let _here = sh.push_dir(sh.create_dir(&folder)?);
        run_persistently(cmd!(sh, "apt-get download -qq chromium-common"))?;
        cmd!(sh, "sh -c 'dpkg -x chromium-common*.deb . && rm *.deb'").run()?;
    }
    // The packaged description names its library relative to the place of installation.
    let description = folder.join("swiftshader_icd.json");
    let icd = serde_json::json!({ "library_path": library, "api_version": "1.1.0" });
    let text = serde_json::json!({ "file_format_version": "1.0.0", "ICD": icd });
    sh.write_file(&description, text.to_string())?;
    Ok(description)
}

/// Is a driver described and installed, and is its hardware present? Images for containers describe
/// drivers of GPUs that a machine may lack.
fn has_driver(sh: &Shell) -> Result<bool> {
    for name in ["VK_DRIVER_FILES", "VK_ICD_FILENAMES"] {
        if let Some(list) = env::var_os(name) {
            if env::split_paths(&list).any(|path| path.exists()) {
                return Ok(true);
            }
            bail!("{name} is set, but none of the files it names exists");
        }
    }
    let has_gpu = has_gpu();
    let files = driver_folders()
        .into_iter()
        .filter_map(|folder| fs::read_dir(folder).ok());
    let mut paths = files.flatten().filter_map(|file| Some(file.ok()?.path()));
    Ok(paths.any(|path| {
        let text = fs::read_to_string(&path).unwrap_or_default();
        let description: Value = serde_json::from_str(&text).unwrap_or_default();
        let library = description["ICD"]["library_path"]
            .as_str()
            .unwrap_or_default();
        let is_installed = match library.contains('/') {
            true => path.with_file_name(library).exists(),
            false => !library.is_empty() && has_library(sh, library),
        };
        is_installed && (has_gpu || is_software(library))
    }))
}

/// Does the kernel offer a GPU: by Mesa, by NVIDIA, by Windows below it, or a phone's?
fn has_gpu() -> bool {
    let nodes = ["/dev/nvidiactl", "/dev/dxg", "/dev/kgsl-3d0", "/dev/mali0"];
    let mut renders = fs::read_dir("/dev/dri").into_iter().flatten().flatten();
    nodes.iter().any(|node| Path::new(node).exists())
        || renders.any(|node| node.file_name().to_string_lossy().starts_with("renderD"))
}

/// Is it Lavapipe or SwiftShader? They need no GPU.
fn is_software(library: &str) -> bool {
    let name = library.rsplit('/').next().unwrap_or(library);
    ["lvp", "lavapipe", "swiftshader"]
        .iter()
        .any(|known| name.contains(known))
}

/// The folders in which the Vulkan loader looks for descriptions of drivers.
fn driver_folders() -> Vec<PathBuf> {
    let listed = |name: &str, standard: &str| {
        let list = env::var_os(name).filter(|list| !list.is_empty());
        env::split_paths(&list.unwrap_or_else(|| standard.into())).collect::<Vec<_>>()
    };
    let mut bases = listed("XDG_CONFIG_DIRS", "/etc/xdg");
    bases.extend(listed("XDG_DATA_DIRS", "/usr/local/share:/usr/share"));
    bases.extend(["/etc", "/usr/local/etc", "/run/opengl-driver/share"].map(PathBuf::from));
    if let Some(home) = env::var_os("HOME").map(PathBuf::from) {
        bases.extend([home.join(".local/share"), home.join(".config")]);
    }
    bases
        .into_iter()
        .map(|base| base.join("vulkan/icd.d"))
        .collect()
}

/// Would a program find this library?
fn has_library(sh: &Shell, name: &str) -> bool {
    let cached = cmd!(sh, "sh -c 'PATH=$PATH:/sbin:/usr/sbin ldconfig -p'")
        .ignore_stderr()
        .read();
    let of_machine = format!("/usr/lib/{ARCH}-linux-gnu");
    let folders = [
        "/usr/lib",
        "/usr/lib64",
        "/usr/local/lib",
        "/lib",
        "/lib64",
        &of_machine,
    ];
    let searched = env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    cached.is_ok_and(|listing| listing.contains(name))
        || folders
            .iter()
            .any(|folder| Path::new(folder).join(name).exists())
        || env::split_paths(&searched).any(|folder| folder.join(name).exists())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn software_drivers_need_no_gpu() {
        assert!(is_software("/usr/lib/x86_64-linux-gnu/libvulkan_lvp.so"));
        assert!(is_software("libvk_swiftshader.so"));
        assert!(!is_software("/opt/lvp/libGLX_nvidia.so.0"));
        assert!(!is_software(
            "/usr/lib/x86_64-linux-gnu/libvulkan_radeon.so"
        ));
    }

    #[test]
    fn a_library_that_is_missing_is_not_found() {
        let sh = crate::process::shell().expect("a shell");
        assert!(!has_library(&sh, "libno_such_library_anywhere.so.7"));
    }
}
