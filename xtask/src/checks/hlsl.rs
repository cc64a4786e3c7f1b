//! The kernels as wgpu gives them to a DX12 device. Microsoft's compilers compile them, under Wine.
//! FXC is the compiler of every Windows app that ships no other one. It refuses
//! loops that it cannot unroll, and a user waits for it at the first use of each kernel.
//!
//! The compilers are DLLs, which `compile.c` calls. They are downloaded where they are used and
//! never become part of an artefact.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::slice::from_ref;

use super::shaders::{sampled, texts, translated};
use crate::packages;
use crate::process::{Context, Result, Shell, cmd, ensure, root, target_dir};

/// How often a text is compiled again that took too long. The least time counts: in a test on a
/// shared machine, one text took between 3.7 and 6.9 s of CPU time.
const MOST_REPEATS: usize = 6;

/// Number of programs that run at a time, and of the texts that one compiles.
const PARALLEL: usize = 2;
const AT_ONCE: usize = 100;

/// Longest compilation of a kernel, in milliseconds of CPU time on the machine on which FXC takes
/// `YARDSTICK_MS` for the yardstick, and 3.8 s for the slowest text.
const SLOWEST_MS: u64 = 5000;
const MEDIAN_MS: u64 = 500;
const LONG_MS: u64 = 1000;
const YARDSTICK_MS: u64 = 320;
/// Percentage of the texts that may take longer than `LONG_MS`.
const MOST_LONG: usize = 5;

/// A compiler of HLSL.
pub(crate) struct Kind {
    name: &'static str,
    /// Time limit of a compilation, in milliseconds of CPU time.
    limit_ms: &'static str,
    /// The file ending of the suite's texts for this compiler.
    ending: &'static str,
    /// A package of PyPI with the DLLs, the Python that it is for, and the DLLs.
    package: &'static str,
    python: &'static str,
    members: &'static [&'static str],
}

/// The compiler of every Windows, for shader model 5.1. Version 10.0.16299.
pub(crate) const FXC: Kind = Kind {
    name: "fxc",
    limit_ms: "15000",
    ending: ".sm5.hlsl",
    package: "cefpython3==66.1",
    python: "--python-version 37 --abi cp37m",
    members: &["cefpython3/d3dcompiler_47.dll"],
};

/// The compiler that an app ships, for shader model 6. It takes long for products of software
/// adapters through several windows, which are rare.
pub(crate) const DXC: Kind = Kind {
    name: "dxc",
    limit_ms: "60000",
    ending: ".sm6.hlsl",
    package: "slangpy==0.43.1",
    python: "--python-version 312 --abi cp312",
    members: &["slangpy/dxcompiler.dll", "slangpy/dxil.dll"],
};

/// Compiles at most so many texts of each kernel.
pub(crate) fn check(sh: &Shell, kind: &Kind, most_of_a_kernel: usize) -> Result<String> {
    kind.install(sh)?;
    let all = texts(&translated(sh)?, kind.ending)?;
    let texts = sampled(&all, most_of_a_kernel)?;
    let of_all = all.len();
    println!("{} texts of {of_all}, {PARALLEL} at a time", texts.len());
    let mut figures = Figures(kind.compile(sh, &texts)?);
    // Every user waits for FXC.
    let judged = match kind.name == FXC.name {
        true => {
            let pace = YARDSTICK_MS.max(kind.yardstick(sh)?);
            println!("the yardstick takes {pace} ms");
            // Two threads of one core need up to twice the time of one, and so does one whose
            // neighbours on the machine use the cache. So slow texts are compiled again alone.
            for text in &texts {
                for _ in 0..MOST_REPEATS {
                    if figures.is_slow(&file_name(text), pace) {
                        figures.improve(kind.run(sh, from_ref(text), 1)?);
                    }
                }
            }
            figures.judged(pace)
        }
        false => figures.all_compiled(),
    };
    print!("{}", figures.table());
    Ok(format!("{} of {of_all}", judged?))
}

/// Puts the compiler's DLLs into a folder, unless they are there.
pub(crate) fn fetch(sh: &Shell, kind: &Kind, folder: &Path) -> Result<()> {
    let system = format!("--platform win_amd64 --implementation cp {}", kind.python);
    packages::fetch(sh, kind.package, &system, kind.members, folder)
}

impl Kind {
    /// The folder with the program and the DLLs.
    fn folder(&self) -> PathBuf {
        target_dir().join(self.name)
    }

    /// Installs the missing packages, downloads the DLLs and builds the program.
    fn install(&self, sh: &Shell) -> Result<()> {
        packages::install(sh, "wine wine64 gcc-mingw-w64-x86-64")?;
        fetch(sh, self, &sh.create_dir(self.folder())?)?;
        let program = self.folder().join("compile.exe");
        let options = "-O2 -D__USE_MINGW_ANSI_STDIO=1 xtask/src/checks/compile.c -o".split(' ');
        cmd!(sh, "x86_64-w64-mingw32-gcc {options...} {program}").run()?;
        // Wine creates its own folder first. Two programs at once would both create it.
        self.run(sh, &[], 1).map(drop)
    }

