//! Tests of the suite at full length. The suite itself runs a part of each.

use std::fs;
use std::process::Command;

use super::reached;
use crate::ci::shaders;
use crate::process::{Result, run, target_dir};
use crate::suite::{LIBRARIES, selected};

/// Operations of the allocator in each case, and calls of a random program.
const OPERATIONS: &str = "40000000";
const CALLS: &str = "30000";

/// Runs tests whose length these variables set, under the profile with the longer time limit.
pub(super) fn long(mut tests: Command, variables: &[(&str, &str)]) -> Result {
    tests.env("NEXTEST_PROFILE", "long");
    run(tests.envs(variables.iter().copied()))
}

/// The random runs, in the test profile, which checks every invariant.
pub(super) fn random() -> Result<String> {
    let tests = selected(&["--test", "memory"], &["alloc_model::", "random::"])?;
    long(
        tests,
        &[("LAPIDARY_OPS", OPERATIONS), ("LAPIDARY_CALLS", CALLS)],
    )?;
    Ok(format!(
        "{OPERATIONS} operations a case, {CALLS} calls a program"
    ))
}

/// Every tile with its operands in every pair of orders, and a state file with every bit flipped.
/// The suite tests some of them.
pub(super) fn pairs() -> Result<String> {
    const NAMES: &[&str] = &[
        "ops::matmul::tests::chosen::",
        "a_file_with_any_bit_flipped_is_refused",
    ];
    let tests = selected(LIBRARIES, NAMES)?;
    long(
        tests,
        &[("LAPIDARY_EVERY_PAIR", "1"), ("LAPIDARY_EVERY_BIT", "1")],
    )?;
    Ok(String::new())
}

/// Hundreds of random programs of each kind, with and without fusion and with gradients. The suite
/// tests a few.
pub(super) fn expressions() -> Result<String> {
    const NAMES: &[&str] = &[
        "fusion::graphs::on_an_adapter_",
        "fusion::graphs::expressions_before_and_after_reductions",
        "fusion::graphs::thousands_of_random_expressions",
        "grad::programs::",
    ];
    long(
        selected(&["--test", "operations"], NAMES)?,
        &[("LAPIDARY_PROGRAMS", "300")],
    )?;
    Ok(String::new())
}

/// A hundred thousand hostile kernels.
pub(super) fn texts() -> Result<String> {
    let tests = selected(&["--test", "device"], &["no_changed_text"])?;
    long(tests, &[("LAPIDARY_TEXTS", "100000")])?;
    Ok(String::new())
}

/// A thousand devices with random limits.
pub(super) fn limits() -> Result<String> {
    let tests = selected(&["--test", "device"], &["any_limits_are"])?;
    long(tests, &[("LAPIDARY_LIMITS", "1000")])?;
    Ok(String::new())
}

/// All operations with all kinds of views as operands.
pub(super) fn views() -> Result<String> {
    let tests = selected(&["--test", "operations"], &["views::"])?;
    long(tests, &[("LAPIDARY_VIEWS", "all")])?;
    Ok(String::new())
}

/// Every kernel, interpreted on every device. A debug build takes minutes for it.
pub(super) fn races() -> Result<String> {
    let ran = target_dir().join("interpreted");
    let _ = fs::remove_dir_all(&ran);
    fs::create_dir_all(&ran).map_err(|error| format!("{}: {error}.", ran.display()))?;
    let mut tests = selected(&["--release", "--test", "operations"], &["races::"])?;
    tests.env("LAPIDARY_RACES_DUMP", &ran);
    long(tests, &[("LAPIDARY_RACES", "all")])?;
    reached::judged(&shaders::translated()?, &ran)
}
