//! Commands as tables have them: a line of text for each.

use crate::driver::ensure_gpu;
use crate::packages;
use crate::process::{Cmd, Result, Shell, cmd, ensure, has, root, target_dir};

/// Runs a line: `gpu` provides a Vulkan driver, `install PACKAGES` packages, `target NAME` a
/// target of Rust. The others are those of [`command`].
pub(crate) fn run(sh: &Shell, line: &str) -> Result<()> {
    let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
    match word {
        "gpu" => ensure_gpu(sh),
        "install" => packages::install(sh, rest),
        "target" => provide_target(sh, rest),
        _ => Ok(command(sh, line)?.run()?),
    }
}

/// Variables as `NAME=VALUE`, then a program and its arguments, or `tests` or `long` and the words
/// of [`tests`]. `{root}` is the repository, `{target}` the folder of build outputs, `{examples}`
/// and `{lapidary}` the options of cargo for the workspace in that folder and for that program.
pub(crate) fn command<'a>(sh: &'a Shell, line: &str) -> Result<Cmd<'a>> {
    let line = line.replace("{examples}", "--manifest-path examples/Cargo.toml");
    let line = line.replace("{lapidary}", "--package lapidary-tools --bin lapidary --");
    let [root, target] = [root(), target_dir()].map(|path| path.display().to_string());
    let path = |word: &str| word.replace("{root}", &root).replace("{target}", &target);
    let mut words = line.split_whitespace().map(path).peekable();
    let mut variables = Vec::new();
    while let Some(word) = words.next_if(|word| word.contains('=')) {
        variables.push(word);
    }
    let program = words.next().unwrap_or_default();
    let command = match &*program {
        "tests" => tests(sh, &words.collect::<Vec<_>>())?,
        // The profile has a longer time limit.
        "long" => tests(sh, &words.collect::<Vec<_>>())?.env("NEXTEST_PROFILE", "long"),
        _ => cmd!(sh, "{program} {words...}"),
    };
    let variables = variables.iter().filter_map(|word| word.split_once('='));
    Ok(command.envs(variables))
}

/// Tests of the workspace: options of cargo that select programs, and behind `--` parts of names,
/// with `!` in front of those to leave out. A name begins with its module: `engine::` selects the
/// tests of `tests/engine.rs`. With cargo-nextest if it is installed (one process for each test),
/// otherwise with cargo's own runner.
fn tests<'a>(sh: &'a Shell, words: &[String]) -> Result<Cmd<'a>> {
    ensure_gpu(sh)?;
    let end = words.iter().position(|word| word == "--");
    let (options, names) = words.split_at(end.unwrap_or(words.len()));
    let mut programs = options.iter();
    let is_some = programs.any(|option| option == "--lib" || option == "--test");
    // Always of the whole workspace: for a package alone, cargo would choose other features of its
    // dependencies and compile everything again. Examples in the documentation run separately, and
    // benches are no tests.
    let tests = match has(sh, "cargo nextest --version") {
        true => cmd!(sh, "cargo nextest run --workspace"),
        false if is_some => cmd!(sh, "cargo test --workspace"),
        false => cmd!(sh, "cargo test --workspace --lib --bins --tests --examples"),
    };
    let names = names.iter().flat_map(|name| match name.strip_prefix('!') {
        Some(name) => vec!["--skip", name],
        None => vec![name.as_str()],
    });
    Ok(tests.args(options).args(names))
}

/// Installs a target's standard library, unless it is there.
pub(crate) fn provide_target(sh: &Shell, target: &str) -> Result<()> {
    let installed = cmd!(sh, "rustup target list --installed");
    let installed = installed.ignore_stderr().read();
    ensure!(
        installed.is_ok_and(|list| list.lines().any(|installed| installed == target))
            || has(sh, &format!("rustup target add {target}")),
        "rustup has no {target}, and cannot install it here"
    );
    Ok(())
}

#[test]
fn a_line_has_variables_a_program_and_arguments() {
    let sh = Shell::new().expect("there is a folder");
    let line = "RUSTFLAGS=-Da=b cargo doc {examples} --config a=b";
    let command = command(&sh, line).expect("a command").to_string();
    let wanted = "cargo doc --manifest-path examples/Cargo.toml --config a=b";
    assert_eq!(command, wanted);
}
