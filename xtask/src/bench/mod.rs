//! `bench`: the table of all figures, the table beside another commit or other libraries, and the
//! single benches.
//!
//! The programs that measure print lines of JSON, and everything else happens here. [`row`] parses
//! them. [`table`] writes text and Markdown, [`plot`] a picture, and [`page`] the files.
//! [`programs`] builds and runs the programs, [`against`] and [`peers`] several in turn. [`weight`]
//! counts crates and times builds.

mod against;
mod encoder;
mod options;
mod page;
mod peers;
mod plot;
mod programs;
pub(crate) mod row;
mod table;
pub(crate) mod weight;

use std::fs;
use std::path::PathBuf;

use crate::driver::{cargo_with_gpu, offer_openblas, with_gpu};
use crate::process::{Result, command, each_line, root, run, target_dir};
use crate::suite::SIMULATION;
use options::{Options, parse};
use page::{into_docs, write};
use programs::{TABLE, build_table, cases};
use row::Row;

pub(crate) const ABOUT: &str = "\
Measure everything beside what this machine can do, and write target/bench/table.md and table.svg.
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

/// Reads the command line and runs one of the four.
pub(crate) fn bench(args: &[String]) -> Result {
    let mut options = parse(args)?;
    let known = benches()?;
    let is_single = |word: &String| word != TABLE && known.contains(word);
    match options.words.first() {
        Some(word) if is_single(word) => return single(&options.words, &known),
        Some(word) if word == "embed" => return encoder::embed(options.into_docs),
        Some(word) if word == TABLE => drop(options.words.remove(0)),
        _ => {}
    }
    offer_openblas();
    if options.against.is_some() {
        against::against(&options)
    } else if !options.peers.is_empty() {
        peers::peers(&options)
    } else {
        whole(&options)
    }
}

/// Runs benches by their names.
fn single(names: &[String], known: &[String]) -> Result {
    if let Some(name) = names.iter().find(|name| !known.contains(name)) {
        return Err(format!(
            "there is no bench `{name}`; there are: {}.",
            known.join(", ")
        ));
    }
    let mut bench = cargo_with_gpu()?;
    bench.arg("bench").args(SIMULATION);
    for name in names {
        bench.args(["--bench", name]);
    }
    run(&mut bench)
}

fn benches() -> Result<Vec<String>> {
    let folder = root().join("benches");
    let files = fs::read_dir(&folder).map_err(|error| format!("{}: {error}.", folder.display()))?;
    let is_bench = |path: &PathBuf| {
        path.extension().is_some_and(|extension| extension == "rs") || path.join("main.rs").exists()
    };
    let mut names: Vec<String> = files
        .flatten()
        .map(|file| file.path())
        .filter(is_bench)
        .filter_map(|path| Some(path.file_stem()?.to_str()?.to_owned()))
        .collect();
    names.sort();
    Ok(names)
}

/// All cases in one run of one program.
fn whole(options: &Options) -> Result {
    let program = build_table(&root(), &target_dir())?;
    let mut measure = with_gpu(command(&program))?;
    if options.is_list {
        return run(measure.arg("--list").args(&options.words));
    }
    measure.arg("--json").args(&options.words);
    if let Some(seconds) = &options.seconds {
        measure.args(["--seconds", seconds]);
    }
    let mut rows = Vec::new();
    // The program does not know the rows of `weight`.
    let named = cases(&program, &options.words);
    let mut is_good = true;
    if named.is_ok() {
        is_good = each_line(&mut measure, |line| take(line, options.is_json, &mut rows))?;
    }
    let is_wanted = |row: &Row| {
        let mut words = options.words.iter();
        options.words.is_empty() || words.any(|word| row.case.contains(word.as_str()))
    };
    let mut weighed = vec![weight::crates()?];
    if options.with_build {
        weighed.extend(weight::build()?);
    }
    for row in weighed.into_iter().filter(is_wanted) {
        take(&row.json(), options.is_json, &mut rows);
    }
    if rows.is_empty() {
        return named.map(drop);
    }
    let markdown = table::markdown(&rows);
    write("table.md", &markdown)?;
    write("table.svg", &plot::plot(&rows))?;
    if options.into_docs {
        into_docs("all_cases.md", "table", &markdown)?;
    }
    match is_good {
        true => Ok(()),
        false => Err("not everything is right; see above.".into()),
    }
}

/// Prints a line of a program and keeps its row.
fn take(line: &str, is_json: bool, rows: &mut Vec<Row>) {
    let Some(row) = Row::parse(line) else {
        eprintln!("{line}");
        return;
    };
    if is_json {
        println!("{line}");
    } else {
        if rows.is_empty() {
            println!("\n{}\n{}", row.adapter(), table::header());
        }
        println!("{}", table::line(&row));
    }
    rows.push(row);
}
