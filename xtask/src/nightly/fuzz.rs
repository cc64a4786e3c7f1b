//! `fuzz` and `miri`, which need nightly Rust. If rustup cannot install it, the table says so.

use std::env;
use std::path::Path;
use std::process::Command;

use crate::apt;
use crate::process::{Result, capture, cargo, command, has_cargo_command, root, run, target_dir};

/// Default duration of each target.
const SECONDS: &str = "600";
const SECONDS_VARIABLE: &str = "LAPIDARY_FUZZ_SECONDS";

/// Runs every target of `fuzz/`, from its seeds and from what earlier runs here have found.
pub(super) fn all() -> Result<String> {
    if let Err(sentence) = install_nightly(&[]) {
        return Ok(format!(
            "NOT RUN, there is no nightly Rust here: {sentence}"
        ));
    }
    // libFuzzer needs a C++ compiler.
    if apt::is_here() {
        apt::install(&["g++"])?;
    }
    let bin = cargo_fuzz()?;
    let seconds = env::var(SECONDS_VARIABLE).unwrap_or(SECONDS.into());
    let listed = capture(fuzz(&bin)?.arg("list"))?;
    let targets: Vec<&str> = listed.lines().collect();
    let mut failed = Vec::new();
    for target in &targets {
        if let Err(sentence) = run_one(&bin, target, &seconds) {
            eprintln!("{sentence}");
            failed.push(*target);
        }
    }
    match failed.is_empty() && !targets.is_empty() {
        true => Ok(format!("{} for {seconds} s each", targets.join(", "))),
        false => Err(format!(
            "of {} targets failed {failed:?}; fuzz/artifacts has the inputs.",
            targets.len()
        )),
    }
}

fn run_one(bin: &Path, target: &str, seconds: &str) -> Result {
    let found = target_dir().join("fuzz/corpus").join(target);
    std::fs::create_dir_all(&found).map_err(|error| format!("{}: {error}.", found.display()))?;
    let mut fuzz = fuzz(bin)?;
    fuzz.args(["run", "--target-dir"]);
    fuzz.arg(target_dir().join("fuzz")).arg(target).arg(&found);
    // New inputs go to the first folder, so the seeds come second.
    fuzz.arg(root().join("fuzz/corpus").join(target));
    run(fuzz.args(["--", &format!("-max_total_time={seconds}")]))
}

/// The allocator's unit tests. The allocator is the only crate that calls no driver, which Miri
/// cannot do.
pub(super) fn miri() -> Result<String> {
    if let Err(sentence) = install_nightly(&["miri", "rust-src"]) {
        return Ok(format!("NOT RUN, there is no Miri here: {sentence}"));
    }
    let mut miri = nightly_cargo();
    miri.args(["miri", "test", "--package", "lapidary-alloc"]);
    run(miri.env("CARGO_TARGET_DIR", target_dir().join("miri")))?;
    Ok(String::new())
}

fn install_nightly(components: &[&str]) -> Result {
    let mut install = command("rustup");
    install.args(["toolchain", "install", "nightly", "--profile", "minimal"]);
    for component in components {
        install.args(["--component", component]);
    }
    run(install.arg("--no-self-update"))
}

/// Cargo of nightly Rust, whatever toolchain started this program.
fn nightly_cargo() -> Command {
    let mut cargo = command("rustup");
    cargo.args(["run", "nightly", "cargo"]);
    cargo
}

/// The folder of our own cargo-fuzz, if the system had none.
fn cargo_fuzz() -> Result<std::path::PathBuf> {
    let folder = target_dir().join("cargo-fuzz");
    if !has_cargo_command("fuzz") && !folder.join("bin").is_dir() {
        run(cargo()
            .args(["install", "--locked", "cargo-fuzz", "--root"])
            .arg(&folder))?;
    }
    Ok(folder.join("bin"))
}

fn fuzz(bin: &Path) -> Result<Command> {
    let mut path = vec![bin.to_owned()];
    path.extend(env::split_paths(&env::var_os("PATH").unwrap_or_default()));
    let path = env::join_paths(path).map_err(|error| format!("{}: {error}.", bin.display()))?;
    let mut fuzz = nightly_cargo();
    fuzz.arg("fuzz").env("PATH", path);
    Ok(fuzz)
}
