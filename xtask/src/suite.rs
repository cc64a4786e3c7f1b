//! The verbs that run commands one after the other: `demo`, `chat`, `test`, `check`, `replay`,
//! `deny`. Then what test runners print.

use std::env::consts::EXE_SUFFIX;
use std::sync::OnceLock;

use pico_args::Arguments;

use crate::command::{self, command};
use crate::driver::ensure_gpu;
use crate::process::{Cmd, Result, Shell, bail, cmd, ensure, has, nothing_else, target_dir, words};
use crate::{lists, model};

/// Runs the demo on the available adapter.
pub(crate) fn demo(sh: &Shell, args: Arguments) -> Result<()> {
    ensure_gpu(sh)?;
    let run = command(sh, "cargo run --release --example demo --")?;
    Ok(run.args(words(args)).run()?)
}

/// Talks with a language model on the available adapter.
pub(crate) fn chat(sh: &Shell, args: Arguments) -> Result<()> {
    ensure_gpu(sh)?;
    let run = command(sh, "cargo run {examples} --release --package chat --")?;
    Ok(run.args(words(args)).run()?)
}

/// Runs every test of the workspace, then the examples in the documentation.
pub(crate) fn test(sh: &Shell, mut args: Arguments) -> Result<()> {
    let with_model = args.contains("--with-model");
    let filters = words(args);
    if let Some(option) = filters.iter().find(|filter| filter.starts_with('-')) {
        bail!("`test` has no option {option}; see `cargo xtask test --help`");
    }
    // Most of the suite's time is lavapipe's compiler, on kernels that run once. Without LLVM's
    // optimizations it takes two thirds of the time. The steps of `nightly` have them.
    let level = sh.var("GALLIVM_PERF").unwrap_or("nopt".into());
    let tests = command(sh, "tests --")?.env("GALLIVM_PERF", level);
    tests.args(&filters).run()?;
    if filters.is_empty() {
        command::run(sh, "cargo test --doc --workspace")?;
    }
    match with_model {
        true => model::test(sh),
        false => Ok(()),
    }
}

/// Runs the checks to make before a commit: no adapter, and no long random runs.
pub(crate) fn check(sh: &Shell, args: Arguments) -> Result<()> {
    nothing_else(args)?;
    let of_ci = ["--only", "fmt", "--only", "tidy", "--only", "clippy"];
    lists::ci(sh, Arguments::from_vec(of_ci.map(Into::into).to_vec()))?;
    command::run(sh, "cargo test --package lapidary-alloc --lib")?;
    let memory = "--test memory --test models -- alloc_model:: engine:: state::";
    command::run(sh, &format!("tests {memory}"))?;
    // The bodies of the fuzz targets, on stable Rust.
    command::run(sh, "tests --lib -- mutated::")
}

/// Replays a trace, only by our engine unless the arguments name others. The simulated driver needs
/// no GPU.
pub(crate) fn replay(sh: &Shell, args: Arguments) -> Result<()> {
    let args = words(args);
    let is_named = args.iter().any(|arg| arg.starts_with("--against"));
    let others = if is_named { "" } else { "--against none" };
    let replay = format!("cargo run --release {{lapidary}} replay {others}");
    Ok(command(sh, &replay)?.args(args).run()?)
}

/// Checks the dependency trees of both workspaces against `deny.toml`.
pub(crate) fn deny(sh: &Shell, args: Arguments) -> Result<()> {
    let missing = "`cargo install --locked cargo-deny` installs what is missing";
    ensure!(has(sh, "cargo deny --version"), "{missing}");
    let args = words(args);
    for folder in ["--manifest-path Cargo.toml", "{examples}"] {
        let deny = format!("cargo deny --workspace {folder} --config deny.toml check");
        command(sh, &deny)?.args(&args).run()?;
    }
    Ok(())
}

/// A program of the workspace or an example of a published crate (`examples/NAME`), built like the
/// suite. After a run of the suite nothing is left to build.
pub(crate) fn built<'a>(sh: &'a Shell, program: &str) -> Result<Cmd<'a>> {
    static BUILT: OnceLock<()> = OnceLock::new();
    ensure_gpu(sh)?;
    if BUILT.get().is_none() {
        command::run(sh, "cargo build --workspace --bins --examples")?;
        let _ = BUILT.set(());
    }
    let program = target_dir().join(format!("debug/{program}{EXE_SUFFIX}"));
    Ok(cmd!(sh, "{program}"))
}

/// The text without the escape sequences of colours.
pub(crate) fn plain(line: &str) -> String {
    let mut parts = line.split('\u{1b}');
    let first = parts.next().unwrap_or_default().to_owned();
    let rest = parts.filter_map(|part| part.split_once(|c: char| c.is_ascii_alphabetic()));
    first + &rest.map(|(_, text)| text).collect::<String>()
}

/// Whether a line of a test runner, cargo's or nextest, has counts, or the name of a failed test.
pub(crate) fn is_result(line: &str) -> bool {
    // A test's own output may precede its result.
    let is_failed = line.starts_with("test ") && line.ends_with("... FAILED");
    let words = "test result: |Summary [|FAIL [|SIG|ABORT [|TIMEOUT [";
    let mut words = words.split('|');
    is_failed || words.any(|word| line.trim_start().starts_with(word))
}

#[test]
fn results_of_both_runners_are_told_from_other_lines() {
    let results = "\
test order::reads ... its own words ... FAILED
test result: FAILED. 1 passed; 1 failed; 1 ignored; 0 measured; 0 filtered out
     Summary [   0.2s] 3 tests run: 20 passed (1 slow), 2 failed, 4 skipped
  \u{1b}[31;1mFAIL\u{1b}[0m [   0.113s] (2/3) lapidary::device order::reads
     SIGABRT [   1.002s] lapidary ops::matmul";
    let others = "\
test order::queue ... ok
test order::queue has been running for over 60 seconds
  \u{1b}[32;1mPASS\u{1b}[0m [   0.010s] (1/3) lapidary::device order::queue
thread 'a' panicked at src/a.rs:1:2:";
    for (lines, are_results) in [(results, true), (others, false)] {
        for line in lines.lines() {
            assert_eq!(is_result(&plain(line)), are_results, "{line}");
        }
    }
}
