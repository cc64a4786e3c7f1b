//! The kernels as wgpu gives them to a DX12 device. Microsoft's compilers compile them, under Wine
//! except on Windows. FXC is the compiler of every Windows app that ships no other one. It refuses
//! loops that it cannot unroll, and a user waits for it at the first use of each kernel.
//!
//! The compilers are DLLs, which `compile.c` calls. They are downloaded where they are used and
//! never become part of an artefact.

use std::path::{Path, PathBuf};
use std::thread;

use super::shaders::{sampled, texts, translated};
use crate::process::target_dir;
use crate::process::{Context, Result, Shell, bail, cmd, each_line, ensure, root, shell};
use crate::{apt, pip};

/// Texts of each kernel in the sample.
const SAMPLE: usize = 16;

/// How often a text is compiled again that took too long. The least time counts: in a test on a
/// shared machine, one text took between 3.7 and 6.9 s of CPU time.
const MOST_REPEATS: usize = 6;

/// Number of programs that run at a time.
const PARALLEL: usize = 2;

/// Longest compilation of a kernel, in milliseconds of CPU time on the machine on which FXC takes
/// `YARDSTICK_MS` for the yardstick, and 3.8 s for the slowest text.
const SLOWEST_MS: u64 = 5000;
const MEDIAN_MS: u64 = 500;
const LONG_MS: u64 = 1000;
const YARDSTICK_MS: u64 = 320;
/// Percentage of the texts that may take longer than `LONG_MS`.
const MOST_LONG: usize = 5;

/// A compiler of HLSL.
struct Kind {
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
const FXC: Kind = Kind {
    name: "fxc",
    limit_ms: "15000",
    ending: ".sm5.hlsl",
    package: "cefpython3==66.1",
    python: "--python-version 37 --abi cp37m",
    members: &["cefpython3/d3dcompiler_47.dll"],
};

/// The compiler that an app ships, for shader model 6. It takes long for products of software
/// adapters through several windows, which are rare.
const DXC: Kind = Kind {
    name: "dxc",
    limit_ms: "60000",
    ending: ".sm6.hlsl",
    package: "slangpy==0.43.1",
    python: "--python-version 312 --abi cp312",
    members: &["slangpy/dxcompiler.dll", "slangpy/dxil.dll"],
};

/// FXC compiles a sample of the texts.
pub(crate) fn sample(sh: &Shell) -> Result<String> {
    check(sh, &FXC, SAMPLE)
}

/// FXC compiles every text.
pub(crate) fn whole(sh: &Shell) -> Result<String> {
    check(sh, &FXC, usize::MAX)
}

/// DXC compiles a sample of the texts that need it.
pub(crate) fn sample_by_dxc(sh: &Shell) -> Result<String> {
    check(sh, &DXC, SAMPLE)
}

fn check(sh: &Shell, kind: &Kind, most_of_a_kernel: usize) -> Result<String> {
    kind.install(sh)?;
    let all = texts(&translated(sh)?, kind.ending)?;
    let texts = sampled(&all, most_of_a_kernel)?;
    let (count, of_all) = (texts.len(), all.len());
    println!("{} compiles {count} of {of_all} texts", kind.name);
    let mut figures = Figures(kind.compile(&texts)?);
    let judged = if kind.name == FXC.name {
        let pace = kind.yardstick()?.max(YARDSTICK_MS);
        // Two threads of one core need up to twice the time of one, and so does one whose
        // neighbours on the machine use the cache. So slow texts are compiled again alone.
        for _ in 0..MOST_REPEATS {
            let slow = figures.slow(pace);
            let is_slow = |text: &&PathBuf| slow.iter().any(|name| text.ends_with(name));
            for text in texts.iter().filter(is_slow) {
                figures.improve(kind.compile_some(0, &[text])?);
            }
        }
        figures.judged(pace)
    } else {
        figures.all_compiled()
    };
    print!("{}", figures.table());
    Ok(format!("{} of {of_all}", judged?))
}

/// Puts FXC's DLL into a folder, unless it is there.
pub(crate) fn fetch_dll(sh: &Shell, folder: &Path) -> Result<()> {
    fetch(sh, &FXC, folder)
}

fn fetch(sh: &Shell, kind: &Kind, folder: &Path) -> Result<()> {
    let system = format!("--platform win_amd64 --implementation cp {}", kind.python);
    pip::fetch(sh, kind.package, &system, kind.members, folder)
}

impl Kind {
    /// The folder with the program and the DLLs.
    fn folder(&self) -> PathBuf {
        target_dir().join(self.name)
    }

