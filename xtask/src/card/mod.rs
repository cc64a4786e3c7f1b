//! `card`: one command for people with a GPU. It runs the suite and the benches of a card, and
//! writes one file to send to us.
//!
//! [`seen`] parses the output of the test runner. [`private`] removes personal data. [`report`]
//! writes the file.

mod private;
mod report;
mod seen;

use std::env;
use std::fs;
use std::path::PathBuf;

use crate::driver::cargo_with_gpu;
use crate::process::{Result, capture, command, target_dir, watch};
use crate::suite::{PROGRAM, SIMULATION, WITH_REDIS, selected_except};
use private::Private;
use report::{Adapter, Card, Figures};
use seen::Tests;

pub(crate) const ABOUT: &str = "\
Run the whole suite and the benches `card` and `transfers` on this machine's GPU, and write the results to one
file under target/card: the adapter, its driver and limits, passed and failed tests, figures. It takes a quarter of
an hour to an hour. The file holds no names and no paths: look at it, then send it back. LAPIDARY_ADAPTER chooses
the adapter, as it does for every program of lapidary.
  --small    a part of the suite and small sizes, to see whether it all works: its figures say nothing";

/// The part of the suite that `--small` runs: the core that needs a device.
const SMALL: &[&str] = &["--no-fail-fast", "--test", "device"];

/// Runs everything and writes the file. Failed tests are a result and not a failure of this verb.
pub(crate) fn card(args: &[String]) -> Result {
    if let Some(other) = args.iter().find(|arg| *arg != "--small") {
        return Err(format!(
            "`card` has no option `{other}`; see `cargo xtask card --help`."
        ));
    }
    let is_small = !args.is_empty();
    let private = Private::of_this_machine();
    let adapter = adapter()?;
    println!("{}", adapter.title());
    let tests = tests(is_small)?;
    let figures = ["card", "transfers"].map(|name| figures(name, is_small, &private));
    let card = Card {
        adapter,
        revision: revision(),
        tests,
        figures: figures.into_iter().collect::<Result<_>>()?,
        is_small,
    };
    let text = private.without(&card.markdown());
    if let Some(word) = private.found_in(&text) {
        return Err(format!(
            "the report still holds `{word}`; nothing was written."
        ));
    }
    let path = write(&card.file_name(), &text)?;
    print!("\n{}", card.summary());
    println!(
        "Written to {}: look at it, then send it back.",
        path.display()
    );
    Ok(())
}

/// The adapter that the tests and benches use.
fn adapter() -> Result<Adapter> {
    let mut info = cargo_with_gpu()?;
    info.args(["run", "--quiet"]).args(PROGRAM);
    info.args(["--", "info", "--json"]);
    let listed = capture(&mut info)?;
    Adapter::chosen_of(&listed)
        .ok_or("`lapidary info` names no adapter that would be chosen.".into())
}

/// Runs the whole suite, also after failures.
fn tests(is_small: bool) -> Result<Tests> {
    let mut cargo = match is_small {
        true => selected_except(SMALL, &[], &["custom_kernels::"])?,
        false => selected_except(&["--no-fail-fast"], &[], &[WITH_REDIS])?,
    };
    let watched = watch(&mut cargo, seen::is_telling)?;
    let tests = Tests::of(&watched.lines);
    match tests.passed + tests.failed.len() {
        0 => Err("no test ran; see above.".into()),
        _ => Ok(tests),
    }
}

/// The output of a bench.
fn figures(name: &'static str, is_small: bool, private: &Private) -> Result<Figures> {
    let mut cargo = cargo_with_gpu()?;
    cargo.arg("bench").args(SIMULATION).args(["--bench", name]);
    if is_small {
        cargo.args(["--", "--small"]);
    }
    let watched = watch(&mut cargo, |_| true)?;
    let lines = watched.lines.iter().filter(|line| !seen::is_of_cargo(line));
    Ok(Figures {
        name,
        has_ended_well: watched.succeeded,
        lines: lines.map(|line| private.without(line)).collect(),
    })
}

/// The measured commit; none if this is not a clone.
fn revision() -> Option<String> {
    let described = capture(command("git").args(["rev-parse", "--short=12", "HEAD"])).ok()?;
    let status = capture(command("git").args(["status", "--porcelain"])).ok()?;
    let changed = if status.trim().is_empty() {
        ""
    } else {
        ", changed"
    };
    Some(format!("{}{changed}", described.trim()))
}

fn write(name: &str, text: &str) -> Result<PathBuf> {
    let folder = target_dir().join("card");
    let path = folder.join(name);
    fs::create_dir_all(&folder)
        .and_then(|()| fs::write(&path, text))
        .map_err(|error| format!("{}: {error}.", path.display()))?;
    // If the file is below the current folder, the shorter relative path is shown.
    let here = env::current_dir().ok();
    let short = here.and_then(|here| Some(path.strip_prefix(here).ok()?.to_path_buf()));
    Ok(short.unwrap_or(path))
}
