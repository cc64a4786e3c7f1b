//! The programs that measure: how they are built, and how one case of them runs. Then the files
//! with the results.

use std::path::Path;

use serde_json::{Value, json};

use super::row::Row;
use crate::driver::ensure_gpu;
use crate::process::{Cmd, Context, Result, Shell, cmd, each_line, ensure, root, target_dir};

/// The bench behind the table.
pub(super) const TABLE: &str = "table";

/// Builds the bench of the table in a copy of the repository and returns the program's path.
pub(super) fn build_table(sh: &Shell, folder: &Path, target: &Path) -> Result<String> {
    ensure_gpu(sh)?;
    let _there = sh.push_dir(folder);
    // Older commits need the first two, and all have the others alike.
    let features = "lapidary/sim,lapidary/snapshot,lapidary/tracing,lapidary/metrics";
    let build = cmd!(sh, "cargo bench --no-run --bench {TABLE}");
    let build = build.args(["--features", features]);
    built(build.env("CARGO_TARGET_DIR", target))
}

/// Builds another library's program of `benches/peers`, a separate workspace.
pub(super) fn build_peer(sh: &Shell, program: &str) -> Result<String> {
    let _there = sh.push_dir("benches/peers");
    let build = cmd!(sh, "cargo build --release --bin {program}").args(["--features", program]);
    let target = target_dir().join("bench/peers");
    built(build.env("CARGO_TARGET_DIR", target)).context(program.to_owned())
}

/// Runs a build of cargo that makes one program, and returns its path.
pub(super) fn built(build: Cmd<'_>) -> Result<String> {
    let mut program = None;
    eprintln!("$ {build}");
    let build = build.arg("--message-format=json-render-diagnostics");
    let succeeded = each_line(build, false, |line| {
        let message: Value = serde_json::from_str(line).unwrap_or_default();
        if let Some(path) = message["executable"].as_str() {
            program = Some(path.to_owned());
        }
    })?;
    let program = program.filter(|_| succeeded);
    program.context("it could not be built; see above")
}

/// Runs one case of a program. The row is the printed one, or one that says why there is none.
pub(super) fn one(sh: &Shell, program: &str, case: &str, extra: &[&str]) -> Result<Row> {
    let measure = cmd!(sh, "{program} --json --exact {case} {extra...}");
    let mut row = None;
    let succeeded = each_line(measure, false, |line| row = row.take().or(Row::parse(line)))?;
    let error = if succeeded { "silence" } else { "a crash" };
    Ok(row.unwrap_or_else(|| Row(json!({ "case": case, "error": error }))))
}

/// The names of a program's cases that the filters select.
pub(super) fn cases(sh: &Shell, program: &str, words: &[String]) -> Result<Vec<String>> {
    let mut names = Vec::new();
    // Without any cases the caller prints a better message.
    let list = cmd!(sh, "{program} --list {words...}").ignore_stderr();
    each_line(list, false, |line| names.push(line.to_owned()))?;
    let none = "no case has such a name; `cargo xtask bench --list` names them";
    ensure!(!names.is_empty(), "{none}");
    Ok(names)
}

/// Writes a file among the build outputs.
pub(super) fn write(sh: &Shell, name: &str, text: &str) -> Result<()> {
    let path = target_dir().join("bench").join(name);
    sh.write_file(&path, text)?;
    eprintln!("{}", path.display());
    Ok(())
}

/// Replaces the text between two marks in a page of `docs/benchmarks`.
pub(super) fn into_docs(sh: &Shell, name: &str, mark: &str, text: &str) -> Result<()> {
    let path = root().join("docs/benchmarks").join(name);
    let page = between(&sh.read_file(&path)?, mark, text);
    Ok(sh.write_file(path, page.context("the page has no such marks")?)?)
}

fn between(page: &str, mark: &str, text: &str) -> Option<String> {
    let mark = format!("<!-- bench {mark} -->\n");
    let (before, rest) = page.split_once(&mark)?;
    let (_, after) = rest.split_once("<!-- end -->")?;
    Some(format!("{before}{mark}\n{text}\n<!-- end -->{after}"))
}

#[test]
fn a_block_of_a_page_is_replaced_again_and_again() {
    let page = "a\n<!-- bench a -->\nold\n<!-- end -->\nb\n<!-- bench b -->\n<!-- end -->\n";
    let once = between(page, "a", "new").expect("the marks are there");
    assert!(once.starts_with("a\n<!-- bench a -->\n\nnew\n<!-- end -->\nb\n<!-- bench b -->"));
    assert_eq!(between(&once, "a", "new"), Some(once));
    assert_eq!(between(page, "other", "new"), None);
}
