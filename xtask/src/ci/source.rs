//! Checks that need no adapter of their own: formatting, lints, documentation, long random runs.

use std::fs;
use std::process::Command;

use super::{reached, shaders};
use crate::model;
use crate::process::{Result, cargo, run, target_dir};
use crate::suite::selected;

/// How long the random runs are: operations of the allocator, calls of a random program, and the
/// profile of nextest that gives them the time.
struct Length {
    operations: &'static str,
    calls: &'static str,
    profile: &'static str,
}

/// Here, and in a run before a release. The ordinary suite makes far fewer.
const IN_CI: Length = Length {
    operations: "10000000",
    calls: "10000",
    profile: "default",
};
const BEFORE_A_RELEASE: Length = Length {
    operations: "40000000",
    calls: "30000",
    profile: "long",
};

pub(crate) fn fmt() -> Result<String> {
    run(cargo().args(["fmt", "--all", "--check"]))?;
    passed(of_examples(&["fmt", "--all"]).arg("--check"))
}

pub(crate) fn clippy() -> Result<String> {
    run(cargo()
        .args(["clippy", "--workspace", "--all-targets", "--all-features"])
        .args(["--", "-D", "warnings"]))?;
    passed(of_examples(&["clippy", "--workspace", "--all-targets"]).args(["--", "-D", "warnings"]))
}

/// A command of cargo's for the programs that are a workspace of their own.
fn of_examples(args: &[&str]) -> Command {
    let mut cargo = cargo();
    cargo.args(args).arg("--manifest-path");
    cargo.arg(model::manifest());
    cargo.env("CARGO_TARGET_DIR", target_dir());
    cargo
}

/// Each crate as users build it, one by one: together they would have each other's features.
pub(crate) fn clippy_bare() -> Result<String> {
    for package in [
        "lapidary-alloc",
        "lapidary-core",
        "lapidary",
        "lapidary-tools",
    ] {
        run(cargo()
            .args(["clippy", "--package", package])
            .args(["--", "-D", "warnings"]))?;
    }
    // Examples and tests turn on features of the core that the library itself does not know of.
    passed(
        cargo()
            .args(["clippy", "--package", "lapidary", "--all-targets"])
            .args(["--features", "safetensors", "--", "-D", "warnings"]),
    )
}

pub(crate) fn doc() -> Result<String> {
    passed(
        cargo()
            .args(["doc", "--workspace", "--no-deps", "--all-features"])
            .env("RUSTDOCFLAGS", "-D warnings"),
    )
}

/// The random runs, long, in the test profile: that one checks every invariant as it goes.
pub(crate) fn random() -> Result<String> {
    run_random(&IN_CI)
}

/// The random runs as long as they are before a release.
pub(crate) fn random_long() -> Result<String> {
    run_random(&BEFORE_A_RELEASE)
}

fn run_random(length: &Length) -> Result<String> {
    let mut tests = selected(&["--test", "alloc_model", "--test", "random"], &[])?;
    run(tests
        .env("LAPIDARY_OPS", length.operations)
        .env("LAPIDARY_CALLS", length.calls)
        .env("NEXTEST_PROFILE", length.profile))?;
    let Length {
        operations, calls, ..
    } = length;
    Ok(format!(
        "{operations} operations a case, {calls} calls a program"
    ))
}

/// A hundred thousand hostile kernels.
pub(crate) fn texts() -> Result<String> {
    let mut tests = selected(&["--test", "custom_kernels"], &["no_changed_text"])?;
    run(tests
        .env("LAPIDARY_TEXTS", "100000")
        .env("NEXTEST_PROFILE", BEFORE_A_RELEASE.profile))?;
    Ok(String::new())
}

/// A thousand devices with limits drawn at random.
pub(crate) fn limits() -> Result<String> {
    let mut tests = selected(&["--test", "device"], &["any_limits_are"])?;
    run(tests
        .env("LAPIDARY_LIMITS", "1000")
        .env("NEXTEST_PROFILE", BEFORE_A_RELEASE.profile))?;
    Ok(String::new())
}

/// Operations with operands that are views, as many as there are.
pub(crate) fn views() -> Result<String> {
    let mut tests = selected(&["--test", "views"], &[])?;
    run(tests
        .env("LAPIDARY_VIEWS", "all")
        .env("NEXTEST_PROFILE", BEFORE_A_RELEASE.profile))?;
    Ok(String::new())
}

/// Every kernel interpreted on every device, and nothing left out; in a debug build that takes
/// minutes.
pub(crate) fn races() -> Result<String> {
    let ran = target_dir().join("interpreted");
    let _ = fs::remove_dir_all(&ran);
    fs::create_dir_all(&ran).map_err(|error| format!("{}: {error}.", ran.display()))?;
    let mut tests = selected(&["--release", "--test", "races"], &[])?;
    run(tests
        .env("LAPIDARY_RACES", "all")
        .env("LAPIDARY_RACES_DUMP", &ran)
        .env("NEXTEST_PROFILE", BEFORE_A_RELEASE.profile))?;
    reached::judged(&shaders::translated()?, &ran)
}

fn passed(command: &mut Command) -> Result<String> {
    run(command).map(|()| String::new())
}
