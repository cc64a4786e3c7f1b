//! A real model: `examples/embed` computes what PyTorch does, also with too little memory, and finds texts.

use std::fs;

use crate::driver::cargo_with_gpu;
use crate::model;
use crate::process::{Result, capture, target_dir};

/// So many sentences are indexed, of the sources of the dependencies.
const SENTENCES: &str = "500";

/// Of less the weights have no room, which are 87 MiB.
const BUDGET: &str = "43MiB";

pub(crate) fn check() -> Result<String> {
    model::test()?;

    let manifest = model::manifest();
    let index = target_dir().join("ci-embed.index");
    let program = |args: &[&str]| -> Result<String> {
        let mut embed = cargo_with_gpu()?;
        embed
            .args(["run", "--quiet", "--package", "embed", "--manifest-path"])
            .arg(&manifest);
        embed.arg("--").args(args).arg("--index").arg(&index);
        let embed = embed.env("CARGO_TARGET_DIR", target_dir());
        capture(embed.env("EMBED_MODEL", model::folder()))
    };
    let indexed = program(&["index", "--most", SENTENCES, "--budget", BUDGET])?;
    print!("{indexed}");
    let last = indexed
        .lines()
        .rfind(|line| line.starts_with("embed: "))
        .unwrap_or_default();
    for said in [&format!("sentences={SENTENCES} "), "put_out_bytes=0 "] {
        if !last.contains(said) {
            return Err(format!(
                "`embed index` does not say {said}in its last line: {last}"
            ));
        }
    }
    let found = program(&["search", "--top", "3", "memory is allocated"])?;
    print!("{found}");
    let _ = fs::remove_file(&index);
    // A score, a sentence and its place each.
    if found.lines().count() != 6 {
        return Err(format!("`embed search` found not three sentences: {found}"));
    }
    Ok(format!("{SENTENCES} sentences within {BUDGET}"))
}
