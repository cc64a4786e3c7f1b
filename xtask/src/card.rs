//! `card`: one command for people with a GPU. It runs the suite and the benches of a card, and
//! writes one file to send to us: Markdown that people can read before they send it. It has the
//! names of tests and the output of benches, but no message of an error, which could have names of
//! files.

use std::env::consts::{ARCH, OS};

use pico_args::Arguments;
use serde_json::Value;

use crate::command::command;
use crate::driver::ensure_gpu;
use crate::process::{Context, Result, Shell, cmd, ensure, root, target_dir};
use crate::process::{nothing_else, watch};
use crate::suite::{is_result, plain};

pub(crate) const ABOUT: &str = "\
Run the whole suite and the benches `card` and `transfers` on this machine's GPU, and write the
results to one file under target/card: the adapter, its driver and limits, passed and failed tests,
figures. It takes a quarter of an hour to an hour. The file holds no names and no paths: look at it,
then send it back. LAPIDARY_ADAPTER chooses the adapter, as it does for every program of lapidary.
  --small    a part of the suite and small sizes, to see whether it all works: its figures say nothing";

/// Runs everything and writes the file. Failed tests are a result and not a failure of this verb.
pub(crate) fn card(sh: &Shell, mut args: Arguments) -> Result<()> {
    let is_small = args.contains("--small");
    nothing_else(args)?;
    ensure_gpu(sh)?;
    let info = || command(sh, "cargo run --quiet {lapidary} info");
    let listed: Value = serde_json::from_str(&info()?.arg("--json").read()?)?;
    let mut adapters = listed["adapters"].as_array().into_iter().flatten();
    let adapter = adapters.find(|adapter| adapter["chosen"] == true);
    let adapter = adapter.context("`lapidary info` chooses no adapter")?;
    let word = |key: &str| adapter[key].as_str().unwrap_or_default();
    let title = ["name", "backend", "driver"].map(word).join(", ");
    println!("{title}");
    ensure!(
        is_small || adapter["kind"] != "cpu",
        "that is no GPU, and `card` is about them. `card --small` tries whether it works"
    );
    let commit = cmd!(sh, "git describe --always --abbrev=12 --exclude=* --dirty");
    let commit = commit.ignore_stderr().read().unwrap_or("no commit".into());
    let mut text = format!("# {title}\n\nlapidary {commit}, {OS}, {ARCH}.\n");
    if is_small {
        text += "A short run: a part of the suite, and sizes whose figures say nothing.\n";
    }
    text += &section("Adapters", watch(info()?, false)?);
    let [tests, benches] = match is_small {
        true => ["--test device -- !custom_kernels::", "-- --small"],
        false => ["", ""],
    };
    let tests = command(sh, &format!("tests --no-fail-fast {tests}"))?;
    let (succeeded, mut results) = watch(tests, true)?;
    results.iter_mut().for_each(|line| *line = plain(line));
    results.retain(|line| is_result(line));
    ensure!(!results.is_empty(), "no test ran; see above");
    text += &section("Tests", (succeeded, results));
    for name in ["card", "transfers"] {
        let bench = command(sh, &format!("cargo bench --bench {name} {benches}"))?;
        text += &section(&format!("Bench `{name}`"), watch(bench, false)?);
    }
    let own = [root(), target_dir()].map(|path| path.display().to_string());
    let homes = ["HOME", "USERPROFILE", "CARGO_HOME"].map(|name| sh.var(name));
    let folders = own.into_iter().chain(homes.into_iter().flatten());
    for folder in folders.filter(|folder| folder.len() > 1) {
        text = text.replace(&folder, "FOLDER");
    }
    let name = format!("{}-{}", word("name"), word("backend")).to_lowercase();
    let parts = name.split(|c: char| !c.is_ascii_alphanumeric());
    let parts: Vec<_> = parts.filter(|part| !part.is_empty()).collect();
    let path = target_dir().join("card").join(parts.join("-") + ".md");
    sh.write_file(&path, &text)?;
    println!("\nWritten to {path:?}: look at it, then send it back.");
    Ok(())
}

/// The lines of a program, as a section.
fn section(title: &str, (succeeded, lines): (bool, Vec<String>)) -> String {
    let end = if succeeded { "" } else { "It failed.\n" };
    format!("\n## {title}\n\n```text\n{}\n```\n{end}", lines.join("\n"))
}