    /// Installs the missing packages, downloads the DLLs and builds the program.
    fn install(&self, sh: &Shell) -> Result<()> {
        apt::install(sh, &["wine", "wine64", "gcc-mingw-w64-x86-64"])?;
        fetch(sh, self, &sh.create_dir(self.folder())?)?;
        let program = self.folder().join("compile.exe");
        let options = "-O2 -D__USE_MINGW_ANSI_STDIO=1 xtask/src/ci/compile.c -o".split(' ');
        cmd!(sh, "x86_64-w64-mingw32-gcc {options...} {program}").run()?;
        // Wine creates its own folder first. Two programs at once would both create it.
        self.compile_some(0, &[]).map(drop)
    }

    /// Compiles all texts.
    fn compile(&self, texts: &[PathBuf]) -> Result<Vec<Compilation>> {
        let share = |index: usize| -> Result<_> {
            let mut rest: Vec<_> = texts.iter().skip(index).step_by(PARALLEL).collect();
            let mut done = Vec::new();
            while let Some(first) = rest.first() {
                let mut some = self.compile_some(index, &rest)?;
                if some.is_empty() {
                    // It ended the program.
                    let line = format!("refused\t0\t{}\tthe compiler fell", first.display());
                    some.extend(Compilation::read(&line));
                }
                rest.drain(..some.len().min(rest.len()));
                done.extend(some);
            }
            Ok(done)
        };
        let share = &share;
        thread::scope(|scope| {
            let shares: Vec<_> = (0..PARALLEL)
                .map(|at| scope.spawn(move || share(at)))
                .collect();
            let mut all = Vec::new();
            for share in shares {
                let Ok(done) = share.join() else {
                    bail!("a thread that compiles panicked");
                };
                all.extend(done?);
            }
            Ok(all)
        })
    }

    /// Compiles the yardstick a few times, alone. Returns the least milliseconds.
    fn yardstick(&self) -> Result<u64> {
        let text = root().join("xtask/src/ci/yardstick.hlsl");
        let times = self.compile_some(0, &[&text; 5])?;
        let compiled = times.iter().filter(|time| time.outcome == COMPILED);
        let least = compiled.map(|time| time.ms).min();
        least.context("the yardstick does not compile")
    }

