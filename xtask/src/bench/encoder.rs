//! `bench embed`: a real sentence encoder, `examples/embed`, beside candle on the CPU with the same
//! files and sentences, and under budgets smaller than its weights.

use serde_json::{Value, json};

use super::programs::{build_peer, built, into_docs, write};
use super::row::digits;
use crate::command::command;
use crate::driver::ensure_gpu;
use crate::model;
use crate::process::{Cmd, Context, Result, Shell, cmd, ensure, target_dir};

/// Runs of each program, in turn; the fastest counts.
const TURNS: usize = 2;
const SENTENCES: &str = "1000";

/// Half and a quarter of the bytes of the weights. Not all of them have to be on the device then.
const BUDGETS: [(&str, &[&str]); 3] = [
    ("lapidary", &[]),
    ("lapidary, ½ of the weights", &["--budget", "45132032"]),
    ("lapidary, ¼", &["--budget", "22566016"]),
];

const MIB: f64 = 1048576.0;

/// The columns: a title, a field of the runs, its scale and its unit.
const COLUMNS: [(&str, &str, f64, &str); 8] = [
    ("budget", "budget_bytes", MIB, " MiB"),
    ("sentences a second", "per_second", 1.0, ""),
    ("times candle", "times", 1.0, ""),
    (
        "first batch, compiled and read",
        "first_batch_seconds",
        1.0,
        " s",
    ),
    ("sentences a second after it", "rest_per_second", 1.0, ""),
    ("device memory, at most", "peak_device_bytes", MIB, " MiB"),
    ("least possible", "least_bytes", MIB, " MiB"),
    ("read from the file", "restored_bytes", MIB, " MiB"),
];

pub(super) fn embed(sh: &Shell, with_docs: bool) -> Result<()> {
    ensure_gpu(sh)?;
    let folder = model::fetch(sh)?;
    let program = "cargo build {examples} --release --package embed";
    let program = built(command(sh, program)?)?;
    let peer = build_peer(sh, "embed")?;
    let sentences = cmd!(sh, "{program} sentences --most {SENTENCES}").read()? + "\n";
    let index = target_dir().join("bench/embed.index");
    let mut runs: Vec<(&str, Value)> = Vec::new();
    for _ in 0..TURNS {
        let candle = cmd!(sh, "{peer} {folder}").stdin(&sentences);
        keep(&mut runs, "candle", candle)?;
        for (name, budget) in BUDGETS {
            let run = cmd!(sh, "{program} index --json --most {SENTENCES}").args(budget);
            let run = run.arg("--model").arg(&folder).arg("--index").arg(&index);
            keep(&mut runs, name, run)?;
        }
    }
    let table = table(&mut runs)?;
    println!("\n{table}");
    write(sh, "embed.md", &table)?;
    match with_docs {
        true => into_docs(sh, "models.md", "embed", &table),
        false => Ok(()),
    }
}

/// Keeps the faster of two runs of this name.
fn keep<'a>(runs: &mut Vec<(&'a str, Value)>, name: &'a str, run: Cmd<'_>) -> Result<()> {
    let found: Value = serde_json::from_str(&run.read()?)?;
    println!("{found}");
    match runs.iter_mut().find(|(known, _)| *known == name) {
        None => runs.push((name, found)),
        Some((_, best)) if number(best, "per_second")? < number(&found, "per_second")? => {
            *best = found;
        }
        Some(_) => {}
    }
    Ok(())
}

fn number(run: &Value, key: &str) -> Result<f64> {
    let number = run[key].as_f64();
    number.with_context(|| format!("there is no `{key}` in: {run}"))
}

fn table(runs: &mut [(&str, Value)]) -> Result<String> {
    let candle = runs[0].1.clone();
    let adapter = runs[1].1["adapter"].as_str().unwrap_or_default();
    let titles = COLUMNS.map(|column| column.0).join(" | ");
    let mut text = format!("{SENTENCES} sentences on {adapter}:\n\n| | {titles} |\n| ---");
    text += &" | ---:".repeat(COLUMNS.len());
    for (name, run) in runs {
        let likeness = [number(run, "likeness")?, number(&candle, "likeness")?];
        let is_same = (likeness[0] - likeness[1]).abs() <= 1e-4;
        ensure!(is_same, "candle and lapidary differ: {likeness:?}");
        run["times"] = json!(number(run, "per_second")? / number(&candle, "per_second")?);
        text += &format!(" |\n| {name}");
        for (_, key, scale, unit) in COLUMNS {
            let figure = run[key].as_f64().map(|value| digits(value / scale) + unit);
            text += &format!(" | {}", figure.unwrap_or_default());
        }
    }
    Ok(text + " |\n")
}
