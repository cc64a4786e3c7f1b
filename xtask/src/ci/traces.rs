//! Recorded traces through the whole engine. Reserved bytes, created buffers, moves and evictions
//! stay within the limits that the README promises.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use crate::bench::row::fields;
use crate::process::{Result, capture, root};
use crate::suite::built;

/// All thirteen traces may be in this folder beside the checkout. The checkout has only a few.
const ALL: &str = "../shared/traces";
const OWN: &str = "crates/tools/tests/traces";

/// Peak reserved ÷ peak live: the geometric mean and the worst.
const MOST_RESERVED: (f64, f64) = (1.02, 1.065);
const MOST_RESERVED_UNMOVED: (f64, f64) = (1.07, 1.20);

/// Moved bytes ÷ allocated bytes: 0.4 %, rounded.
const MOST_MOVED: f64 = 0.0045;

/// Evicted and restored bytes ÷ those of Belady's algorithm.
const MOST_SPILLED: f64 = 1.3;

/// Traces of repeated steps with fixed shapes. At their end no buffers are created.
const FIXED_SHAPES: &[&str] = &[
    "gpt2s_train",
    "resnet50_train",
    "mlp_ckpt_train",
    "mlp_accum_train",
    "llama1b_decode_concat",
    "sd15_unet_infer",
];
const MOST_BUFFERS_LATE: f64 = 20.0;
const MOST_BUFFERS_LATE_UNMOVED: f64 = 2.0;
const MOST_COMPACTIONS_LATE: f64 = 1.0;

/// The result of one trace.
struct Replayed(Vec<(String, String)>);

impl Replayed {
    fn name(&self) -> &str {
        let name = self.0.iter().find(|(field, _)| field == "trace");
        name.map_or("a trace", |(_, name)| name)
    }

    fn number(&self, field: &str) -> Result<f64> {
        let value = self.0.iter().find(|(name, _)| name == field);
        let number = value.and_then(|(_, value)| value.parse::<f64>().ok());
        number.ok_or_else(|| format!("{} has no number `{field}`.", self.name()))
    }

    fn at_most(&self, field: &str, most: f64) -> Result<()> {
        let number = self.number(field)?;
        match number <= most {
            true => Ok(()),
            false => Err(format!(
                "{}: {field} is {number}, over {most}.",
                self.name()
            )),
        }
    }

    fn has_fixed_shapes(&self) -> bool {
        let stem = self.name().split('.').next();
        FIXED_SHAPES.iter().any(|name| Some(*name) == stem)
    }
}

/// Replays all traces: with all memory, without moves, and with less memory than they need.
pub(crate) fn check() -> Result<String> {
    let (plain, with_reads) = files()?;

    let replayed = replay(&[], &plain)?;
    for trace in &replayed {
        trace.at_most("refused", 0.0)?;
        trace.at_most("bytes_moved", MOST_MOVED * trace.number("bytes_allocated")?)?;
        if trace.has_fixed_shapes() {
            trace.at_most("buffers_created_last_third", MOST_BUFFERS_LATE)?;
            trace.at_most("compactions_last_third", MOST_COMPACTIONS_LATE)?;
        }
    }
    let reserved = ratios(&replayed, MOST_RESERVED)?;

    let replayed = replay(&["--policy", "no-move"], &plain)?;
    for trace in &replayed {
        trace.at_most("bytes_moved", 0.0)?;
        if trace.has_fixed_shapes() {
            trace.at_most("buffers_created_last_third", MOST_BUFFERS_LATE_UNMOVED)?;
        }
    }
    let unmoved = ratios(&replayed, MOST_RESERVED_UNMOVED)?;

    for trace in replay(&["--budget", "1.05x"], &plain)? {
        trace.at_most("refused", 0.0)?;
        trace.at_most("bytes_spilled_out", 0.0)?;
    }
    let mut worst: f64 = 0.0;
    for budget in ["0.75x", "0.5x"] {
        for trace in replay(&["--budget", budget], &with_reads)? {
            trace.at_most("refused", 0.0)?;
            let bytes = trace.number("bytes_spilled_out")? + trace.number("bytes_spilled_in")?;
            let share = bytes / trace.number("bytes_spilled_reference")?;
            if share.is_nan() || share > MOST_SPILLED {
                let name = trace.name();
                return Err(format!("{name} spills {share:.3} × the reference."));
            }
            worst = worst.max(share);
        }
    }
    let count = plain.len();
    Ok(format!(
        "{count} traces: {reserved}; without moves {unmoved}; spilled {worst:.2}"
    ))
}

/// The existing traces: those with only allocations, and those with reads.
fn files() -> Result<(Vec<PathBuf>, Vec<PathBuf>)> {
    let all = root().join(ALL);
    let folder = if all.is_dir() { all } else { root().join(OWN) };
    let explain = |error: std::io::Error| format!("{}: {error}.", folder.display());
    let mut files = Vec::new();
    for entry in fs::read_dir(&folder).map_err(explain)? {
        files.push(entry.map_err(explain)?.path());
    }
    files.retain(|file| name(file).contains(".trace"));
    files.sort();
    let (with_reads, plain) = (files.into_iter()).partition(|file| name(file).contains(".reads."));
    Ok((plain, with_reads))
}

fn name(file: &Path) -> &str {
    file.file_name().and_then(OsStr::to_str).unwrap_or_default()
}

fn replay(options: &[&str], files: &[PathBuf]) -> Result<Vec<Replayed>> {
    let mut replay = built("lapidary")?;
    replay
        .args(["replay", "--json"])
        .args(["--against", "none"])
        .args(options)
        .args(files);
    let replayed: Vec<_> = (capture(&mut replay)?.lines())
        .filter_map(fields)
        .map(Replayed)
        .collect();
    match replayed.len() == files.len() && !files.is_empty() {
        true => Ok(replayed),
        false => Err(format!(
            "{} of {} traces replayed.",
            replayed.len(),
            files.len()
        )),
    }
}

/// The geometric mean and the worst of the ratios; an error if they exceed the limits.
fn ratios(traces: &[Replayed], (most, worst_most): (f64, f64)) -> Result<String> {
    let mut logarithms = 0.0;
    let mut worst: f64 = 0.0;
    for trace in traces {
        trace.at_most("ratio", worst_most)?;
        let ratio = trace.number("ratio")?;
        logarithms += ratio.ln();
        worst = worst.max(ratio);
    }
    let mean = (logarithms / traces.len() as f64).exp();
    match mean <= most {
        true => Ok(format!("{mean:.3}, worst {worst:.3}")),
        false => Err(format!(
            "the traces reserve {mean:.3} × what is live, over {most}."
        )),
    }
}
