//! Provides a Vulkan driver, a software driver if necessary, before a program needs one.

use std::env::{self, consts::ARCH};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use serde_json::Value;

use crate::packages;
use crate::process::{Result, Shell, cmd, ensure, run_persistently, target_dir};

/// For systems on which we cannot install the loader and the software driver.
const BY_HAND: &str = "there is no Vulkan driver. A software one comes with
    Fedora:    sudo dnf install mesa-vulkan-drivers vulkan-loader
    Arch:      sudo pacman -S vulkan-swrast vulkan-icd-loader
    openSUSE:  sudo zypper install libvulkan_lvp libvulkan1
    Alpine:    sudo apk add mesa-vulkan-swrast vulkan-loader
    elsewhere: the packages with Mesa's lavapipe and with libvulkan.so.1";

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
    if READY.get().is_none() && !has_driver(sh) {
        ensure!(packages::has_apt(), BY_HAND);
        println!("There is no Vulkan driver here: installing Mesa's software one.");
        packages::install(sh, "mesa-vulkan-drivers libvulkan1")?;
        ensure!(
            has_driver(sh),
            "the Vulkan driver's packages are installed, but programs do not find their files: do \
             VK_DRIVER_FILES and VK_ICD_FILENAMES name others?"
        );
    }
    let _ = READY.set(());
    Ok(())
}

/// Installs OpenBLAS if possible: the benches show shares of its speed. Without it they show none.
pub(crate) fn offer_openblas(sh: &Shell) {
    if cfg!(target_os = "linux") && !has_library(sh, "libopenblas.so.0") {
        if let Err(error) = packages::install(sh, "libopenblas0-pthread") {
            eprintln!("OpenBLAS is not here, so matrix products have no share: {error}");
        }
    }
}

/// The description file of SwiftShader's driver, unpacked from Chromium's package if necessary.
pub(crate) fn swiftshader(sh: &Shell) -> Result<PathBuf> {
    let folder = target_dir().join("swiftshader");
    let library = folder.join("usr/lib/chromium/libvk_swiftshader.so");
    if !library.exists() {
        packages::update(sh)?;
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

/// Are the loader and a driver installed, and is the driver's hardware present? Images for
/// containers describe drivers of GPUs that a machine may lack. The kernel offers a GPU by Mesa, by
/// NVIDIA, by Windows below it, or a phone's.
fn has_driver(sh: &Shell) -> bool {
    let renders = (128..192).map(|minor| format!("dri/renderD{minor}"));
    let others = ["nvidiactl", "dxg", "kgsl-3d0", "mali0"].map(String::from);
    let mut nodes = renders.chain(others);
    let has_gpu = nodes.any(|node| Path::new("/dev").join(node).exists());
    let can_run = |path: PathBuf| {
        let text = fs::read_to_string(&path).unwrap_or_default();
        let description: Value = serde_json::from_str(&text).unwrap_or_default();
        let library = description["ICD"]["library_path"].as_str();
        let library = library.unwrap_or_default();
        let is_installed = match library.contains('/') {
            true => path.with_file_name(library).exists(),
            false => !library.is_empty() && has_library(sh, library),
        };
        let file = library.rsplit('/').next().unwrap_or_default();
        let software = ["lvp", "lavapipe", "swiftshader"];
        let is_software = software.iter().any(|name| file.contains(name));
        is_installed && (has_gpu || is_software)
    };
    has_library(sh, "libvulkan.so.1") && described_drivers().into_iter().any(can_run)
}

/// The descriptions of drivers that the Vulkan loader finds: those that variables name, or else
/// those in its folders.
fn described_drivers() -> Vec<PathBuf> {
    let variable = |name: &str| env::var(name).unwrap_or_default();
    let named = variable("VK_DRIVER_FILES") + ":" + &variable("VK_ICD_FILENAMES");
    if named != ":" {
        return env::split_paths(named.trim_matches(':')).collect();
    }
    let [own, config, data] = ["HOME", "XDG_CONFIG_DIRS", "XDG_DATA_DIRS"].map(variable);
    let folders = format!(
        "{own}/.local/share:{own}/.config:{config}:{data}:/etc/xdg:/etc:/usr/local/etc:\
         /usr/local/share:/usr/share:/run/opengl-driver/share"
    );
    let folders = env::split_paths(&folders).map(|folder| folder.join("vulkan/icd.d"));
    let files = folders.filter_map(|folder| fs::read_dir(folder).ok());
    files.flatten().flatten().map(|file| file.path()).collect()
}

/// Would a program find this library?
fn has_library(sh: &Shell, name: &str) -> bool {
    let listed = cmd!(sh, "sh -c 'PATH=$PATH:/sbin:/usr/sbin ldconfig -p'");
    let listed = listed.quiet().ignore_stderr().read().unwrap_or_default();
    let searched = env::var("LD_LIBRARY_PATH").unwrap_or_default();
    let folders = "/usr/lib:/usr/lib64:/usr/local/lib:/lib:/lib64";
    let folders = format!("{searched}:{folders}:/usr/lib/{ARCH}-linux-gnu");
    listed.contains(name) || env::split_paths(&folders).any(|folder| folder.join(name).exists())
}
