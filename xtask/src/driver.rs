//! Provides a Vulkan driver, a software driver if necessary, before a program needs one.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::apt;
use crate::process::{Result, capture, cargo, command, target_dir};

/// The packages with the loader and the software driver, for systems on which we cannot install
/// them.
const BY_HAND: &str = "\
    Fedora:    sudo dnf install mesa-vulkan-drivers vulkan-loader\n\
    Arch:      sudo pacman -S vulkan-swrast vulkan-icd-loader\n\
    openSUSE:  sudo zypper install libvulkan_lvp libvulkan1\n\
    Alpine:    sudo apk add mesa-vulkan-swrast vulkan-loader\n\
    elsewhere: the packages with Mesa's lavapipe and with libvulkan.so.1\n";

/// Cargo, on a machine with a Vulkan driver (or one whose own API needs none).
pub(crate) fn cargo_with_gpu() -> Result<Command> {
    with_gpu(cargo())
}

/// A program, on such a machine.
pub(crate) fn with_gpu(mut program: Command) -> Result<Command> {
    static READY: OnceLock<Result> = OnceLock::new();
    READY.get_or_init(ensure_vulkan).clone()?;
    if cfg!(target_os = "linux") && env::var_os("XDG_RUNTIME_DIR").is_none() {
        // Without this variable the software driver prints a warning, which worries newcomers.
        program.env("XDG_RUNTIME_DIR", private_folder("runtime")?);
    }
    Ok(program)
}

/// Installs OpenBLAS if possible: the benches show shares of its speed. Without it they show no
/// shares.
pub(crate) fn offer_openblas() {
    if !cfg!(target_os = "linux") || is_library("libopenblas.so.0") {
        return;
    }
    let installed = match apt::is_here() {
        true => apt::install(&["libopenblas0-pthread"]),
        false => Err("its package is to be installed by hand.".into()),
    };
    if let Err(sentence) = installed {
        eprintln!("OpenBLAS is not here, so matrix products have no share: {sentence}");
    }
}

/// The description file of SwiftShader's driver, unpacked from Chromium's package if necessary.
pub(crate) fn swiftshader() -> Result<PathBuf> {
    let folder = target_dir().join("swiftshader");
    let library = folder.join("usr/lib/chromium/libvk_swiftshader.so");
    if !library.exists() {
        apt::unpack("chromium-common", &folder)?;
    }
    if !library.exists() {
        return Err(format!("chromium-common has no {}.", library.display()));
    }
    // The packaged description names its library relative to the place of installation.
    let description = folder.join("swiftshader_icd.json");
    let text = format!(
        r#"{{"file_format_version": "1.0.0", "ICD": {{"library_path": "{}", "api_version": "1.1.0"}}}}"#,
        library.display()
    );
    fs::write(&description, text)
        .map_err(|error| format!("{}: {error}.", description.display()))?;
    Ok(description)
}

fn ensure_vulkan() -> Result {
    if !cfg!(target_os = "linux") {
        return Ok(());
    }
    for name in ["VK_DRIVER_FILES", "VK_ICD_FILENAMES"] {
        if let Some(list) = env::var_os(name) {
            if !env::split_paths(&list).any(|path| path.exists()) {
                return Err(format!(
                    "{name} is set, but none of the files it names exists."
                ));
            }
            return if has_loader() { Ok(()) } else { provide() };
        }
    }
    if has_driver() && has_loader() {
        Ok(())
    } else {
        provide()
    }
}

fn provide() -> Result {
    if !apt::is_here() {
        return Err(format!(
            "there is no Vulkan driver. A software one comes with\n{BY_HAND}"
        ));
    }
    println!("There is no Vulkan driver here: installing Mesa's software one.");
    apt::install(&["mesa-vulkan-drivers", "libvulkan1"])?;
    if has_driver() && has_loader() {
        Ok(())
    } else {
        Err(
            "mesa-vulkan-drivers and libvulkan1 are installed, but their files are not found."
                .into(),
        )
    }
}

/// Is a driver described and installed, and is its hardware present? Images for containers describe
/// drivers of GPUs that a machine may lack.
fn has_driver() -> bool {
    let has_gpu = has_gpu();
    let descriptions = driver_folders()
        .into_iter()
        .filter_map(|folder| fs::read_dir(folder).ok())
        .flatten()
        .filter_map(|file| file.ok().map(|file| file.path()))
        .filter(|path| path.extension().is_some_and(|ext| ext == "json"));
    descriptions.into_iter().any(|path| {
        let text = fs::read_to_string(&path).unwrap_or_default();
        library_of(&text).is_some_and(|library| {
            (has_gpu || is_software(library)) && is_installed(library, path.parent())
        })
    })
}

