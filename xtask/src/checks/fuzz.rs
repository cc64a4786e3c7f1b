//! `fuzz` and `miri`, which need nightly Rust. If rustup cannot install it, the table says so.

use crate::packages;
use crate::process::{PASSED, Result, Shell, cmd, ensure, has, root, target_dir};

/// Cargo of nightly Rust, whatever toolchain started this program.
const CARGO: [&str; 4] = ["rustup", "run", "nightly", "cargo"];

/// Runs every target of `fuzz/`, from its seeds and from what earlier runs here have found.
pub(crate) fn all(sh: &Shell) -> Result<String> {
    if let Err(error) = install_nightly(sh, "--version", &[]) {
        return Ok(format!("NOT RUN, there is no nightly Rust here: {error}"));
    }
    // libFuzzer needs a C++ compiler.
    packages::install(sh, "g++")?;
    // Our own cargo-fuzz, if the system has none.
    let folder = target_dir().join("cargo-fuzz");
    if !has(sh, "cargo fuzz --version") && !folder.join("bin").is_dir() {
        cmd!(sh, "cargo install --locked cargo-fuzz --root {folder}").run()?;
    }
    let path = format!("{}:{}", folder.join("bin").display(), sh.var("PATH")?);
    let _path = sh.push_env("PATH", path);

    let seconds = sh.var("LAPIDARY_FUZZ_SECONDS").unwrap_or("600".into());
    let listed = cmd!(sh, "env {CARGO...} fuzz list").read()?;
    let mut failed = Vec::new();
    for target in listed.lines() {
        let outputs = target_dir().join("fuzz");
        // New inputs go to the first folder, so the seeds come second.
        let found = sh.create_dir(outputs.join("corpus").join(target))?;
        let seeds = root().join("fuzz/corpus").join(target);
        let fuzz = cmd!(sh, "env {CARGO...} fuzz run {target} {found} {seeds}");
        let fuzz = fuzz.arg("--target-dir").arg(outputs).arg("--");
        if let Err(error) = fuzz.arg(format!("-max_total_time={seconds}")).run() {
            eprintln!("{error}");
            failed.push(target);
        }
    }
    ensure!(
        failed.is_empty(),
        "{failed:?} failed; fuzz/artifacts has the inputs"
    );
    ensure!(!listed.is_empty(), "there are no targets");
    Ok(format!(
        "{} for {seconds} s each",
        listed.replace('\n', ", ")
    ))
}

/// The allocator's unit tests. The allocator is the only crate that calls no driver, which Miri
/// cannot do.
pub(crate) fn miri(sh: &Shell) -> Result<String> {
    if let Err(error) = install_nightly(sh, "miri --version", &["miri", "rust-src"]) {
        return Ok(format!("NOT RUN, there is no Miri here: {error}"));
    }
    let miri = cmd!(sh, "env {CARGO...} miri test --package lapidary-alloc");
    miri.env("CARGO_TARGET_DIR", target_dir().join("miri"))
        .run()?;
    Ok(PASSED)
}

/// Installs nightly Rust with these components, unless it answers.
fn install_nightly(sh: &Shell, question: &str, components: &[&str]) -> Result<()> {
    if has(sh, &format!("rustup run nightly cargo {question}")) {
        return Ok(());
    }
    let components = components.iter().flat_map(|name| ["--component", name]);
    let install = cmd!(sh, "rustup toolchain install nightly {components...}");
    Ok(install
        .args(["--profile", "minimal", "--no-self-update"])
        .run()?)
}