    /// Compiles all texts.
    fn compile(&self, sh: &Shell, texts: &[PathBuf]) -> Result<Vec<Compilation>> {
        let mut done = self.run(sh, texts, AT_ONCE)?;
        let names = |done: &[Compilation]| -> BTreeSet<String> {
            done.iter().map(|text| text.name.clone()).collect()
        };
        // Those behind one that ended its program.
        let mut rest = texts.to_vec();
        rest.retain(|text| !names(&done).contains(&*file_name(text)));
        done.extend(self.run(sh, &rest, 1)?);
        rest.retain(|text| !names(&done).contains(&*file_name(text)));
        let fell = |text: &PathBuf| format!("refused\t0\t{}\tthe compiler fell", text.display());
        done.extend(
            rest.iter()
                .filter_map(|text| Compilation::read(&fell(text))),
        );
        Ok(done)
    }

    /// Compiles the yardstick a few times, alone. Returns the least milliseconds.
    fn yardstick(&self, sh: &Shell) -> Result<u64> {
        let text = root().join("xtask/src/checks/yardstick.hlsl");
        let times = self.run(sh, &vec![text; 5], 5)?;
        let compiled = times.iter().filter(|time| time.outcome == COMPILED);
        let least = compiled.map(|time| time.ms).min();
        least.context("the yardstick does not compile")
    }

    /// Compiles texts, at most so many one after the other in a program. It ends after one that
    /// takes too long.
    fn run(&self, sh: &Shell, texts: &[PathBuf], at_once: usize) -> Result<Vec<Compilation>> {
        let names: Vec<_> = texts
            .iter()
            .map(|text| text.display().to_string())
            .collect();
        let (folder, [at_once, parallel]) =
            (self.folder(), [at_once, PARALLEL].map(|n| n.to_string()));
        let xargs = cmd!(
            sh,
            "xargs -0 -n {at_once} -P {parallel} wine {folder}/compile.exe"
        );
        let xargs = xargs
            .args([self.name, self.limit_ms])
            .stdin(names.join("\0"));
        let xargs = xargs
            .env("WINEPREFIX", folder.join("wine"))
            .env("WINEDEBUG", "-all");
        let found = xargs
            .env("WINEDLLOVERRIDES", NO_WINDOWS)
            .ignore_status()
            .read()?;
        Ok(found.lines().filter_map(Compilation::read).collect())
    }
}

fn file_name(path: &Path) -> Cow<'_, str> {
    path.file_name().unwrap_or_default().to_string_lossy()
}

/// For Wine: no windows, no .NET, no shortcuts; FXC is Microsoft's, not Wine's own.
pub(crate) const NO_WINDOWS: &str = "mscoree=;mshtml=;winemenubuilder.exe=;d3dcompiler_47=n";

/// The outcomes of a compilation. `LATE` took longer than the time limit.
const COMPILED: &str = "ok";
const REFUSED: &str = "refused";
const LATE: &str = "late";

/// The compilation of one text.
#[derive(Clone, Debug)]
struct Compilation {
    outcome: &'static str,
    ms: u64,
    name: String,
    message: String,
}

impl Compilation {
    /// Parses a line of the program: outcome, milliseconds, file (also in Windows' form), message.
    fn read(line: &str) -> Option<Compilation> {
        let mut fields = line.split('\t');
        let outcome = fields.next()?;
        let mut known = [COMPILED, REFUSED, LATE].into_iter();
        Some(Compilation {
            outcome: known.find(|known| *known == outcome)?,
            ms: fields.next()?.parse().ok()?,
            name: fields.next()?.rsplit(['/', '\\']).next()?.into(),
            message: fields.next().unwrap_or_default().into(),
        })
    }
}

/// All compilations. A pace is FXC's time for the yardstick on this machine: a slower machine gets
/// longer limits, and a faster one no shorter ones.
struct Figures(Vec<Compilation>);

fn at_pace(limit_ms: u64, pace: u64) -> u64 {
    limit_ms * pace / YARDSTICK_MS
}

impl Figures {
    /// Whether a text took too long and should be compiled again.
    fn is_slow(&self, name: &str, pace: u64) -> bool {
        let limit_ms = at_pace(SLOWEST_MS, pace);
        let mut texts = self.0.iter();
        texts.any(|text| text.ms > limit_ms && text.name == name)
    }

    /// Keeps the better of two compilations of each text.
    fn improve(&mut self, again: Vec<Compilation>) {
        for better in again {
            let known = self.0.iter_mut().find(|text| text.name == better.name);
            if let Some(known) = known.filter(|text| better.ms < text.ms) {
                *known = better;
            }
        }
    }

