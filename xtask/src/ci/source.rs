//! Checks that need no adapter of their own: formatting, lints, documentation, long random runs.

use crate::process::{Result, cargo, run};
use crate::suite::{has_nextest, selected};

/// How many operations a random run makes here; the ordinary suite makes far fewer.
const RANDOM_OPERATIONS: &str = "10000000";

/// The random runs: a whole test file, and every test with this word in its name.
const RANDOM_TEST_FILE: &str = "alloc_model";
const RANDOM_TEST_NAME: &str = "random";

pub(crate) fn fmt() -> Result<String> {
    passed(cargo().args(["fmt", "--all", "--check"]))
}

pub(crate) fn clippy() -> Result<String> {
    passed(
        cargo()
            .args(["clippy", "--workspace", "--all-targets", "--all-features"])
            .args(["--", "-D", "warnings"]),
    )
}

pub(crate) fn clippy_bare() -> Result<String> {
    passed(
        cargo()
            .args([
                "clippy",
                "--workspace",
                "--all-targets",
                "--no-default-features",
            ])
            .args(["--", "-D", "warnings"]),
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
    let runs = if has_nextest() {
        let mut tests = selected(&["--workspace"], &[])?;
        tests.args([
            "-E",
            &format!("binary({RANDOM_TEST_FILE}) | test({RANDOM_TEST_NAME})"),
        ]);
        vec![tests]
    } else {
        let file = selected(&["--test", RANDOM_TEST_FILE], &[])?;
        vec![file, selected(&["--workspace"], &[RANDOM_TEST_NAME])?]
    };
    for mut tests in runs {
        run(tests
            .env("LAPIDARY_LONG", "1")
            .env("LAPIDARY_OPS", RANDOM_OPERATIONS))?;
    }
    Ok(format!("{RANDOM_OPERATIONS} operations a run"))
}

fn passed(command: &mut std::process::Command) -> Result<String> {
    run(command).map(|()| String::new())
}
