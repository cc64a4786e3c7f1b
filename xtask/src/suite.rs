//! The tests of the workspace, and the verbs that start one program after the other: `demo`,
//! `chat`, `test`, `check`, `replay`, `deny`. All runs of tests start here: with cargo-nextest if
//! it is installed (one process for each test), otherwise with cargo's own runner.

use std::env::consts::EXE_SUFFIX;
use std::sync::OnceLock;

use pico_args::Arguments;

use crate::driver::ensure_gpu;
use crate::process::{Cmd, Result, Shell, bail, cmd, ensure, has, nothing_else, target_dir, words};
use crate::source;

/// Options of cargo for the program `lapidary`.
pub(crate) const PROGRAM: [&str; 4] = ["--package", "lapidary-tools", "--bin", "lapidary"];

/// Runs the demo on the available adapter.
pub(crate) fn demo(sh: &Shell, args: Arguments) -> Result<()> {
    ensure_gpu(sh)?;
    let args = words(args);
    Ok(cmd!(sh, "cargo run --release --example demo -- {args...}").run()?)
}

/// Talks with a language model on the available adapter.
pub(crate) fn chat(sh: &Shell, args: Arguments) -> Result<()> {
    ensure_gpu(sh)?;
    let args = words(args);
    let run = cmd!(sh, "cargo run --release --package chat").args(source::EXAMPLES);
    Ok(run.arg("--").args(args).run()?)
}

/// Runs every test of the workspace, then the examples in the documentation.
pub(crate) fn test(sh: &Shell, mut args: Arguments) -> Result<()> {
    let with_model = args.contains("--with-model");
    let filters = words(args);
    if let Some(option) = filters.iter().find(|filter| filter.starts_with('-')) {
        bail!("`test` has no option {option}; see `cargo xtask test --help`");
    }
    without_optimizer(sh, tests(sh, "")?.args(&filters)).run()?;
    if filters.is_empty() {
        cmd!(sh, "cargo test --doc --workspace").run()?;
    }
    match with_model {
        true => crate::model::test(sh),
        false => Ok(()),
    }
}

/// Runs the checks to make before a commit: no adapter, and no long random runs.
pub(crate) fn check(sh: &Shell, args: Arguments) -> Result<()> {
    nothing_else(args)?;
    source::fmt(sh)?;
    source::tidy(sh)?;
    source::clippy(sh)?;
    cmd!(sh, "cargo test --package lapidary-alloc --lib").run()?;
    let names = "alloc_model:: engine:: state::";
    tests(sh, &format!("--test memory --test models -- {names}"))?.run()?;
    // The bodies of the fuzz targets, on stable Rust.
    Ok(tests(sh, "--lib -- mutated::")?.run()?)
}

/// Replays a trace, only by our engine unless the arguments name others. The simulated driver needs
/// no GPU.
pub(crate) fn replay(sh: &Shell, args: Arguments) -> Result<()> {
    let (program, mut args) = (PROGRAM, words(args));
    if !args.iter().any(|arg| arg.starts_with("--against")) {
        args.splice(0..0, ["--against", "none"].map(String::from));
    }
    Ok(cmd!(sh, "cargo run --release {program...} -- replay {args...}").run()?)
}

/// Checks the dependency trees of both workspaces against `deny.toml`.
pub(crate) fn deny(sh: &Shell, args: Arguments) -> Result<()> {
    ensure!(
        has(sh, "cargo deny --version"),
        "`cargo install --locked cargo-deny` installs what is missing"
    );
    let args = words(args);
    for manifest in ["Cargo.toml", "examples/Cargo.toml"] {
        let deny = cmd!(sh, "cargo deny --workspace --manifest-path {manifest}");
        let deny = deny.args(["--config", "deny.toml", "check"]);
        deny.args(&args).run()?;
    }
    Ok(())
}

/// Most of the suite's time is lavapipe's compiler, on kernels that run once. Without LLVM's
/// optimizations it takes two thirds of the time. The steps of `nightly` have them.
pub(crate) fn without_optimizer<'a>(sh: &Shell, command: Cmd<'a>) -> Cmd<'a> {
    match sh.var("GALLIVM_PERF") {
        Ok(_) => command,
        Err(_) => command.env("GALLIVM_PERF", "nopt"),
    }
}

/// A program of the workspace or an example of a published crate (`examples/NAME`), built like the
/// suite. After a run of the suite nothing is left to build.
pub(crate) fn built<'a>(sh: &'a Shell, program: &str) -> Result<Cmd<'a>> {
    static BUILT: OnceLock<()> = OnceLock::new();
    ensure_gpu(sh)?;
    if BUILT.get().is_none() {
        cmd!(sh, "cargo build --workspace --bins --examples").run()?;
        let _ = BUILT.set(());
    }
    let program = target_dir().join(format!("debug/{program}{EXE_SUFFIX}"));
    Ok(cmd!(sh, "{program}"))
}

/// Tests of the workspace, by the words of a command: `VARIABLE=VALUE`, options of cargo that
/// select programs, and behind `--` parts of names, with `--skip` in front of those to leave out. A
/// name begins with its module: `engine::` selects the tests of `tests/engine.rs`.
pub(crate) fn tests<'a>(sh: &'a Shell, words: &str) -> Result<Cmd<'a>> {
    ensure_gpu(sh)?;
    let (options, names) = words.split_once("-- ").unwrap_or((words, ""));
    let options = options.split_whitespace();
    let (variables, options): (Vec<_>, Vec<_>) = options.partition(|word| word.contains('='));
    let is_some = options.contains(&"--lib") || options.contains(&"--test");
    // Always of the whole workspace: for a package alone, cargo would choose other features of its
    // dependencies and compile everything again. Examples in the documentation run separately, and
    // benches are no tests.
    let tests = match has(sh, "cargo nextest --version") {
        true => cmd!(sh, "cargo nextest run --workspace"),
        false if is_some => cmd!(sh, "cargo test --workspace"),
        false => cmd!(sh, "cargo test --workspace --lib --bins --tests --examples"),
    };
    let variables = variables.iter().filter_map(|word| word.split_once('='));
    let names = names.split_whitespace();
    Ok(tests.envs(variables).args(options).arg("--").args(names))
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
    let words = [
        "test result: ",
        "Summary [",
        "FAIL [",
        "SIG",
        "ABORT [",
        "TIMEOUT [",
    ];
    is_failed || words.iter().any(|word| line.trim_start().starts_with(word))
}

#[test]
fn results_of_both_runners_are_told_from_other_lines() {
    for line in [
        "test order::reads ... its own words ... FAILED",
        "test result: FAILED. 1 passed; 1 failed; 1 ignored; 0 measured; 0 filtered out",
        "     Summary [   0.2s] 3 tests run: 20 passed (1 slow), 2 failed, 4 skipped",
        "  \u{1b}[31;1mFAIL\u{1b}[0m [   0.113s] (2/3) lapidary::device order::reads",
        "     SIGABRT [   1.002s] lapidary ops::matmul",
    ] {
        assert!(is_result(&plain(line)), "{line}");
    }
    for line in [
        "test order::queue ... ok",
        "test order::queue has been running for over 60 seconds",
        "  \u{1b}[32;1mPASS\u{1b}[0m [   0.010s] (1/3) lapidary::device order::queue",
        "thread 'a' panicked at src/a.rs:1:2:",
    ] {
        assert!(!is_result(&plain(line)), "{line}");
    }
}