    /// Slowest first.
    fn sorted(&self) -> Vec<&Compilation> {
        let mut sorted: Vec<_> = self.0.iter().collect();
        sorted.sort_by(|a, b| b.ms.cmp(&a.ms).then_with(|| a.name.cmp(&b.name)));
        sorted
    }

    /// The refused texts and the ten slowest.
    fn table(&self) -> String {
        let refused = self.0.iter().filter(|text| text.outcome == REFUSED);
        let mut table = String::new();
        for text in refused.chain(self.sorted().into_iter().take(10)) {
            let (outcome, ms, name) = (text.outcome, text.ms, &text.name);
            let _ = writeln!(table, "{outcome:<7} {ms:>6} ms {name} {}", text.message);
        }
        table
    }

    /// A summary; an error if the results are not good enough for what every user gets.
    fn judged(&self, pace: u64) -> Result<String> {
        let limits = [SLOWEST_MS, MEDIAN_MS, LONG_MS].map(|limit_ms| at_pace(limit_ms, pace));
        let (found, [slowest, median, long]) = self.found(limits[2]);
        let is_fast = slowest <= limits[0]
            && median <= limits[1]
            && long as usize * 100 <= self.0.len() * MOST_LONG;
        ensure!(
            is_fast && self.all_compiled().is_ok(),
            "{found}; limits: {limits:?} ms, {MOST_LONG} % long, 0 refused"
        );
        Ok(found)
    }

    /// A summary; an error if a text was not compiled, at any speed.
    fn all_compiled(&self) -> Result<String> {
        let (found, _) = self.found(LONG_MS);
        let is_compiled = |text: &Compilation| text.outcome == COMPILED;
        ensure!(self.0.iter().all(is_compiled), "{found}");
        Ok(found)
    }

    /// A summary, with the slowest and the median in milliseconds and the number of long texts.
    fn found(&self, long_ms: u64) -> (String, [u64; 3]) {
        let (sorted, count) = (self.sorted(), self.0.len());
        let ms = |at: usize| sorted.get(at).map_or(0, |text| text.ms);
        let (slowest, median) = (ms(0), ms(count / 2));
        let long = sorted.iter().filter(|text| text.ms > long_ms).count();
        let compiled = sorted
            .iter()
            .filter(|text| text.outcome == COMPILED)
            .count();
        let summary = format!(
            "{count} texts, {compiled} compiled, slowest {slowest} ms, median {median} ms, \
             {long} above {long_ms} ms"
        );
        (summary, [slowest, median, long as u64])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(times: &[u64], outcome: &str) -> Figures {
        let text = |ms| Compilation::read(&format!("{outcome}\t{ms}\ttext {ms}"));
        Figures(times.iter().filter_map(text).collect())
    }

    fn judged(times: &[u64], outcome: &str) -> Result<String> {
        figures(times, outcome).judged(YARDSTICK_MS)
    }

    #[test]
    fn refused_slow_and_many_long_texts_are_not_good_enough() {
        let mut times = vec![100; 40];
        times.push(4000);
        assert!(judged(&times, COMPILED).is_ok());
        assert!(judged(&times, REFUSED).is_err());
        assert!(judged(&[6000], COMPILED).is_err());
        times.extend([2000; 3]);
        assert!(judged(&times, COMPILED).is_err());
        assert!(judged(&[600; 40], COMPILED).is_err());
        assert!(figures(&[6000], COMPILED).all_compiled().is_ok());
        assert!(figures(&[6000], LATE).all_compiled().is_err());
        assert!(figures(&[10], REFUSED).all_compiled().is_err());
    }

    #[test]
    fn a_slow_machine_gets_longer_limits_and_the_better_compilation_counts() {
        let (mut texts, name) = (figures(&[6000, 10], COMPILED), "text 6000");
        assert!(!texts.is_slow(name, 2 * YARDSTICK_MS));
        for (again, is_slow) in [(7000, true), (3000, false)] {
            texts.improve(
                Compilation::read(&format!("ok\t{again}\ttext 6000"))
                    .into_iter()
                    .collect(),
            );
            assert_eq!(texts.is_slow(name, YARDSTICK_MS), is_slow);
        }
        assert_eq!(at_pace(5000, 2 * YARDSTICK_MS), 10_000);
    }

    #[test]
    fn a_line_of_the_program_is_read() {
        let line = "refused\t12\tZ:\\a\\b-1.sm5.hlsl\terror X3511: unable";
        let text = Compilation::read(line).expect("a line");
        assert_eq!((text.outcome, text.ms), (REFUSED, 12));
        assert_eq!(text.name, "b-1.sm5.hlsl");
        assert_eq!(text.message, "error X3511: unable");
        let late = Compilation::read("late\t15000\tZ:\\b-1.sm5.hlsl").expect("a line");
        assert_eq!((late.outcome, late.message.as_str()), (LATE, ""));
        assert!(Compilation::read("0024:err:something of Wine").is_none());
    }
}
