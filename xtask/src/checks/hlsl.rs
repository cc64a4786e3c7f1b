//! The kernels as wgpu gives them to a DX12 device. Microsoft's compilers compile them, under Wine.
//! FXC is the compiler of every Windows app that ships no other one. It refuses
//! loops that it cannot unroll, and a user waits for it at the first use of each kernel.
//!
//! The compilers are DLLs, which `compile.c` calls. They are downloaded where they are used and
//! never become part of an artefact.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::slice::from_ref;

use super::shaders::{sampled, texts, translated};
use crate::command::command;
use crate::packages;
use crate::process::{Context, Result, Shell, bail, cmd, root, target_dir};

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
    /// Every user waits for it.
    is_judged: bool,
}

/// The compiler of every Windows, for shader model 5.1. Version 10.0.16299.
pub(crate) const FXC: Kind = Kind {
    name: "fxc",
    limit_ms: "15000",
    ending: ".sm5.hlsl",
    package: "cefpython3==66.1",
    python: "--python-version 37 --abi cp37m",
    members: &["cefpython3/d3dcompiler_47.dll"],
    is_judged: true,
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
    is_judged: false,
};

/// Compiles at most so many texts of each kernel.
pub(crate) fn check(sh: &Shell, kind: &Kind, most_of_a_kernel: usize) -> Result<String> {
    kind.install(sh)?;
    let all = texts(&translated(sh)?, kind.ending)?;
    let texts = sampled(&all, most_of_a_kernel)?;
    let of_all = all.len();
    println!("{} texts of {of_all}, {PARALLEL} at a time", texts.len());
    // A text behind one that ended its program is compiled again alone.
    let mut done = kind.run(sh, &texts, AT_ONCE)?;
    let mut left = texts.clone();
    left.retain(|text| !done.contains_key(&name_of(text)));
    done.extend(kind.run(sh, &left, 1)?);
    for text in left {
        let fell = (0, "the compiler fell".into());
        done.entry(name_of(&text)).or_insert(fell);
    }
    // A slower machine gets longer limits, and a faster one no shorter ones.
    let mut pace = 1.0;
    if kind.is_judged {
        pace = (kind.yardstick(sh)? as f64 / YARDSTICK_MS as f64).max(1.0);
        println!("this machine takes {pace:.2} times as long");
        // Two threads of one core need up to twice the time of one, and so does one whose
        // neighbours on the machine use the cache. So slow texts are compiled again alone.
        for text in &texts {
            for _ in 0..MOST_REPEATS {
                if done[&name_of(text)].0 > at_pace(SLOWEST_MS, pace) {
                    improve(&mut done, kind.run(sh, from_ref(text), 1)?);
                }
            }
        }
    }
    let found = judged(&done, pace, kind.is_judged)?;
    Ok(format!("{found} of {of_all}"))
}

/// Milliseconds of CPU time and the error, by the name of the text. Nothing is an error that took
/// longer than the time limit.
type Compilations = BTreeMap<String, (u64, String)>;

impl Kind {
    /// The folder with the program and the DLLs.
    fn folder(&self) -> PathBuf {
        target_dir().join(self.name)
    }

    /// Puts the compiler's DLLs into a folder, unless they are there.
    pub(crate) fn fetch(&self, sh: &Shell, folder: &Path) -> Result<()> {
        let system = format!("--platform win_amd64 --implementation cp {}", self.python);
        packages::fetch(sh, self.package, &system, self.members, folder)
    }

    /// Installs the missing packages, downloads the DLLs and builds the program.
    fn install(&self, sh: &Shell) -> Result<()> {
        packages::install(sh, "wine wine64 gcc-mingw-w64-x86-64")?;
        self.fetch(sh, &sh.create_dir(self.folder())?)?;
        let program = self.folder().join("compile.exe");
        let options = "-O2 -D__USE_MINGW_ANSI_STDIO=1 xtask/src/checks/compile.c -o".split(' ');
        cmd!(sh, "x86_64-w64-mingw32-gcc {options...} {program}").run()?;
        // Wine creates its own folder first. Two programs at once would both create it.
        self.run(sh, &[], 1).map(drop)
    }

    /// Compiles the yardstick a few times, alone. Returns the least milliseconds.
    fn yardstick(&self, sh: &Shell) -> Result<u64> {
        let text = root().join("xtask/src/checks/yardstick.hlsl");
        let times = self.run(sh, &vec![text; 5], 5)?;
        let least = times.into_values().find(|(_, error)| error.is_empty());
        Ok(least.context("the yardstick does not compile")?.0)
    }

