//! `bench`: the table of all figures, the table beside another commit or other libraries, and the
//! single benches.
//!
//! The programs that measure print lines of JSON, and everything else happens here. `row` reads
//! them. [`programs`] builds and runs the programs, [`turns`] one or several in turn. [`weight`]
//! counts crates and times builds.

mod encoder;
mod language;
mod programs;
mod row;
mod turns;
pub(crate) mod weight;

use std::fs;

use pico_args::Arguments;

use crate::driver::{ensure_gpu, offer_openblas};
use crate::process::{Result, Shell, bail, cmd, root, target_dir};
use programs::{TABLE, build_table};

pub(crate) const ABOUT: &str = "\
Measure everything beside what this machine can do, and write target/bench/table.md.
  FILTER         only cases whose names contain it (--list names them)
  --json         one JSON object a line, in place of the table
  --docs         put the table into docs/benchmarks
  --build        also a clean release build, its time and the program's size
  --seconds N    about so long for each case
  --against REV  beside another commit: how many times as fast the working tree is
  --peers        beside raw wgpu, candle (CPU) and burn, which takes a quarter of an hour to build
  --peer NAME    beside one of them: raw, candle, burn
  embed          a sentence encoder (examples/embed) beside candle, and under budgets; --docs as above
  language       a language model beside candle, in f32 and in blocks; FILTER and --docs as above
  NAME           one of the other benches; `table` before a FILTER that is such a name";

/// The options that the forms of the table share.
struct Options {
    is_json: bool,
    into_docs: bool,
    with_build: bool,
    seconds: Option<String>,
    words: Vec<String>,
}

/// Reads the command line and runs one of the forms.
pub(crate) fn bench(sh: &Shell, mut args: Arguments) -> Result<()> {
    let [is_list, with_peers] = ["--list", "--peers"].map(|option| args.contains(option));
    let against: Option<String> = args.opt_value_from_str("--against")?;
    let mut peers: Vec<String> = args.values_from_str("--peer")?;
    if with_peers {
        peers = turns::PEERS.map(str::to_owned).to_vec();
    }
    let mut options = Options {
        is_json: args.contains("--json"),
        into_docs: args.contains("--docs"),
        with_build: args.contains("--build"),
        seconds: args.opt_value_from_str("--seconds")?,
        words: crate::process::words(args),
    };
    let words = &mut options.words;
    if let Some(option) = words.iter().find(|word| word.starts_with('-')) {
        bail!("`bench` has no option `{option}`; see `cargo xtask bench --help`");
    }
    let benches = benches()?;
    match words.first().map(String::as_str) {
        Some(TABLE) => drop(words.remove(0)),
        Some("embed") => return encoder::embed(sh, options.into_docs),
        Some("language") => return language::language(sh, &words[1..], options.into_docs),
        Some(word) if benches.iter().any(|known| known == word) => {
            if let Some(other) = words.iter().find(|word| !benches.contains(word)) {
                bail!("no bench is `{other}`; there are: {benches:?}");
            }
            ensure_gpu(sh)?;
            let names = words.iter().flat_map(|name| ["--bench", name]);
            return Ok(cmd!(sh, "cargo bench {names...}").run()?);
        }
        _ => {}
    }
    offer_openblas(sh);
    match against {
        _ if is_list => {
            let program = build_table(sh, &root(), &target_dir())?;
            Ok(cmd!(sh, "{program} --list").args(words).quiet().run()?)
        }
        Some(_) if !peers.is_empty() => bail!("another commit or other libraries: one at a time"),
        Some(revision) => turns::against(sh, &revision, &options),
        None => turns::table(sh, &peers, &options),
    }
}

/// The names of all benches.
fn benches() -> Result<Vec<String>> {
    let files = fs::read_dir(root().join("benches"))?.flatten();
    let files = files.map(|file| file.path()).filter(|path| {
        path.extension().is_some_and(|ending| ending == "rs") || path.join("main.rs").exists()
    });
    let names = files.filter_map(|path| Some(path.file_stem()?.to_string_lossy().into_owned()));
    let mut names: Vec<_> = names.collect();
    names.sort();
    Ok(names)
}
