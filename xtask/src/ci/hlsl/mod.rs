//! The kernels as a DX12 device gets them from wgpu: Microsoft's compilers compile them, under Wine
//! where this is not Windows. FXC is the compiler of every Windows app that ships no other one. It
//! refuses what it cannot unroll, and a user waits at the first use of each kernel.

mod compiler;
mod figures;

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

pub(crate) use self::compiler::fetch_dll;
use self::compiler::{Compiler, Kind, name_of};
use self::figures::{Figures, Pace};
use crate::ci::shaders::{kernel_of, texts, translated};
use crate::process::Result;

/// Texts of a kernel in the sample.
const SAMPLE: usize = 16;

/// FXC compiles a sample of the texts.
pub(crate) fn sample() -> Result<String> {
    check(Kind::Fxc, SAMPLE)
}

/// FXC compiles every text.
pub(crate) fn whole() -> Result<String> {
    check(Kind::Fxc, usize::MAX)
}

/// DXC compiles a sample of the texts that need it.
pub(crate) fn sample_by_dxc() -> Result<String> {
    check(Kind::Dxc, SAMPLE)
}

fn check(kind: Kind, most_of_a_kernel: usize) -> Result<String> {
    let compiler = Compiler::install(kind)?;
    let folder = translated()?;
    let all = texts(&folder, kind.ending())?;
    let (texts, of_all) = (sampled(&all, most_of_a_kernel)?, all.len());
    if texts.is_empty() {
        return Err(format!("no test wrote HLSL to {}.", folder.display()));
    }
    println!("{} compiles {} of {of_all} texts", kind.name(), texts.len());
    let mut figures = Figures::of(compiler.compile(&texts)?);
    let judged = match kind {
        Kind::Fxc => {
            let pace = Pace::of(compiler.yardstick()?);
            // Two threads of one core need up to twice as long as one alone.
            let slow: Vec<_> = figures.slow(&pace).map(str::to_owned).collect();
            let is_slow = |text: &&PathBuf| slow.contains(&name_of(text));
            figures.improve(compiler.compile_alone(texts.iter().filter(is_slow))?);
            figures.judged(&pace)
        }
        Kind::Dxc => figures.all_compiled(),
    };
    print!("{}", figures.table());
    judged.map(|found| format!("{found} of {of_all}"))
}

/// At most so many texts of each kernel. They are spread evenly over the kernel's texts in the
/// order of their lengths, from the shortest to the longest: texts of one length are nearly the
/// same.
fn sampled(all: &[PathBuf], most: usize) -> Result<Vec<PathBuf>> {
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

/// At most `most` places of `count`, the first and the last of them included.
fn spread(count: usize, most: usize) -> impl Iterator<Item = usize> {
    let taken = count.min(most);
    let gaps = taken.saturating_sub(1).max(1);
    (0..taken).map(move |index| index * (count - 1) / gaps)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_has_the_shortest_the_longest_and_what_lies_evenly_between() {
        let of = |count, most| spread(count, most).collect::<Vec<_>>();
        assert_eq!(of(9, 3), [0, 4, 8]);
        assert_eq!(of(2, 3), [0, 1]);
        assert_eq!(of(1, 3), [0]);
        assert_eq!(of(4, usize::MAX), [0, 1, 2, 3]);
    }
}
