//! `test`: the whole suite. All runs of tests start here: with cargo-nextest if it is installed
//! (one process for each test), otherwise with cargo's own runner.

use std::env::{self, consts::EXE_SUFFIX};
use std::process::Command;
use std::sync::OnceLock;

use crate::driver::{cargo_with_gpu, with_gpu};
use crate::process::{Result, command, has_cargo_command, run, target_dir};

/// Arguments of cargo that select the unit tests of the libraries.
pub(crate) const LIBRARIES: &[&str] = &["--lib"];

/// The tests that need a Redis server. The suite leaves them out.
pub(crate) const WITH_REDIS: &str = "stores::redis::";

/// Arguments that select the program `lapidary`.
pub(crate) const PROGRAM: &[&str] = &["--package", "lapidary-tools", "--bin", "lapidary"];

/// The suite needs the simulated driver and snapshots. All builds use the same features, so nothing
/// is compiled twice.
pub(crate) const FEATURES: &[&str] = &[
    "--features",
    "lapidary/sim,lapidary/snapshot,lapidary/tracing,lapidary/metrics,lapidary/safetensors,\
     lapidary/ndarray,lapidary/redis",
];

/// Features for runs without programs: other systems, and benches.
pub(crate) const SIMULATION: &[&str] = &["--features", "lapidary/sim,lapidary/snapshot"];

/// Runs every test of the workspace, then the examples in the documentation.
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
    // They need a server, which a step of `ci` installs.
    let skipped: &[&str] = match filters.is_empty() {
        true => &[WITH_REDIS],
        false => &[],
    };
    let mut tests = selected_except(&[], &filters, skipped)?;
    if env::var_os("GALLIVM_PERF").is_none() {
        // Most of the suite's time is lavapipe's compiler, on kernels that run once. Without
        // LLVM's optimizations it takes two thirds of the time. The steps of `nightly` have them.
        tests.env("GALLIVM_PERF", "nopt");
    }
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

/// A program of the workspace or an example of a published crate (`examples/NAME`), built like the
/// suite with its features. After a run of the suite nothing is left to build.
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

/// Runs the tests of the workspace that `target` (options of cargo) selects and whose names contain
/// one of `names`, or all if `names` is empty. A name begins with its module: `engine::` selects
/// the tests of `tests/engine.rs`.
pub(crate) fn selected(target: &[&str], names: &[&str]) -> Result<Command> {
    selected_except(target, names, &[])
}

/// The same without the tests whose names contain one of `skipped`.
pub(crate) fn selected_except(
    target: &[&str],
    names: &[&str],
    skipped: &[&str],
) -> Result<Command> {
    let mut cargo = cargo_with_gpu()?;
    let has_nextest = has_nextest();
    match has_nextest {
        true => cargo.args(["nextest", "run"]),
        false => cargo.arg("test"),
    };
    // Always of the whole workspace: for a package alone, cargo would choose other features of its
    // dependencies and compile everything again.
    cargo.arg("--workspace").args(FEATURES).args(target);
    let is_target = |option: &&str| ["--lib", "--bin", "--test"].contains(option);
    if !has_nextest && !target.iter().any(is_target) {
        // Examples in the documentation run separately, and benches are no tests.
        cargo.args(["--lib", "--bins", "--tests", "--examples"]);
    }
    if !names.is_empty() || !skipped.is_empty() {
        cargo.arg("--").args(names);
        cargo.args(skipped.iter().flat_map(|name| ["--skip", name]));
    }
    Ok(cargo)
}

/// Whether cargo-nextest runs the tests; it gives each test its own process.
pub(crate) fn has_nextest() -> bool {
    has_cargo_command("nextest")
}
