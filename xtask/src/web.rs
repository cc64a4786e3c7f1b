//! `web`: builds the page of examples/web, then serves it or tests it in a browser without a
//! window.
//!
//! The page's files are in a folder of the build outputs: size-optimized wasm, the script that
//! loads it, and the page. The program `bindgen` of the examples' workspace writes that script. The
//! lock file keeps it at the version that the wasm was compiled with, which is necessary. It
//! compiles a third of what `cargo install wasm-bindgen-cli` compiles.

use std::fs;
use std::path::{Path, PathBuf};

use pico_args::Arguments;

use crate::browser::script;
use crate::ci::source::EXAMPLES;
use crate::driver::ensure_gpu;
use crate::model;
use crate::process::{Result, Shell, cmd, emptied, root, target_dir};
use crate::steps::nothing_else;
use crate::toolchain::{debian_cargo, rustup_provides};

const TARGET: &str = "wasm32-unknown-unknown";

/// Builds the page, then serves or tests it.
pub(crate) fn web(sh: &Shell, mut args: Arguments) -> Result<()> {
    let is_test = args.contains("--test");
    let port: u16 = args.opt_value_from_str("--port")?.unwrap_or(8013);
    nothing_else(args)?;
    if is_test {
        println!("{}", test(sh)?);
        return Ok(());
    }
    let (folder, size) = build(sh)?;
    println!("{size}");
    if model::is_there() {
        link(sh, &model::folder(), &folder.join("model"))?;
    } else {
        println!("There is no model for its search: `cargo xtask fetch-model` gets one, 83 MB.");
    }
    println!("The page is at http://127.0.0.1:{port}/ until you press Ctrl-C.");
    let port = port.to_string();
    Ok(cmd!(
        sh,
        "python3 -m http.server {port} --bind 127.0.0.1 --directory {folder}"
    )
    .run()?)
}

/// The library in a browser: the page tests itself. Its results are compared with those of the same
/// calls on this machine. If rustup cannot install the target, the step is skipped, because
/// Debian's toolchain has never been tested here.
pub(crate) fn check(sh: &Shell) -> Result<String> {
    if !rustup_provides(sh, TARGET) {
        return Ok(format!("NOT RUN, rustup cannot install {TARGET} here"));
    }
    ensure_gpu(sh)?;
    let expected = cmd!(
        sh,
        "cargo run --quiet --package web --features native --bin expected"
    );
    expected.args(EXAMPLES).args(["--", "--check"]).run()?;
    test(sh)
}

/// Tests the page with the model, and without it.
fn test(sh: &Shell) -> Result<String> {
    let model = model::fetch(sh)?;
    let (folder, size) = build(sh)?;
    link(sh, &model, &folder.join("model"))?;
    link(
        sh,
        &root().join("examples/embed/golden"),
        &folder.join("golden"),
    )?;
    let found = script(sh, "web.mjs", &[folder, target_dir()])?;
    Ok(format!("{found}; {size}"))
}

/// Builds the page. Returns its folder, and a sentence about the size of the program.
fn build(sh: &Shell) -> Result<(PathBuf, String)> {
    let wasm = compile(sh)?;
    let folder = emptied(sh, "web-page")?;
    link(sh, &root().join("examples/web/page"), &folder)?;
    let options = EXAMPLES;
    cmd!(
        sh,
        "cargo run --quiet --package bindgen {options...} -- {wasm} {folder}"
    )
    .run()?;
    let wasm = folder.join("web_bg.wasm");
    let kilobytes = fs::metadata(&wasm)?.len() / 1000;
    let packed = cmd!(sh, "gzip -9 --stdout {wasm}")
        .output()
        .map_or(0, |packed| packed.stdout.len());
    let packed = packed / 1000;
    Ok((
        folder,
        format!("the program is {kilobytes} KB of wasm, {packed} KB compressed"),
    ))
}

/// Puts the files of a folder into another one, by links if the system has them.
fn link(sh: &Shell, from: &Path, to: &Path) -> Result<()> {
    sh.create_dir(to)?;
    for file in fs::read_dir(from)? {
        let file = file?;
        let (from, to) = (file.path(), to.join(file.file_name()));
        fs::hard_link(&from, &to).or_else(|_| fs::copy(&from, &to).map(drop))?;
    }
    Ok(())
}

/// Compiles the program and returns its file. If rustup does not have the target, Debian's
/// toolchain compiles it together with the standard library.
fn compile(sh: &Shell) -> Result<PathBuf> {
    let (cargo, folder) = match rustup_provides(sh, TARGET) {
        true => (cmd!(sh, "cargo build"), target_dir()),
        false => {
            let cargo = debian_cargo(sh, TARGET)?.arg("build");
            (
                cargo.args(["-Z", "build-std=std,panic_abort"]),
                root().join("target/targets"),
            )
        }
    };
    let options = [
        "--profile",
        "web",
        "--package",
        "web",
        "--lib",
        "--target",
        TARGET,
    ];
    cargo.args(options).args(EXAMPLES).run()?;
    Ok(folder.join(TARGET).join("web/web.wasm"))
}