/// Does the kernel offer a GPU: by Mesa, by NVIDIA, by Windows below it, or a phone's?
fn has_gpu() -> bool {
    let nodes = ["/dev/nvidiactl", "/dev/dxg", "/dev/kgsl-3d0", "/dev/mali0"];
    let renders = fs::read_dir("/dev/dri").into_iter().flatten().flatten();
    let is_render = |name: &std::ffi::OsStr| name.to_string_lossy().starts_with("renderD");
    nodes.iter().any(|node| Path::new(node).exists())
        || renders.into_iter().any(|node| is_render(&node.file_name()))
}

/// The driver's library, named in its description.
fn library_of(description: &str) -> Option<&str> {
    let (_, after) = description.split_once("\"library_path\"")?;
    let value = after.trim_start().strip_prefix(':')?.trim_start();
    let (library, _) = value.strip_prefix('"')?.split_once('"')?;
    Some(library).filter(|library| !library.is_empty())
}

/// Is it Lavapipe or SwiftShader? They need no GPU.
fn is_software(library: &str) -> bool {
    let name = library.rsplit('/').next().unwrap_or(library);
    ["lvp", "lavapipe", "swiftshader"]
        .iter()
        .any(|known| name.contains(known))
}

/// A path is relative to the description's folder. A bare name is searched like any library.
fn is_installed(library: &str, folder: Option<&Path>) -> bool {
    match library.contains('/') {
        true => folder.unwrap_or(Path::new("/")).join(library).exists(),
        false => is_library(library),
    }
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

fn has_loader() -> bool {
    is_library("libvulkan.so.1")
}

/// Would a program find this library?
fn is_library(name: &str) -> bool {
    let is_cached = ["ldconfig", "/sbin/ldconfig"].iter().any(|program| {
        capture(command(program).arg("-p")).is_ok_and(|listing| listing.contains(name))
    });
    let mut folders: Vec<_> = ["/usr/lib", "/usr/lib64", "/usr/local/lib", "/lib", "/lib64"].into();
    let by_architecture = [
        format!("/usr/lib/{}-linux-gnu", env::consts::ARCH),
        format!("/lib/{}-linux-gnu", env::consts::ARCH),
    ];
    folders.extend(by_architecture.iter().map(String::as_str));
    let searched = env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    is_cached
        || folders
            .iter()
            .any(|folder| Path::new(folder).join(name).exists())
        || env::split_paths(&searched).any(|folder| folder.join(name).exists())
}

/// A folder below the build outputs that only this user can read.
fn private_folder(name: &str) -> Result<PathBuf> {
    let folder = target_dir().join(name);
    let explain = |error: std::io::Error| format!("{}: {error}.", folder.display());
    fs::create_dir_all(&folder).map_err(explain)?;
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)).map_err(explain)?;
    }
    Ok(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_description_names_its_library() {
        let nvidia = r#"{ "file_format_version" : "1.0.0",
            "ICD": { "library_path": "libGLX_nvidia.so.0", "api_version" : "1.3" } }"#;
        assert_eq!(library_of(nvidia), Some("libGLX_nvidia.so.0"));
        assert_eq!(library_of(r#"{"library_path":"/a/b.so"}"#), Some("/a/b.so"));
        for bad in [
            "",
            "{}",
            r#"{"library_path": 3}"#,
            r#"{"library_path": ""}"#,
            "\"library_path\":\"",
        ] {
            assert_eq!(library_of(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_driver_whose_library_is_missing_is_not_installed() {
        assert!(!is_installed("/no/such/folder/libvulkan_lvp.so", None));
        assert!(!is_installed("libno_such_library_anywhere.so.7", None));
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        assert!(is_installed("./Cargo.toml", Some(here)));
        assert!(!is_installed("./no.toml", Some(here)));
    }

    #[test]
    fn software_drivers_need_no_gpu() {
        assert!(is_software("/usr/lib/x86_64-linux-gnu/libvulkan_lvp.so"));
        assert!(is_software("libvk_swiftshader.so"));
        assert!(!is_software("/opt/lvp/libGLX_nvidia.so.0"));
        assert!(!is_software(
            "/usr/lib/x86_64-linux-gnu/libvulkan_radeon.so"
        ));
    }
}
