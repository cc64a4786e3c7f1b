//! The verbs that start one program: `demo`, `replay`, `bench`, `deny`.

use std::fs;

use crate::driver::cargo_with_gpu;
use crate::process::{Result, cargo, has_cargo_command, root, run};
use crate::suite::FEATURES;

/// Runs the demo on whatever adapter there is.
pub(crate) fn demo(args: &[String]) -> Result {
    let mut demo = cargo_with_gpu()?;
    demo.args(["run", "--release", "--example", "demo", "--"])
        .args(without_dashes(args));
    run(&mut demo)
}

/// Replays a trace; the simulated driver needs no GPU.
pub(crate) fn replay(args: &[String]) -> Result {
    let mut replay = cargo();
    replay
        .args(["run", "--release"])
        .args(FEATURES)
        .args(["--example", "replay", "--"]);
    run(replay.args(without_dashes(args)))
}

/// Runs the benches named, or all of them.
pub(crate) fn bench(args: &[String]) -> Result {
    let known = benches()?;
    let wanted = without_dashes(args);
    if let Some(name) = wanted.iter().find(|name| !known.contains(name)) {
        return Err(format!(
            "there is no bench `{name}`; there are: {}.",
            known.join(", ")
        ));
    }
    if known.is_empty() {
        return Err("there are no benches.".into());
    }
    let mut bench = cargo_with_gpu()?;
    bench.arg("bench").args(FEATURES);
    for name in if wanted.is_empty() { &known } else { wanted } {
        bench.args(["--bench", name]);
    }
    run(&mut bench)
}

/// Checks the dependency tree against `deny.toml`.
pub(crate) fn deny(args: &[String]) -> Result {
    if !has_cargo_command("deny") {
        return Err(
            "cargo-deny is not installed; `cargo install --locked cargo-deny` does that.".into(),
        );
    }
    run(cargo()
        .args(["deny", "--workspace", "check"])
        .args(without_dashes(args)))
}

fn benches() -> Result<Vec<String>> {
    let folder = root().join("benches");
    let files = fs::read_dir(&folder).map_err(|error| format!("{}: {error}.", folder.display()))?;
    let mut names: Vec<String> = files
        .flatten()
        .map(|file| file.path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "rs"))
        .filter_map(|path| Some(path.file_stem()?.to_str()?.to_owned()))
        .collect();
    names.sort();
    Ok(names)
}

/// The arguments for the program itself, with or without the `--` that may stand before them.
fn without_dashes(args: &[String]) -> &[String] {
    match args {
        [first, rest @ ..] if first == "--" => rest,
        _ => args,
    }
}
