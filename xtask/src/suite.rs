//! `test`: the whole suite. Also the one place that knows how to start a part of it, with
//! cargo-nextest where it is installed (a process for each test) and with cargo's own runner where
//! not.

use std::env::consts::EXE_SUFFIX;
use std::process::Command;
use std::sync::OnceLock;

use crate::driver::{cargo_with_gpu, with_gpu};
use crate::process::{Result, cargo, command, has_cargo_command, run, target_dir};

/// The libraries' own tests, in cargo's words.
pub(crate) const LIBRARIES: &[&str] = &[
    "--package",
    "lapidary",
    "--package",
    "lapidary-core",
    "--lib",
];

/// The bodies of the fuzz targets, on stable Rust.
const FUZZED: &[&str] = &["--package", "lapidary-fuzzing", "--lib"];

/// The program `lapidary`, in cargo's words.
pub(crate) const PROGRAM: &[&str] = &["--package", "lapidary-tools", "--bin", "lapidary"];

/// The suite needs the simulated driver and what is told to others, and one set of features for all
/// builds means that nothing is compiled twice.
pub(crate) const FEATURES: &[&str] = &[
    "--features",
    "lapidary/sim,lapidary/snapshot,lapidary/tracing,lapidary/metrics,lapidary/safetensors,\
     lapidary/ndarray",
];

/// What needs no program: other systems, and what is measured.
pub(crate) const SIMULATION: &[&str] = &["--features", "lapidary/sim,lapidary/snapshot"];

/// Runs every test of the workspace, then the documentation's examples.
pub(crate) fn test(args: &[String]) -> Result {
    let is_given = |option: &str| args.iter().any(|arg| arg == option);
    let has_model = is_given("--with-model");
    let filters = args.iter().map(String::as_str);
    let filters: Vec<&str> = filters.filter(|arg| *arg != "--with-model").collect();
    if let Some(option) = filters
        .iter()
        .find(|filter| filter.starts_with('-') && **filter != "--")
    {
        return Err(format!(
            "`test` has no option `{option}`; see `cargo xtask test --help`."
        ));
    }
    let filters: Vec<&str> = filters
        .into_iter()
        .filter(|filter| *filter != "--")
        .collect();
    let mut tests = selected(&["--workspace"], &filters)?;
    let mut examples = cargo_with_gpu()?;
    examples
        .args(["test", "--doc", "--workspace"])
        .args(FEATURES);
    run(&mut tests)?;
    if filters.is_empty() {
        run(&mut examples)?;
    }
    if has_model {
        crate::model::test()?;
    }
    Ok(())
}

/// The tests of `check`: no adapter, and no long random runs.
const OF_CHECK: &[&str] = &["--test", "memory", "--test", "models"];
const NAMES_OF_CHECK: &[&str] = &["alloc_model::", "engine::", "state::"];

/// What a change passes before it is committed.
pub(crate) fn check(args: &[String]) -> Result {
    if let Some(arg) = args.first() {
        return Err(format!("`check` takes no arguments, such as `{arg}`."));
    }
    crate::ci::source::fmt()?;
    crate::ci::source::tidy()?;
    crate::ci::source::clippy()?;
    run(cargo().args(["test", "--package", "lapidary-alloc", "--lib"]))?;
    run(&mut selected(OF_CHECK, NAMES_OF_CHECK)?)?;
    run(&mut selected(FUZZED, &[])?)
}

/// A program of the workspace, or an example of a published crate (`examples/NAME`), as the suite
/// builds them: with all features, and where the suite has run there is nothing to build.
pub(crate) fn built(program: &str) -> Result<Command> {
    static BUILT: OnceLock<Result> = OnceLock::new();
    let build = || {
        let mut build = cargo_with_gpu()?;
        build.args(["build", "--workspace", "--bins", "--examples"]);
        run(build.args(FEATURES))
    };
    BUILT.get_or_init(build).clone()?;
    let file = target_dir().join("debug").join(program);
    let file = file.display().to_string() + EXE_SUFFIX;
    with_gpu(command(&file))
}

/// A run of the tests that `target` selects (as cargo's options do) and whose names hold one of
/// `names`, or of all of them if there are no names. A name begins with the module's: `engine::`
/// are the tests of `tests/engine.rs`.
pub(crate) fn selected(target: &[&str], names: &[&str]) -> Result<Command> {
    selected_except(target, names, &[])
}

/// The same, less the tests whose names hold one of `skipped`.
pub(crate) fn selected_except(
    target: &[&str],
    names: &[&str],
    skipped: &[&str],
) -> Result<Command> {
    let mut cargo = cargo_with_gpu()?;
    if has_nextest() {
        cargo.args(["nextest", "run"]).args(FEATURES).args(target);
    } else {
        cargo.arg("test").args(FEATURES).args(target);
        if target.first() == Some(&"--workspace") {
            // Documentation has a run of its own, and benches are no tests.
            cargo.args(["--lib", "--bins", "--tests", "--examples"]);
        }
    }
    if !names.is_empty() || !skipped.is_empty() {
        cargo.arg("--").args(names);
        cargo.args(skipped.iter().flat_map(|name| ["--skip", name]));
    }
    Ok(cargo)
}

/// Whether cargo-nextest runs the tests, which gives each a process of its own.
pub(crate) fn has_nextest() -> bool {
    has_cargo_command("nextest")
}
