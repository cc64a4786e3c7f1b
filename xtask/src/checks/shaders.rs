//! The shaders as drivers get them. The suite writes its translations to a folder, and the
//! reference validator reads SPIR-V. The checks of HLSL are in `hlsl`.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::thread;

use crate::command::command;
use crate::packages;
use crate::process::{Context, Result, Shell, cmd, emptied, ensure};

/// Validates at most so many modules of each kernel.
pub(crate) fn spirv(sh: &Shell, most_of_a_kernel: usize) -> Result<String> {
    packages::install(sh, "spirv-tools")?;
    let all = texts(&translated(sh)?, ".spv")?;
    let modules = sampled(&all, most_of_a_kernel)?;
    let mut by_version: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for module in &modules {
        let name = module.display().to_string();
        let version = environment(&fs::read(module)?);
        let version = version.with_context(|| format!("{name} is no SPIR-V"))?;
        by_version.entry(version).or_default().push(name);
    }
    let threads = thread::available_parallelism()?.to_string();
    for (version, names) in by_version {
        // It goes on after a fault, and then fails.
        let validate = "-0 -n 1 spirv-val --target-env".split(' ');
        let all = cmd!(sh, "xargs -P {threads} {validate...} {version}");
        let found = all.stdin(names.join("\0")).run();
        found.context("shaders are not valid; see above")?;
    }
    Ok(format!("{} of {} shaders", modules.len(), all.len()))
}

/// The folder with the translations of all shaders. If a run of the suite wrote them, an
/// environment variable names it. Otherwise the tests that translate run once for all steps.
pub(crate) fn translated(sh: &Shell) -> Result<PathBuf> {
    static WRITTEN: OnceLock<PathBuf> = OnceLock::new();
    const VARIABLE: &str = "LAPIDARY_SHADER_DUMP";
    if let Some(folder) = std::env::var_os(VARIABLE) {
        return Ok(folder.into());
    }
    if let Some(folder) = WRITTEN.get() {
        return Ok(folder.clone());
    }
    let folder = emptied(sh, "shaders")?;
    // Tests with this word in their names translate every shader.
    let tests = command(sh, "tests -- shader")?;
    tests.env(VARIABLE, &folder).run()?;
    Ok(WRITTEN.get_or_init(|| folder).clone())
}

/// The files of a folder with this ending, in order.
pub(crate) fn texts(folder: &Path, ending: &str) -> Result<Vec<PathBuf>> {
    let files = fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    let mut texts: Vec<_> = files.flatten().map(|file| file.path()).collect();
    texts.retain(|path| path.to_string_lossy().ends_with(ending));
    texts.sort();
    ensure!(!texts.is_empty(), "{folder:?} has no *{ending}");
    Ok(texts)
}

/// At most `most` texts of each kernel. They are spread evenly over the kernel's texts ordered by
/// length, with the shortest and the longest. Texts of one length are nearly the same.
pub(crate) fn sampled(all: &[PathBuf], most: usize) -> Result<Vec<PathBuf>> {
    let mut kernels: BTreeMap<String, Vec<(u64, &PathBuf)>> = BTreeMap::new();
    for path in all {
        let texts = kernels.entry(kernel_of(path)).or_default();
        texts.push((fs::metadata(path)?.len(), path));
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

/// The oldest Vulkan version whose drivers accept a module of this version. Older ones are
/// stricter.
fn environment(module: &[u8]) -> Option<&'static str> {
    let [0x03, 0x02, 0x23, 0x07, 0, minor, 1, 0, ..] = *module else {
        return None;
    };
    let versions = ["vulkan1.1", "vulkan1.1spv1.4", "vulkan1.2", "vulkan1.3"];
    Some(versions[usize::from(minor.clamp(3, 6)) - 3])
}

#[test]
fn a_sample_has_the_shortest_the_longest_and_what_lies_evenly_between() {
    let kernel = |name: &str| kernel_of(Path::new(name));
    assert_eq!(kernel("/x/scan_parts-01.sm5.hlsl"), "scan_parts");
    assert_eq!(kernel("/x/copy_u8_i32_a__-01.sm5.hlsl"), "fused");
    let of = |count, most| spread(count, most).collect::<Vec<_>>();
    assert_eq!(of(9, 3), [0, 4, 8]);
    assert_eq!(of(2, 3), [0, 1]);
    assert_eq!(of(4, usize::MAX), [0, 1, 2, 3]);
}
