//! A real model: `examples/embed` computes the same as PyTorch, also with too little memory, and
//! its search finds texts.

use std::fs;

use crate::driver::cargo_with_gpu;
use crate::line::Line;
use crate::model;
use crate::process::{Result, capture, target_dir};

/// Number of indexed sentences, from the sources of the dependencies.
const SENTENCES: &str = "500";

/// The weights take 87 MiB, so they do not all fit.
const BUDGET: &str = "43MiB";

/// Weights are dropped and never written. An intermediate result may be written if that is measured
/// to be cheaper. This is the limit in bytes for each byte of restored weights.
const MOST_EVICTED: f64 = 0.001;

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
    let lines: Vec<String> = indexed.lines().map(str::to_owned).collect();
    judge(&Line::last("embed", &lines)?)?;
    let found = program(&["search", "--top", "3", "memory is allocated"])?;
    print!("{found}");
    let _ = fs::remove_file(&index);
    // Each of the three has a score, a sentence and a place.
    if found.lines().count() != 6 {
        return Err(format!("`embed search` found not three sentences: {found}"));
    }
    Ok(format!("{SENTENCES} sentences within {BUDGET}"))
}

fn judge(line: &Line) -> Result<()> {
    line.expect("sentences", SENTENCES)?;
    let (out, back) = (
        line.number("evicted_bytes")?,
        line.number("restored_bytes")?,
    );
    match back > 0.0 && out <= MOST_EVICTED * back {
        true => Ok(()),
        false => line.complain("has too many evicted bytes, or no restored ones"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_that_were_written_out_or_had_room_are_found() {
        let good = "embed: sentences=500 evicted_bytes=58368 restored_bytes=241900032";
        let judged = |text: &str| judge(&Line::last("embed", &[text.to_owned()])?);
        assert_eq!(judged(good), Ok(()));
        for [from, to] in [
            ["sentences=500", "sentences=499"],
            ["evicted_bytes=58368", "evicted_bytes=589824"],
            ["restored_bytes=241900032", "restored_bytes=0"],
        ] {
            assert!(judged(&good.replace(from, to)).is_err(), "{to}");
        }
    }
}
