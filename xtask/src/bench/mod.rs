//! `bench`: the table of all figures, the table beside another commit or other libraries, and the
//! single benches.
//!
//! The programs that measure print lines of JSON, and everything else happens here. [`row`] reads
//! them and writes text and Markdown. [`programs`] builds and runs the programs, [`turns`] several
//! in turn. [`weight`] counts crates and times builds.

mod encoder;
mod programs;
mod row;
mod turns;
pub(crate) mod weight;

use std::fs;

use pico_args::Arguments;

use crate::driver::{ensure_gpu, offer_openblas};
use crate::process::{Result, Shell, bail, cmd, each_line, ensure, root, target_dir};
use programs::{TABLE, build_table, cases, into_docs, write};
use row::{HEADER, Row, markdown};

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
  NAME           one of the other benches; `table` before a FILTER that is such a name";

/// The options that the forms of the table share.
struct Options {
    is_json: bool,
    into_docs: bool,
    seconds: Option<String>,
    words: Vec<String>,
}

/// Reads the command line and runs one of the four.
pub(crate) fn bench(sh: &Shell, mut args: Arguments) -> Result<()> {
    let [is_list, with_build, with_peers] =
        ["--list", "--build", "--peers"].map(|o| args.contains(o));
    let against: Option<String> = args.opt_value_from_str("--against")?;
    let mut peers: Vec<String> = args.values_from_str("--peer")?;
    if with_peers {
        peers = turns::PEERS.map(str::to_owned).to_vec();
    }
    let mut options = Options {
        is_json: args.contains("--json"),
        into_docs: args.contains("--docs"),
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
        Some(word) if benches.iter().any(|known| known == word) => {
            let other = words.iter().find(|word| !benches.contains(word));
            ensure!(
                other.is_none(),
                "no bench is {other:?}; there are: {benches:?}"
            );
            ensure_gpu(sh)?;
            let names = words.iter().flat_map(|name| ["--bench", name]);
            return Ok(cmd!(sh, "cargo bench {names...}").run()?);
        }
        _ => {}
    }
    offer_openblas(sh);
    match against {
        Some(_) if !peers.is_empty() => bail!("another commit or other libraries: one at a time"),
        Some(revision) => turns::against(sh, &revision, &options),
        None if !peers.is_empty() => turns::peers(sh, &peers, &options),
        None => whole(sh, &options, is_list, with_build),
    }
}

/// The names of all benches.
fn benches() -> Result<Vec<String>> {
    let mut names = Vec::new();
    for file in fs::read_dir(root().join("benches"))? {
        let file = file?;
        let name = file.file_name().to_string_lossy().into_owned();
        match name.strip_suffix(".rs") {
            Some(name) => names.push(name.to_owned()),
            None if file.path().join("main.rs").exists() => names.push(name),
            None => {}
        }
    }
    names.sort();
    Ok(names)
}

/// All cases in one run of one program.
fn whole(sh: &Shell, options: &Options, is_list: bool, with_build: bool) -> Result<()> {
    let program = build_table(sh, &root(), &target_dir())?;
    let words = &options.words;
    if is_list {
        return Ok(cmd!(sh, "{program} --list {words...}").quiet().run()?);
    }
    let mut rows = Vec::new();
    let mut take = |row: Option<Row>, line: &str| match row {
        None => eprintln!("{line}"),
        Some(row) => {
            if options.is_json {
                println!("{}", row.0);
            } else {
                if rows.is_empty() {
                    println!("\n{}\n{HEADER}", row.adapter());
                }
                println!("{}", row.line());
            }
            rows.push(row);
        }
    };
    // The program does not know the rows of `weight`.
    let named = cases(sh, &program, words);
    let mut is_good = true;
    if named.is_ok() {
        let seconds = options.seconds.iter();
        let seconds = seconds.flat_map(|seconds| ["--seconds", seconds]);
        let measure = cmd!(sh, "{program} --json {words...} {seconds...}");
        is_good = each_line(measure, |line| take(Row::parse(line), line))?;
    }
    let mut weighed = vec![weight::crates(sh)?];
    if with_build {
        weighed.extend(weight::build(sh)?);
    }
    for row in weighed {
        let mut filters = words.iter();
        if words.is_empty() || filters.any(|word| row.text("case").contains(word)) {
            take(Some(row), "");
        }
    }
    if rows.is_empty() {
        return named.map(drop);
    }
    let markdown = markdown(&rows);
    write(sh, "table.md", &markdown)?;
    if options.into_docs {
        into_docs(sh, "all_cases.md", "table", &markdown)?;
    }
    ensure!(is_good, "not everything is right; see above");
    Ok(())
}
