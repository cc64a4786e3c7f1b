//! Recorded traces through the whole engine. Reserved bytes, created buffers, moves and evictions
//! stay within the limits that the README promises.

use std::fs;
use std::path::PathBuf;

use serde_json::Value;

use crate::line::Line;
use crate::process::{Context, Result, Shell, ensure, root};
use crate::suite::built;

/// All thirteen traces may be in this folder beside the checkout. The checkout has only a few.
const ALL: &str = "../shared/traces";
const OWN: &str = "crates/tools/tests/traces";

/// Peak reserved ÷ peak live: the geometric mean and the worst.
const MOST_RESERVED: [f64; 2] = [1.02, 1.065];
const MOST_RESERVED_UNMOVED: [f64; 2] = [1.07, 1.20];

/// Moved bytes ÷ allocated bytes is 0.4 %, rounded.
const PLAIN: &str = "refused <= 0, bytes_moved <= 0.0045 * bytes_allocated";

/// Evicted and restored bytes ÷ those of Belady's algorithm.
const MOST_SPILLED: f64 = 1.3;

/// Traces of repeated steps with fixed shapes. At their end no buffers are created.
const FIXED_SHAPES: &str = "gpt2s_train resnet50_train mlp_ckpt_train mlp_accum_train \
    llama1b_decode_concat sd15_unet_infer";
const LATE: &str = "buffers_created_last_third <= 20, compactions_last_third <= 1";
const LATE_UNMOVED: &str = "buffers_created_last_third <= 2";

/// Replays all traces: with all memory, without moves, and with less memory than they need.
pub(crate) fn check(sh: &Shell) -> Result<String> {
    let (with_reads, plain) = files()?;
    let reserved = ratios(&replay(sh, "", &plain, PLAIN, LATE)?, MOST_RESERVED)?;
    let unmoved = replay(
        sh,
        "--policy no-move",
        &plain,
        "bytes_moved <= 0",
        LATE_UNMOVED,
    )?;
    let unmoved = ratios(&unmoved, MOST_RESERVED_UNMOVED)?;
    replay(
        sh,
        "--budget 1.05x",
        &plain,
        "refused <= 0, bytes_spilled_out <= 0",
        "",
    )?;
    let mut worst: f64 = 0.0;
    for budget in ["--budget 0.75x", "--budget 0.5x"] {
        for trace in replay(sh, budget, &with_reads, "refused <= 0", "")? {
            let trace = Line(&trace);
            let bytes = trace.number("bytes_spilled_out")? + trace.number("bytes_spilled_in")?;
            let share = bytes / trace.number("bytes_spilled_reference")?;
            ensure!(
                share <= MOST_SPILLED,
                "{share} × the reference is spilled: {}",
                trace.0
            );
            worst = worst.max(share);
        }
    }
    let count = plain.len();
    Ok(format!(
        "{count} traces: {reserved}; without moves {unmoved}; spilled {worst:.2}"
    ))
}

/// The existing traces: those with reads, and those with only allocations.
fn files() -> Result<(Vec<PathBuf>, Vec<PathBuf>)> {
    let all = root().join(ALL);
    let folder = if all.is_dir() { all } else { root().join(OWN) };
    let files = fs::read_dir(&folder).with_context(|| folder.display().to_string())?;
    let mut files: Vec<_> = files.flatten().map(|file| file.path()).collect();
    let has = |file: &PathBuf, word| {
        file.file_name()
            .is_some_and(|name| name.to_string_lossy().contains(word))
    };
    files.retain(|file| has(file, ".trace"));
    files.sort();
    Ok(files.into_iter().partition(|file| has(file, ".reads.")))
}

/// Replays files with these options. Each result is a line, on which the conditions hold; the late
/// ones too, if it has fixed shapes.
fn replay(
    sh: &Shell,
    options: &str,
    files: &[PathBuf],
    conditions: &str,
    late: &str,
) -> Result<Vec<String>> {
    let replay = built(sh, "lapidary")?.args(["replay", "--json", "--against", "none"]);
    let found = replay.args(options.split_whitespace()).args(files).read()?;
    let mut lines = Vec::new();
    for line in found.lines() {
        let Ok(Value::Object(fields)) = serde_json::from_str(line) else {
            continue;
        };
        let fields = fields
            .into_iter()
            .map(|(name, value)| format!("{name}={value}"));
        let text = fields.collect::<Vec<_>>().join(" ");
        Line(&text).expect(conditions)?;
        let mut fixed = FIXED_SHAPES.split(' ');
        if !late.is_empty() && fixed.any(|name| text.contains(&format!("trace=\"{name}."))) {
            Line(&text).expect(late)?;
        }
        lines.push(text);
    }
    let (count, all) = (lines.len(), files.len());
    ensure!(count == all && all > 0, "{count} of {all} traces replayed");
    Ok(lines)
}

/// The geometric mean and the worst of the ratios; an error if they exceed the limits.
fn ratios(traces: &[String], [most, worst_most]: [f64; 2]) -> Result<String> {
    let (mut logarithms, mut worst) = (0.0, 0.0_f64);
    for trace in traces {
        let ratio = Line(trace).number("ratio")?;
        ensure!(
            ratio <= worst_most,
            "the ratio is over {worst_most}: {trace}"
        );
        logarithms += ratio.ln();
        worst = worst.max(ratio);
    }
    let mean = (logarithms / traces.len() as f64).exp();
    ensure!(
        mean <= most,
        "the traces reserve {mean:.3} × what is live, over {most}"
    );
    Ok(format!("{mean:.3}, worst {worst:.3}"))
}