    /// Compiles texts, at most so many one after the other in a program. It ends after one that
    /// takes too long.
    fn run(&self, sh: &Shell, texts: &[PathBuf], at_once: usize) -> Result<Compilations> {
        let names = texts.iter().map(|text| text.display().to_string());
        let names = names.collect::<Vec<_>>().join("\0");
        let (folder, options) = (self.folder(), [self.name, self.limit_ms]);
        let xargs = format!("{WINE} xargs -0 -n {at_once} -P {PARALLEL} wine");
        let xargs = command(sh, &xargs)?.arg(folder.join("compile.exe"));
        let xargs = xargs.args(options).env("WINEPREFIX", folder.join("wine"));
        let mut done = Compilations::new();
        let found = xargs.stdin(names).ignore_status().read()?;
        for line in found.lines() {
            improve(&mut done, read(line).into_iter().collect());
        }
        Ok(done)
    }
}

/// For Wine: no windows, no .NET, no shortcuts; FXC is Microsoft's, not Wine's own.
pub(crate) const WINE: &str = "WINEDEBUG=-all \
    WINEDLLOVERRIDES=mscoree=;mshtml=;winemenubuilder.exe=;d3dcompiler_47=n";

fn name_of(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default();
    name.to_string_lossy().into()
}

/// Parses a line of the program: milliseconds, file (also in Windows' form), error.
fn read(line: &str) -> Option<(String, (u64, String))> {
    let mut fields = line.split('\t');
    let ms = fields.next()?.parse().ok()?;
    let name = fields.next()?.rsplit(['/', '\\']).next()?.into();
    Some((name, (ms, fields.next()?.into())))
}

/// Keeps the better of two compilations of each text.
fn improve(known: &mut Compilations, again: Compilations) {
    for (name, compilation) in again {
        let known = known.entry(name).or_insert((u64::MAX, String::new()));
        if compilation.0 < known.0 {
            *known = compilation;
        }
    }
}

fn at_pace(limit_ms: u64, pace: f64) -> u64 {
    (limit_ms as f64 * pace) as u64
}

/// Prints the refused texts and the ten slowest. A summary; an error if a text was not compiled, or
/// if the times are not good enough for what every user waits for.
fn judged(done: &Compilations, pace: f64, is_judged: bool) -> Result<String> {
    let mut sorted: Vec<_> = done.iter().collect();
    sorted.sort_by_key(|(_, (ms, _))| std::cmp::Reverse(*ms));
    let mut refused = sorted.clone();
    refused.retain(|(_, (_, error))| !error.is_empty());
    for (name, (ms, error)) in refused.iter().chain(sorted.iter().take(10)) {
        println!("{ms:>6} ms {name} {error}");
    }
    let limits = [SLOWEST_MS, MEDIAN_MS, LONG_MS].map(|limit_ms| at_pace(limit_ms, pace));
    let (count, bad) = (sorted.len(), refused.len());
    let [slowest, median] = [0, count / 2].map(|at| sorted.get(at).map_or(0, |text| text.1.0));
    let long = sorted.iter().filter(|text| text.1.0 > limits[2]).count();
    let is_fast = slowest <= limits[0] && median <= limits[1] && long * 100 <= count * MOST_LONG;
    let found = format!(
        "{count} texts, {bad} refused, slowest {slowest} ms, median {median} ms, {long} long"
    );
    match bad == 0 && (is_fast || !is_judged) {
        true => Ok(found),
        false => bail!("{found}; limits: {limits:?} ms, {MOST_LONG} % long"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn done(times: &[u64], error: &str) -> Compilations {
        let text = |(at, ms): (usize, &u64)| (format!("{at}"), (*ms, error.into()));
        times.iter().enumerate().map(text).collect()
    }

    #[test]
    fn refused_slow_and_many_long_texts_are_not_good_enough() {
        for (is_good, count, ms, error, pace, is_judged) in [
            (true, 1, 4000, "", 1.0, true),
            (false, 1, 4000, "refused", 1.0, true),
            (false, 1, 6000, "", 1.0, true),
            (true, 4, 1800, "", 2.0, true),
            (false, 4, 2000, "", 1.0, true),
            (false, 60, 600, "", 1.0, true),
            (true, 60, 600, "", 2.0, true),
            (true, 1, 6000, "", 1.0, false),
            (false, 1, 10, "refused", 1.0, false),
        ] {
            let times = [vec![100; 40], vec![ms; count]].concat();
            let judged = judged(&done(&times, error), pace, is_judged);
            assert_eq!(judged.is_ok(), is_good, "{count} of {ms} {error}");
        }
    }

    #[test]
    fn a_line_is_read_and_the_better_compilation_counts() {
        let line = "12\tZ:\\a\\b-1.sm5.hlsl\terror X3511: unable";
        let text = ("b-1.sm5.hlsl".into(), (12, "error X3511: unable".into()));
        assert_eq!(read(line), Some(text));
        assert_eq!(read("0024:err:something of Wine"), None);
        let mut known = done(&[6000, 10], "");
        improve(&mut known, done(&[7000, 3], ""));
        assert_eq!(known, done(&[6000, 3], ""));
    }
}
