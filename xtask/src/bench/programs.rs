//! The programs that measure: how they are built, and how one case of them runs.

use std::path::Path;
use std::process::{Command, Stdio};

use super::row::Row;
use crate::driver::{cargo_with_gpu, with_gpu};
use crate::process::{Result, command, each_line};
use crate::suite::SIMULATION;

/// The bench behind the table.
pub(super) const TABLE: &str = "table";

/// Builds the bench of the table in a copy of the repository and returns the program's path.
pub(super) fn build_table(folder: &Path, target: &Path) -> Result<String> {
    let mut build = cargo_with_gpu()?;
    build
        .current_dir(folder)
        .env("CARGO_TARGET_DIR", target)
        .args(["bench", "--no-run", "--bench", TABLE])
        .args(SIMULATION);
    built(&mut build)
}

/// Runs a build of cargo that makes one program, and returns its path.
pub(super) fn built(build: &mut Command) -> Result<String> {
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
pub(super) fn one(program: &str, by: &str, case: &str, extra: &[&str]) -> Result<Row> {
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
pub(super) fn cases(program: &str, words: &[String]) -> Result<Vec<String>> {
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