    /// Compiles texts one after the other, to the end or until one takes too long.
    fn compile_some(&self, index: usize, texts: &[&PathBuf]) -> Result<Vec<Compilation>> {
        let (sh, folder) = (shell()?, self.folder());
        let (program, list) = (
            folder.join("compile.exe"),
            folder.join(format!("list-{index}")),
        );
        let names = texts.iter().map(|text| format!("{}\n", text.display()));
        sh.write_file(&list, names.collect::<String>())?;
        let program = match cfg!(windows) {
            true => cmd!(sh, "{program}"),
            false => cmd!(sh, "wine {program}"),
        };
        let program = program
            .args([self.name, self.limit_ms])
            .arg(list)
            .env("WINEPREFIX", folder.join("wine"))
            .env("WINEDEBUG", "-all")
            .env("WINEDLLOVERRIDES", NO_WINDOWS);
        let mut done = Vec::new();
        each_line(program.into(), |line| done.extend(Compilation::read(line)))?;
        Ok(done)
    }
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
    /// Parses a line of the program: outcome, milliseconds, file, message.
    fn read(line: &str) -> Option<Compilation> {
        let mut fields = line.split('\t');
        let outcome = fields.next()?;
        Some(Compilation {
            outcome: [COMPILED, REFUSED, LATE]
                .into_iter()
                .find(|known| *known == outcome)?,
            ms: fields.next()?.parse().ok()?,
            name: name_of(fields.next()?).into(),
            message: fields.next().unwrap_or_default().into(),
        })
    }
}

/// A file's name without its folder, also of a path in Windows' form.
fn name_of(path: &str) -> &str {
    path.rsplit(['/', '\\']).next().unwrap_or(path)
}

/// All compilations. A pace is FXC's time for the yardstick on this machine: a slower machine gets
/// longer limits, and a faster one no shorter ones.
struct Figures(Vec<Compilation>);

fn at_pace(limit_ms: u64, pace: u64) -> u64 {
    limit_ms * pace / YARDSTICK_MS
}

impl Figures {
    /// The texts that took too long and should be compiled again.
    fn slow(&self, pace: u64) -> Vec<String> {
        let limit_ms = at_pace(SLOWEST_MS, pace);
        let slow = self.0.iter().filter(|text| text.ms > limit_ms);
        slow.map(|text| text.name.clone()).collect()
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
        let slowest = self.sorted().into_iter().take(10);
        let lines = refused.chain(slowest).map(|text| {
            let (outcome, ms, name) = (text.outcome, text.ms, &text.name);
            format!("{outcome:<7} {ms:>6} ms {name} {}\n", text.message)
        });
        lines.collect()
    }

    /// A summary; an error if the results are not good enough for what every user gets.
    fn judged(&self, pace: u64) -> Result<String> {
        let limits = [SLOWEST_MS, MEDIAN_MS, LONG_MS].map(|limit_ms| at_pace(limit_ms, pace));
        let (found, [slowest, median, long]) = self.found(limits[2]);
        let is_fast = slowest <= limits[0]
            && median <= limits[1]
            && long as usize * 100 <= self.0.len() * MOST_LONG;
        let is_good = is_fast && self.all_compiled().is_ok();
        ensure!(
            is_good,
            "{found}; limits: {limits:?} ms, {MOST_LONG} % long, 0 refused"
        );
        Ok(found)
    }

    /// A summary; an error if a text was not compiled, at any speed.
    fn all_compiled(&self) -> Result<String> {
        let (found, _) = self.found(LONG_MS);
        ensure!(
            self.0.iter().all(|text| text.outcome == COMPILED),
            "{found}"
        );
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

    fn text(ms: u64, outcome: &'static str) -> Compilation {
        Compilation {
            outcome,
            ms,
            name: format!("text {ms}"),
            message: String::new(),
        }
    }

    fn figures(times: &[u64], outcome: &'static str) -> Figures {
        Figures(times.iter().map(|&ms| text(ms, outcome)).collect())
    }

    fn judged(times: &[u64], outcome: &'static str) -> Result<String> {
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
    fn a_slow_machine_gets_longer_limits() {
        let slow = figures(&[6000], COMPILED);
        assert!(slow.slow(2 * YARDSTICK_MS).is_empty() && slow.judged(2 * YARDSTICK_MS).is_err());
        assert_eq!(slow.slow(YARDSTICK_MS), ["text 6000"]);
        assert_eq!(at_pace(5000, 2 * YARDSTICK_MS), 10_000);
    }

    #[test]
    fn the_better_of_two_compilations_counts() {
        let mut texts = figures(&[6000, 5500, 10], COMPILED);
        let again = |ms| Compilation {
            name: "text 6000".into(),
            ..text(ms, COMPILED)
        };
        let times = |texts: &Figures| {
            texts
                .sorted()
                .iter()
                .map(|text| text.ms)
                .collect::<Vec<_>>()
        };
        texts.improve(vec![again(7000)]);
        assert_eq!(times(&texts), [6000, 5500, 10]);
        texts.improve(vec![again(3000)]);
        assert_eq!(times(&texts), [5500, 3000, 10]);
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
