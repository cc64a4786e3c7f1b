//! The shaders as drivers get them. The suite writes its translations to a folder, and the
//! reference validator reads SPIR-V. The checks of HLSL are in `hlsl`.

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::thread;

use crate::apt;
use crate::process::{Result, capture, command, run, target_dir};
use crate::suite::selected;

/// Tests with this word in their names translate every shader.
const TRANSLATING_NAMES: &[&str] = &["shader"];

/// The variable with the folder for translations.
const DUMP: &str = "LAPIDARY_SHADER_DUMP";

/// Modules of each kernel in the sample.
const SAMPLE: usize = 64;

/// Validates a sample of the modules.
pub(crate) fn spirv() -> Result<String> {
    check(SAMPLE)
}

/// Validates every module.
pub(crate) fn spirv_whole() -> Result<String> {
    check(usize::MAX)
}

/// Validates; also fails if there are no modules.
fn check(most_of_a_kernel: usize) -> Result<String> {
    if apt::is_here() {
        apt::install(&["spirv-tools"])?;
    }
    let folder = translated()?;
    let all = texts(&folder, ".spv")?;
    let modules = sampled(&all, most_of_a_kernel)?;
    let share =
        thread::available_parallelism().map_or(1, |threads| modules.len().div_ceil(threads.get()));
    let faults = thread::scope(|scope| {
        let faults_of = |some: &[PathBuf]| -> Vec<String> {
            some.iter()
                .filter_map(|module| validate(module).err())
                .collect()
        };
        let shares: Vec<_> = (modules.chunks(share.max(1)))
            .map(|some| scope.spawn(move || faults_of(some)))
            .collect();
        let joined = shares.into_iter().map(|share| share.join());
        joined.collect::<thread::Result<Vec<_>>>()
    });
    let faults = faults
        .map_err(|_| "a thread that validates panicked.")?
        .concat();
    for fault in &faults {
        eprintln!("{fault}");
    }
    match (modules.len(), faults.len()) {
        (0, _) => Err(format!("no test wrote a shader to {}.", folder.display())),
        (count, 0) => Ok(format!("{count} of {} shaders", all.len())),
        (count, faults) => Err(format!("{faults} of {count} shaders are not valid.")),
    }
}

/// The folder with the translations of all shaders. If a run of the suite wrote them, an
/// environment variable names it. Otherwise the tests that translate run once for all steps.
pub(crate) fn translated() -> Result<PathBuf> {
    static WRITTEN: OnceLock<Result<PathBuf>> = OnceLock::new();
    let write = || {
        if let Some(folder) = env::var_os(DUMP) {
            return Ok(folder.into());
        }
        let folder = target_dir().join("shaders");
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}.", folder.display()))?;
        let mut tests = selected(&[], TRANSLATING_NAMES)?;
        run(tests.env(DUMP, &folder))?;
        Ok(folder)
    };
    WRITTEN.get_or_init(write).clone()
}

/// The files of a folder with this ending, in order.
pub(crate) fn texts(folder: &Path, ending: &str) -> Result<Vec<PathBuf>> {
    let files = fs::read_dir(folder).map_err(|error| format!("{}: {error}.", folder.display()))?;
    let paths = files.flatten().map(|file| file.path());
    let mut texts: Vec<_> = paths
        .filter(|path| path.to_string_lossy().ends_with(ending))
        .collect();
    texts.sort();
    Ok(texts)
}

/// At most `most` texts of each kernel. They are spread evenly over the kernel's texts ordered by
/// length, with the shortest and the longest. Texts of one length are nearly the same.
pub(crate) fn sampled(all: &[PathBuf], most: usize) -> Result<Vec<PathBuf>> {
    let mut kernels: BTreeMap<String, Vec<(u64, &PathBuf)>> = BTreeMap::new();
    for path in all {
        let length = fs::metadata(path).map_err(|error| format!("{}: {error}.", path.display()))?;
        let texts = kernels.entry(kernel_of(path)).or_default();
        texts.push((length.len(), path));
    }
    let mut chosen = Vec::new();
    for mut texts in kernels.into_values() {
        texts.sort();
        chosen.extend(spread(texts.len(), most).map(|index| texts[index].1.clone()));
    }
    Ok(chosen)
}

/// At most `most` indices of `count`, including the first and the last.
fn spread(count: usize, most: usize) -> impl Iterator<Item = usize> {
    let taken = count.min(most);
    let gaps = taken.saturating_sub(1).max(1);
    (0..taken).map(move |index| index * (count - 1) / gaps)
}

/// The kernel's name, which is followed by the text's hash. The names of fused kernels are their
/// expressions; all of them count as one kernel.
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

/// The oldest Vulkan version whose drivers accept a module of this version. Older ones are
/// stricter.
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

    use super::{environment, kernel_of, spread};

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

    #[test]
    fn a_sample_has_the_shortest_the_longest_and_what_lies_evenly_between() {
        let of = |count, most| spread(count, most).collect::<Vec<_>>();
        assert_eq!(of(9, 3), [0, 4, 8]);
        assert_eq!(of(2, 3), [0, 1]);
        assert_eq!(of(1, 3), [0]);
        assert_eq!(of(4, usize::MAX), [0, 1, 2, 3]);
    }
}
