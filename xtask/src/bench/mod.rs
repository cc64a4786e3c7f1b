//! `bench`: the table of all figures, the table beside another commit or other libraries, and the
//! single benches.
//!
//! The programs that measure print lines of JSON, and everything else happens here. [`row`] parses
//! them. [`table`] writes text and Markdown, and [`plot`] a picture. [`against`] and [`peers`] run
//! several programs in turn. [`weight`] counts crates and times builds.

mod against;
mod encoder;
mod peers;
mod plot;
pub(crate) mod row;
mod table;
mod weight;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::driver::{cargo_with_gpu, offer_openblas, with_gpu};
use crate::process::{Result, command, each_line, root, run, target_dir};
use crate::suite::SIMULATION;
use row::Row;

pub(crate) const ABOUT: &str = "\
Measure everything beside what this machine can do, and write target/bench/table.md and table.svg.
  FILTER         only cases whose names contain it (--list names them)
  --json         one JSON object a line, in place of the table
  --docs         put the table into docs/benchmarks.md
  --build        also a clean release build, its time and the program's size
  --seconds N    about so long for each case
  --against REV  beside another commit: how many times as fast the working tree is
  --peers        beside raw wgpu, candle (CPU) and burn, which takes a quarter of an hour to build
  --peer NAME    beside one of them: raw, candle, burn
  embed          a sentence encoder (examples/embed) beside candle, and under budgets; --docs as above
  NAME           one of the other benches; `table` before a FILTER that is such a name";

/// The bench behind the table.
const TABLE: &str = "table";

/// The page that `--docs` writes to.
const DOCS: &str = "docs/benchmarks.md";

#[derive(Default)]
struct Options {
    is_json: bool,
    is_list: bool,
    into_docs: bool,
    with_build: bool,
    seconds: Option<String>,
    against: Option<String>,
    peers: Vec<String>,
    words: Vec<String>,
}

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

fn parse(args: &[String]) -> Result<Options> {
    let mut options = Options::default();
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let mut value = || {
            let value = args.next().ok_or(format!("`{arg}` wants a value."));
            value.cloned()
        };
        match arg.as_str() {
            "--json" => options.is_json = true,
            "--list" => options.is_list = true,
            "--docs" => options.into_docs = true,
            "--build" => options.with_build = true,
            "--seconds" => options.seconds = Some(value()?),
            "--against" => options.against = Some(value()?),
            "--peers" => options.peers = peers::NAMES.map(str::to_owned).to_vec(),
            "--peer" => options.peers.push(value()?),
            "--" => {}
            _ if arg.starts_with('-') => {
                return Err(format!(
                    "`bench` has no option `{arg}`; see `cargo xtask bench --help`."
                ));
            }
            _ => options.words.push(arg.clone()),
        }
    }
    if options.against.is_some() && !options.peers.is_empty() {
        return Err("another commit or other libraries: one at a time.".into());
    }
    Ok(options)
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
        into_docs("table", &markdown)?;
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

/// Builds the bench of the table in a copy of the repository and returns the program's path.
fn build_table(folder: &Path, target: &Path) -> Result<String> {
    let mut build = cargo_with_gpu()?;
    build
        .current_dir(folder)
        .env("CARGO_TARGET_DIR", target)
        .args(["bench", "--no-run", "--bench", TABLE])
        .args(SIMULATION);
    built(&mut build)
}

/// Runs a build of cargo that makes one program, and returns its path.
fn built(build: &mut Command) -> Result<String> {
    build.arg("--message-format=json-render-diagnostics");
    let mut program = None;
    let succeeded = each_line(build, |line| {
        let path = line.split_once("\"executable\":\"");
        if let Some((path, _)) = path.and_then(|(_, rest)| rest.split_once('"')) {
            program = Some(path.replace("\\\\", "\\"));
        }
    })?;
    program
        .filter(|_| succeeded)
        .ok_or("it could not be built; see above.".into())
}

/// Runs one case of a program. The row is the printed one, or one that says why there is none.
fn one(program: &str, by: &str, case: &str, extra: &[&str]) -> Result<Row> {
    let mut measure = with_gpu(command(program))?;
    measure.args(["--json", "--exact", case]).args(extra);
    let mut row = None;
    let succeeded = each_line(&mut measure, |line| row = row.take().or(Row::parse(line)))?;
    Ok(row.unwrap_or_else(|| {
        let how = if succeeded {
            "said nothing"
        } else {
            "ended in a crash"
        };
        Row::failed(by, case, how)
    }))
}

/// The names of a program's cases that the filters select.
fn cases(program: &str, words: &[String]) -> Result<Vec<String>> {
    let mut names = Vec::new();
    let mut list = with_gpu(command(program))?;
    // Without any cases the caller prints a better message.
    list.arg("--list").args(words).stderr(Stdio::null());
    each_line(&mut list, |line| {
        names.push(line.to_owned());
    })?;
    match names.is_empty() {
        true => Err("no case has such a name; `cargo xtask bench --list` names them.".into()),
        false => Ok(names),
    }
}

fn write(name: &str, text: &str) -> Result {
    let folder = target_dir().join("bench");
    let path = folder.join(name);
    fs::create_dir_all(&folder)
        .and_then(|()| fs::write(&path, text))
        .map_err(|error| format!("{}: {error}.", path.display()))?;
    eprintln!("{}", path.display());
    Ok(())
}

/// Replaces the text between two marks in `docs/benchmarks.md`.
fn into_docs(mark: &str, text: &str) -> Result {
    let path = root().join(DOCS);
    let explain = |error: std::io::Error| format!("{}: {error}.", path.display());
    let page = fs::read_to_string(&path).map_err(explain)?;
    let replaced = between(&page, mark, text)
        .ok_or(format!("{DOCS} has no marks `<!-- bench {mark} -->`."))?;
    fs::write(&path, replaced).map_err(explain)
}

fn between(page: &str, mark: &str, text: &str) -> Option<String> {
    let (open, close) = (format!("<!-- bench {mark} -->\n"), "<!-- end -->");
    let start = page.find(&open)? + open.len();
    let end = start + page[start..].find(close)?;
    Some(format!("{}\n{text}\n{}", &page[..start], &page[end..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_of_a_page_is_replaced_again_and_again() {
        let page =
            "a\n<!-- bench table -->\nold\n<!-- end -->\nb\n<!-- bench peers -->\n<!-- end -->\n";
        let once = between(page, "table", "new").expect("the marks are there");
        assert_eq!(
            once,
            "a\n<!-- bench table -->\n\nnew\n<!-- end -->\nb\n<!-- bench peers -->\n<!-- end -->\n"
        );
        assert_eq!(between(&once, "table", "new"), Some(once));
        assert_eq!(between(page, "other", "new"), None);
    }

    #[test]
    fn words_and_options_are_told_apart() {
        let parsed = |text: &str| {
            let args: Vec<_> = text.split_whitespace().map(str::to_owned).collect();
            parse(&args)
        };
        let options = parsed("table --json matmul --seconds 3").expect("good options");
        assert!(options.is_json && options.words == ["table", "matmul"]);
        assert_eq!(options.seconds.as_deref(), Some("3"));
        for bad in ["--fast", "--seconds", "--against", "--peers --against HEAD"] {
            assert!(parsed(bad).is_err(), "{bad}");
        }
    }
}
