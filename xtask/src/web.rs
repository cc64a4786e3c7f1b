//! `web`: builds the page of examples/web, then serves it or tests it in a browser without a
//! window.
//!
//! The page's files are in a folder of the build outputs: size-optimized wasm, the script that
//! loads it, and the page. The program `bindgen` of the examples' workspace writes that script. The
//! lock file keeps it at the version that the wasm was compiled with, which is necessary. It
//! compiles a third of what `cargo install wasm-bindgen-cli` compiles.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::apt;
use crate::browser::script;
use crate::driver::with_gpu;
use crate::model;
use crate::pip::python;
use crate::process::{Result, capture, cargo, command, root, run, target_dir};
use crate::toolchain::{DEBIAN_TOOLCHAIN, debian_cargo, rustup_provides};

/// The text of `cargo xtask web --help`.
pub(crate) const ABOUT: &str = "Build the page of examples/web (small: optimised for size) and serve it on this machine by Python, with the model of `fetch-model` for its search if it is there. --test runs its test in Chromium without a window, on a software adapter, and ends. --port N serves at another port than 8013.";

const TARGET: &str = "wasm32-unknown-unknown";

/// Builds the page, then serves or tests it.
pub(crate) fn web(args: &[String]) -> Result {
    let mut port = "8013";
    let mut args = args.iter();
    while let Some(option) = args.next() {
        match option.as_str() {
            "--test" => return test().map(|found| println!("{found}")),
            "--port" => port = args.next().ok_or("`--port` wants a number up to 65535.")?,
            _ => {
                return Err(format!(
                    "`web` has no option `{option}`; see `cargo xtask web --help`."
                ));
            }
        }
    }
    let (folder, size) = build()?;
    println!("{size}");
    if model::is_there() {
        link(&model::folder(), &folder.join("model"))?;
    } else {
        println!("There is no model for its search: `cargo xtask fetch-model` gets one, 83 MB.");
    }
    println!("The page is at http://127.0.0.1:{port}/ until you press Ctrl-C.");
    let mut serve = python();
    serve.args(["-m", "http.server", port, "--bind", "127.0.0.1"]);
    run(serve.arg("--directory").arg(&folder))
}

/// The library in a browser: the page tests itself. Its results are compared with those of the same
/// calls on this machine. If rustup cannot install the target, the step is skipped, because
/// Debian's toolchain has never been tested here.
pub(crate) fn check() -> Result<String> {
    if !rustup_provides(TARGET) {
        return Ok(format!("NOT RUN, rustup cannot install {TARGET} here"));
    }
    let mut expected = with_gpu(in_examples(cargo()))?;
    expected.args(["run", "--quiet", "--package", "web", "--features", "native"]);
    run(expected.args(["--bin", "expected", "--", "--check"]))?;
    test()
}

/// Tests the page with the model, and without it.
fn test() -> Result<String> {
    let model = model::fetched()?;
    let (folder, size) = build()?;
    link(&model, &folder.join("model"))?;
    link(
        &root().join("examples/embed/golden"),
        &folder.join("golden"),
    )?;
    let found = script("web.mjs", &[folder, target_dir()])?;
    Ok(format!("{found}; {size}"))
}

/// Builds the page. Returns its folder, and a sentence about the size of the program.
fn build() -> Result<(PathBuf, String)> {
    let wasm = compile()?;
    let folder = target_dir().join("web-page");
    let _ = fs::remove_dir_all(&folder);
    link(&root().join("examples/web/page"), &folder)?;
    let mut glue = in_examples(cargo());
    glue.args(["run", "--quiet", "--package", "bindgen", "--"]);
    run(glue.arg(&wasm).arg(&folder))?;
    let mut gzip = command("sh");
    gzip.args(["-c", "gzip -9 < \"$0\" | wc -c"]);
    let wasm = folder.join("web_bg.wasm");
    let packed = capture(gzip.arg(&wasm)).unwrap_or_default();
    let bytes = fs::metadata(&wasm).map_err(|error| format!("{}: {error}.", wasm.display()))?;
    let size = format!(
        "the program is {} KB of wasm, {} KB compressed",
        bytes.len() / 1000,
        packed.trim().parse().unwrap_or(0) / 1000
    );
    Ok((folder, size))
}

/// Puts the files of a folder into another one, by links if the system has them.
fn link(from: &Path, to: &Path) -> Result {
    let linked = || {
        fs::create_dir_all(to)?;
        for file in fs::read_dir(from)? {
            let file = file?;
            let (from, to) = (file.path(), to.join(file.file_name()));
            fs::hard_link(&from, &to).or_else(|_| fs::copy(&from, &to).map(drop))?;
        }
        Ok(())
    };
    linked().map_err(|error: std::io::Error| format!("{}: {error}.", from.display()))
}

/// Compiles the program and returns its file. If rustup does not have the target, Debian's
/// toolchain compiles it together with the standard library.
fn compile() -> Result<PathBuf> {
    let (mut build, folder) = if rustup_provides(TARGET) {
        (cargo(), target_dir())
    } else if apt::is_here() {
        apt::install(DEBIAN_TOOLCHAIN)?;
        apt::install(&["lld-19"])?;
        let mut cargo = debian_cargo();
        cargo.env("CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_LINKER", "wasm-ld-19");
        cargo.args(["-Z", "build-std=std,panic_abort"]);
        (cargo, target_dir().join("targets"))
    } else {
        return Err(format!(
            "{TARGET} is not installed: `rustup target add {TARGET}` does that."
        ));
    };
    build.args([
        "build",
        "--profile",
        "web",
        "--package",
        "web",
        "--lib",
        "--target",
        TARGET,
    ]);
    run(in_examples(build).env("CARGO_TARGET_DIR", &folder))?;
    Ok(folder.join(TARGET).join("web/web.wasm"))
}

/// Runs a command in the workspace of the examples.
fn in_examples(mut command: Command) -> Command {
    command.current_dir(root().join("examples"));
    command.env("CARGO_TARGET_DIR", target_dir());
    command
}
