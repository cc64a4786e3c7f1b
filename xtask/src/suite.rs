//! `test`: the whole suite. All runs of tests start here: with cargo-nextest if it is installed
//! (one process for each test), otherwise with cargo's own runner.

use std::env::consts::EXE_SUFFIX;
use std::sync::OnceLock;

use pico_args::Arguments;

use crate::driver::ensure_gpu;
use crate::process::{Cmd, Result, Shell, cmd, ensure, has, target_dir};

/// Options of cargo for the program `lapidary`.
pub(crate) const PROGRAM: [&str; 4] = ["--package", "lapidary-tools", "--bin", "lapidary"];

/// Runs every test of the workspace, then the examples in the documentation.
pub(crate) fn test(sh: &Shell, mut args: Arguments) -> Result<()> {
    let with_model = args.contains("--with-model");
    let filters = arguments(args);
    let option = filters.iter().find(|filter| filter.starts_with('-'));
    ensure!(
        option.is_none(),
        "`test` has no option {option:?}; see `cargo xtask test --help`"
    );
    without_optimizer(sh, tests(sh, "")?.args(&filters)).run()?;
    if filters.is_empty() {
        cmd!(sh, "cargo test --doc --workspace").run()?;
    }
    match with_model {
        true => crate::model::test(sh),
        false => Ok(()),
    }
}

/// The arguments for a program, without the dashes in front of them.
pub(crate) fn arguments(args: Arguments) -> Vec<String> {
    let rest = args.finish().into_iter();
    let mut rest = rest
        .map(|arg| arg.to_string_lossy().into_owned())
        .peekable();
    rest.next_if(|arg| arg == "--");
    rest.collect()
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
    let (variables, options): (Vec<&str>, Vec<&str>) = options
        .split_whitespace()
        .partition(|word| word.contains('='));
    let names = names.split_whitespace();
    // Always of the whole workspace: for a package alone, cargo would choose other features of its
    // dependencies and compile everything again.
    let mut tests = match has_nextest(sh) {
        true => cmd!(sh, "cargo nextest run --workspace"),
        // Examples in the documentation run separately, and benches are no tests.
        false
            if options
                .iter()
                .any(|option| ["--lib", "--test"].contains(option)) =>
        {
            cmd!(sh, "cargo test --workspace")
        }
        false => cmd!(sh, "cargo test --workspace --lib --bins --tests --examples"),
    };
    for (name, value) in variables.iter().filter_map(|word| word.split_once('=')) {
        tests = tests.env(name, value);
    }
    Ok(tests.args(options).arg("--").args(names))
}

/// Whether cargo-nextest runs the tests; it gives each test its own process.
pub(crate) fn has_nextest(sh: &Shell) -> bool {
    has(sh, "cargo", &["nextest", "--version"])
}
