//! `check`: what to run before a commit.

use crate::ci::source;
use crate::process::{Result, cargo, run};
use crate::suite::{LIBRARIES, selected};

/// The tests that run the bodies of the fuzz targets, on stable Rust.
const FUZZED: &[&str] = &["mutated::"];

/// The tests of `check`: no adapter, and no long random runs.
const OF_CHECK: &[&str] = &["--test", "memory", "--test", "models"];
const NAMES_OF_CHECK: &[&str] = &["alloc_model::", "engine::", "state::"];

/// Runs the checks to make before a commit.
pub(crate) fn check(args: &[String]) -> Result {
    if let Some(arg) = args.first() {
        return Err(format!("`check` takes no arguments, such as `{arg}`."));
    }
    source::fmt()?;
    source::tidy()?;
    source::clippy()?;
    run(cargo().args(["test", "--package", "lapidary-alloc", "--lib"]))?;
    run(&mut selected(OF_CHECK, NAMES_OF_CHECK)?)?;
    run(&mut selected(LIBRARIES, FUZZED)?)
}
