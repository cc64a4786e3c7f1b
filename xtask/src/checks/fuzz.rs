//! `fuzz` and `miri`, which need nightly Rust. If rustup cannot install it, the table says so.

use crate::command::{self, command};
use crate::packages;
use crate::process::{PASSED, Result, Shell, ensure, has, target_dir};

/// Runs every target of `fuzz/`, from its seeds and from what earlier runs here have found.
pub(crate) fn all(sh: &Shell) -> Result<String> {
    if let Err(error) = install_nightly(sh, "--version", "") {
        return Ok(format!("NOT RUN, there is no nightly Rust here: {error}"));
    }
    // libFuzzer needs a C++ compiler.
    packages::install(sh, "g++")?;
    // Our own cargo-fuzz, if the system has none.
    let own = target_dir().join("cargo-fuzz/bin");
    if !has(sh, "cargo fuzz --version") && !own.is_dir() {
        let install = "cargo install --locked cargo-fuzz --root";
        command::run(sh, &format!("{install} {{target}}/cargo-fuzz"))?;
    }
    let _path = sh.push_env("PATH", format!("{}:{}", own.display(), sh.var("PATH")?));
    let seconds = sh.var("LAPIDARY_FUZZ_SECONDS").unwrap_or("600".into());
    let listed = command(sh, "rustup run nightly cargo fuzz list")?.read()?;
    let mut failed = Vec::new();
    for target in listed.lines() {
        // New inputs go to the first folder, so the seeds come second.
        sh.create_dir(target_dir().join("fuzz/corpus").join(target))?;
        let fuzz = format!(
            "rustup run nightly cargo fuzz run {target} {{target}}/fuzz/corpus/{target} \
             {{root}}/fuzz/corpus/{target} --target-dir {{target}}/fuzz -- \
             -max_total_time={seconds}"
        );
        if let Err(error) = command::run(sh, &fuzz) {
            eprintln!("{error}");
            failed.push(target);
        }
    }
    let is_good = failed.is_empty() && !listed.is_empty();
    ensure!(is_good, "{failed:?} failed; fuzz/artifacts has the inputs");
    let listed = listed.replace('\n', ", ");
    Ok(format!("{listed} for {seconds} s each"))
}

/// The allocator's unit tests. The allocator is the only crate that calls no driver, which Miri
/// cannot do.
pub(crate) fn miri(sh: &Shell) -> Result<String> {
    if let Err(error) = install_nightly(sh, "miri --version", "--component miri,rust-src") {
        return Ok(format!("NOT RUN, there is no Miri here: {error}"));
    }
    let miri = "rustup run nightly cargo miri test --package lapidary-alloc";
    command::run(sh, &format!("CARGO_TARGET_DIR={{target}}/miri {miri}"))?;
    Ok(PASSED)
}

/// Installs nightly Rust with these components, unless it answers.
fn install_nightly(sh: &Shell, question: &str, components: &str) -> Result<()> {
    if has(sh, &format!("rustup run nightly cargo {question}")) {
        return Ok(());
    }
    let install = "rustup toolchain install nightly --profile minimal --no-self-update";
    command::run(sh, &format!("{install} {components}"))
}
