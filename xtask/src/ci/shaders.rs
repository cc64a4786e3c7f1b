//! The shaders as drivers get them: the suite writes its translations to a folder. The reference
//! validator reads every one in SPIR-V; what reads the others is in `hlsl`.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::apt;
use crate::process::{Result, capture, command, run, target_dir};
use crate::suite::selected;

/// The tests that between them translate every shader: their names hold this word.
const TRANSLATING_NAMES: &[&str] = &["shader"];

/// Validates every translated shader; none at all is a failure too.
pub(crate) fn spirv() -> Result<String> {
    if apt::is_here() {
        apt::install(&["spirv-tools"])?;
    }
    let folder = translated()?;
    let modules = texts(&folder, ".spv")?;
    let faults: Vec<_> = modules
        .iter()
        .filter_map(|module| validate(module).err())
        .collect();
    for fault in &faults {
        eprintln!("{fault}");
    }
    match (modules.len(), faults.len()) {
        (0, _) => Err(format!("no test wrote a shader to {}.", folder.display())),
        (count, 0) => Ok(format!("{count} shaders")),
        (count, faults) => Err(format!("{faults} of {count} shaders are not valid.")),
    }
}

/// The folder of every shader's translations, which the suite writes once for all that read them.
pub(crate) fn translated() -> Result<PathBuf> {
    static WRITTEN: OnceLock<Result<PathBuf>> = OnceLock::new();
    let write = || {
        let folder = target_dir().join("shaders");
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}.", folder.display()))?;
        let mut tests = selected(&["--workspace"], TRANSLATING_NAMES)?;
        run(tests.env("LAPIDARY_SHADER_DUMP", &folder))?;
        Ok(folder)
    };
    WRITTEN.get_or_init(write).clone()
}

/// The files of a folder whose names end so, in order.
pub(crate) fn texts(folder: &Path, ending: &str) -> Result<Vec<PathBuf>> {
    let files = fs::read_dir(folder).map_err(|error| format!("{}: {error}.", folder.display()))?;
    let paths = files.flatten().map(|file| file.path());
    let mut texts: Vec<_> = paths
        .filter(|path| path.to_string_lossy().ends_with(ending))
        .collect();
    texts.sort();
    Ok(texts)
}

/// The kernel's name, which stands before the text's hash. Fused kernels are called by their
/// expressions, and count as one.
pub(crate) fn kernel_of(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let kernel = name.rsplit_once('-').map_or(&*name, |(kernel, _)| kernel);
    match kernel.contains("__") || kernel.ends_with('_') {
        true => "fused".into(),
        false => kernel.into(),
    }
}

fn validate(module: &Path) -> Result {
    let bytes = fs::read(module).map_err(|error| format!("{}: {error}.", module.display()))?;
    let environment = environment(&bytes).ok_or(format!("{} is no SPIR-V.", module.display()))?;
    capture(
        command("spirv-val")
            .args(["--target-env", environment])
            .arg(module),
    )
    .map(drop)
}

/// The oldest Vulkan whose drivers accept a module of this version: an older one is the stricter.
fn environment(module: &[u8]) -> Option<&'static str> {
    const MAGIC: [u8; 4] = [0x03, 0x02, 0x23, 0x07];
    match module {
        [a, b, c, d, 0, minor, 1, 0, ..] if [*a, *b, *c, *d] == MAGIC => Some(match minor {
            0..=3 => "vulkan1.1",
            4 => "vulkan1.1spv1.4",
            5 => "vulkan1.2",
            _ => "vulkan1.3",
        }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{environment, kernel_of};

    #[test]
    fn the_environment_follows_the_version_in_the_header() {
        let header = |minor| [0x03, 0x02, 0x23, 0x07, 0, minor, 1, 0, 0, 0, 0, 0];
        assert_eq!(environment(&header(0)), Some("vulkan1.1"));
        assert_eq!(environment(&header(3)), Some("vulkan1.1"));
        assert_eq!(environment(&header(6)), Some("vulkan1.3"));
        assert_eq!(environment(b"not a module"), None);
        assert_eq!(environment(&[]), None);
    }

    #[test]
    fn a_text_belongs_to_the_kernel_in_its_name() {
        let kernel = |name: &str| kernel_of(Path::new(name));
        assert_eq!(kernel("/x/scan_parts-01.sm5.hlsl"), "scan_parts");
        assert_eq!(kernel("/x/copy_u8_i32_a__-01.sm5.hlsl"), "fused");
    }
}
