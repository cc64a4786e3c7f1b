//! The kernels as wgpu gives them to a DX12 device. Microsoft's compilers compile them, under Wine
//! except on Windows. FXC is the compiler of every Windows app that ships no other one. It refuses
//! loops that it cannot unroll, and a user waits for it at the first use of each kernel.

mod compiler;
mod figures;

use std::path::PathBuf;

pub(crate) use self::compiler::fetch_dll;
use self::compiler::{Compiler, Kind, name_of};
use self::figures::{Figures, Pace};
use crate::ci::shaders::{sampled, texts, translated};
use crate::process::Result;

/// Texts of each kernel in the sample.
const SAMPLE: usize = 16;

/// How often a text is compiled again that took too long. The least time counts: in a test on a
/// shared machine, one text took between 3.7 and 6.9 s of CPU time.
const MOST_REPEATS: usize = 6;

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
            // Two threads of one core need up to twice the time of one, and so does one whose
            // neighbours on the machine use the cache. So slow texts are compiled again alone.
            for _ in 0..MOST_REPEATS {
                let slow: Vec<_> = figures.slow(&pace).map(str::to_owned).collect();
                let is_slow = |text: &&PathBuf| slow.contains(&name_of(text));
                figures.improve(compiler.compile_alone(texts.iter().filter(is_slow))?);
            }
            figures.judged(&pace)
        }
        Kind::Dxc => figures.all_compiled(),
    };
    print!("{}", figures.table());
    judged.map(|found| format!("{found} of {of_all}"))
}
