//! `fuzz` and `miri`, which need nightly Rust. If rustup cannot install it, the table says so.

use std::env;

use crate::apt;
use crate::process::{Cmd, Result, Shell, cmd, ensure, has, root, target_dir};
use crate::steps::PASSED;

/// Runs every target of `fuzz/`, from its seeds and from what earlier runs here have found.
pub(super) fn all(sh: &Shell) -> Result<String> {
    if let Err(error) = install_nightly(sh, &[]) {
        return Ok(format!("NOT RUN, there is no nightly Rust here: {error}"));
    }
    // libFuzzer needs a C++ compiler.
    apt::install(sh, &["g++"])?;
    // Our own cargo-fuzz, if the system has none.
    let folder = target_dir().join("cargo-fuzz");
    if !has(sh, "cargo", &["fuzz", "--version"]) && !folder.join("bin").is_dir() {
        cmd!(sh, "cargo install --locked cargo-fuzz --root {folder}").run()?;
    }
    let mut path = vec![folder.join("bin")];
    path.extend(env::split_paths(&env::var_os("PATH").unwrap_or_default()));
    let _path = sh.push_env("PATH", env::join_paths(path)?);

    let seconds = sh.var("LAPIDARY_FUZZ_SECONDS").unwrap_or("600".into());
    let listed = nightly_cargo(sh).args(["fuzz", "list"]).read()?;
    let targets: Vec<&str> = listed.lines().collect();
    let mut failed = Vec::new();
    for target in &targets {
        let outputs = target_dir().join("fuzz");
        // New inputs go to the first folder, so the seeds come second.
        let found = sh.create_dir(outputs.join("corpus").join(target))?;
        let seeds = root().join("fuzz/corpus").join(target);
        let fuzz = nightly_cargo(sh)
            .args(["fuzz", "run", target, "--target-dir"])
            .arg(outputs);
        let fuzz = fuzz
            .arg(found)
            .arg(seeds)
            .arg("--")
            .arg(format!("-max_total_time={seconds}"));
        if let Err(error) = fuzz.run() {
            eprintln!("{error}");
            failed.push(target);
        }
    }
    ensure!(
        failed.is_empty(),
        "{failed:?} failed; fuzz/artifacts has the inputs"
    );
    ensure!(!targets.is_empty(), "there are no targets");
    Ok(format!("{} for {seconds} s each", targets.join(", ")))
}

/// The allocator's unit tests. The allocator is the only crate that calls no driver, which Miri
/// cannot do.
pub(super) fn miri(sh: &Shell) -> Result<String> {
    if let Err(error) = install_nightly(sh, &["--component", "miri", "--component", "rust-src"]) {
        return Ok(format!("NOT RUN, there is no Miri here: {error}"));
    }
    let miri = nightly_cargo(sh).args(["miri", "test", "--package", "lapidary-alloc"]);
    miri.env("CARGO_TARGET_DIR", target_dir().join("miri"))
        .run()?;
    Ok(PASSED)
}

fn install_nightly(sh: &Shell, components: &[&str]) -> Result<()> {
    let options = ["--profile", "minimal", "--no-self-update"];
    Ok(cmd!(
        sh,
        "rustup toolchain install nightly {options...} {components...}"
    )
    .run()?)
}

/// Cargo of nightly Rust, whatever toolchain started this program.
fn nightly_cargo(sh: &Shell) -> Cmd<'_> {
    cmd!(sh, "rustup run nightly cargo")
}
