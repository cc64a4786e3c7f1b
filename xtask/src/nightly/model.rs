//! A real model: `examples/embed` computes the same as PyTorch, also with too little memory, and
//! its search finds texts.

use crate::ci::source::EXAMPLES;
use crate::line::Line;
use crate::model;
use crate::process::{Result, Shell, cmd, ensure, lines_of, target_dir};

/// Number of indexed sentences, from the sources of the dependencies.
const SENTENCES: &str = "500";

/// The weights take 87 MiB, so they do not all fit.
const BUDGET: &str = "43MiB";

pub(super) fn check(sh: &Shell) -> Result<String> {
    model::test(sh)?;
    let index = target_dir().join("ci-embed.index");
    let embed = |args: &[&str]| {
        let options = EXAMPLES;
        let embed = cmd!(
            sh,
            "cargo run --quiet --package embed {options...} -- {args...}"
        );
        lines_of(
            embed
                .arg("--index")
                .arg(&index)
                .env("EMBED_MODEL", model::folder()),
        )
    };
    let lines = embed(&["index", "--most", SENTENCES, "--budget", BUDGET])?;
    let line = Line::last("embed", &lines)?;
    // Weights are dropped and never written. An intermediate result may be written if that is
    // measured to be cheaper.
    line.expect("restored_bytes > 0, evicted_bytes <= 0.001 * restored_bytes")?;
    line.expect(&format!("sentences is {SENTENCES}"))?;
    let found = embed(&["search", "--top", "3", "memory is allocated"])?;
    sh.remove_path(&index)?;
    // Each of the three has a score, a sentence and a place.
    ensure!(found.len() == 6, "`embed search` found not three sentences");
    Ok(format!("{SENTENCES} sentences within {BUDGET}"))
}
