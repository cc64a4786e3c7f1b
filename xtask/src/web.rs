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
use crate::command::{self, command};
use crate::model;
use crate::process::{Context, Result, Shell, cmd, emptied, nothing_else, root, target_dir};

/// The folder of the page that has the language model.
const LANGUAGE: &str = "language";

/// The page's own beginning of a text.
const PROMPT: &str = "The memory of the device";

/// Builds the page, then serves or tests it.
pub(crate) fn web(sh: &Shell, mut args: Arguments) -> Result<()> {
    let is_test = args.contains("--test");
    let port: Option<String> = args.opt_value_from_str("--port")?;
    let port = port.unwrap_or("8013".into());
    nothing_else(args)?;
    if is_test {
        println!("{}", test(sh)?);
        return Ok(());
    }
    let (folder, size) = build(sh)?;
    println!("{size}");
    match model::folder().join("model.safetensors").is_file() {
        true => link(sh, &model::folder(), &folder.join("model"))?,
        false => println!("`cargo xtask fetch-model` gets a model for its search, 83 MB."),
    }
    println!("The page is there until you press Ctrl-C:");
    let serve = root().join("xtask/browser/serve.py");
    Ok(cmd!(sh, "python3 {serve} {folder} {port}").run()?)
}

/// The library in a browser: the page tests itself. Its results are compared with those of the same
/// calls on this machine.
pub(crate) fn check(sh: &Shell) -> Result<String> {
    let expected = "--package web --features native --bin expected -- --check";
    command::run(sh, "gpu")?;
    command::run(sh, &format!("cargo run {{examples}} --quiet {expected}"))?;
    test(sh)
}

/// Tests the page with the model for its search, and without it.
fn test(sh: &Shell) -> Result<String> {
    command::run(sh, "gpu")?;
    let model = model::fetch(sh)?;
    let (folder, size) = build(sh)?;
    link(sh, &model, &folder.join("model"))?;
    let golden = root().join("examples/embed/golden");
    link(sh, &golden, &folder.join("golden"))?;
    sh.write_file(folder.join(LANGUAGE).join("said.txt"), said(sh)?)?;
    let found = script(sh, "web.mjs", &[folder, target_dir()])?;
    Ok(format!("{found}; {size}"))
}

/// What the program for terminals says on this machine, without the line with its times.
fn said(sh: &Shell) -> Result<String> {
    let greedy = "--package chat -- --temperature 0 --tokens 64 --prompt";
    let chat = command(sh, &format!("cargo run {{examples}} --quiet {greedy}"))?;
    let said = chat.arg(PROMPT).read()?;
    let said = said.rsplit_once("\n[64 tokens");
    Ok(said.context("it did not say 64 tokens")?.0.to_owned())
}

/// Builds the page. Returns its folder, and a sentence about the size of the program.
fn build(sh: &Shell) -> Result<(PathBuf, String)> {
    const TARGET: &str = "wasm32-unknown-unknown";
    command::run(sh, &format!("target {TARGET}"))?;
    let library = "cargo build {examples} --profile web --package web --lib --target";
    command(sh, library)?.arg(TARGET).run()?;
    let wasm = target_dir().join(TARGET).join("web/web.wasm");
    let folder = emptied(sh, "web-page")?;
    link(sh, &root().join("examples/web/page"), &folder)?;
    let language = root().join("examples/data/model");
    link(sh, &language, &folder.join(LANGUAGE))?;
    let bindgen = command(sh, "cargo run {examples} --quiet --package bindgen --")?;
    bindgen.arg(wasm).arg(&folder).run()?;
    let wasm = folder.join("web_bg.wasm");
    let kilobytes = fs::metadata(&wasm)?.len() / 1000;
    let packed = cmd!(sh, "gzip -9 --stdout {wasm}").output()?.stdout.len() / 1000;
    let size = format!("the program is {kilobytes} KB of wasm, {packed} KB compressed");
    Ok((folder, size))
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
