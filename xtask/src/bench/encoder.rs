//! `bench embed`: a real sentence encoder, `examples/embed`, beside candle on the CPU with the same
//! files and sentences, and under budgets smaller than its weights.

use serde_json::Value;

use super::programs::{build_peer, built, into_docs, write};
use crate::driver::ensure_gpu;
use crate::model;
use crate::process::{Cmd, Context, Result, Shell, cmd, ensure, target_dir};
use crate::source::EXAMPLES;

/// Runs of each program, in turn; the fastest counts.
const TURNS: usize = 2;
const SENTENCES: &str = "1000";

/// Half and a quarter of the bytes of the weights.
const BUDGETS: [(&str, &[&str]); 3] = [
    ("none", &[]),
    ("½ of the weights", &["--budget", "45132032"]),
    ("¼", &["--budget", "22566016"]),
];

const HEAD: &str = "| | budget | sentences a second | times candle | first batch (kernels \
    compiled, weights read) | sentences a second after it | device memory, at most | least \
    possible | read from the file |\n\
    | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n";

pub(super) fn embed(sh: &Shell, with_docs: bool) -> Result<()> {
    ensure_gpu(sh)?;
    let folder = model::fetch(sh)?;
    let program = built(cmd!(sh, "cargo build --release --package embed").args(EXAMPLES))?;
    let peer = build_peer(sh, "embed")?;
    let sentences = cmd!(sh, "{program} sentences --most {SENTENCES}").read()? + "\n";
    let index = target_dir().join("bench/embed.index");
    let [mut candle, mut ours] = [vec![None], vec![None; BUDGETS.len()]];
    for _ in 0..TURNS {
        keep(
            &mut candle[0],
            cmd!(sh, "{peer} {folder}").stdin(&sentences),
        )?;
        for ((_, budget), best) in BUDGETS.iter().zip(&mut ours) {
            let run = cmd!(sh, "{program} index --json --most {SENTENCES}").args(*budget);
            keep(
                best,
                run.arg("--model").arg(&folder).arg("--index").arg(&index),
            )?;
        }
    }
    let runs: Vec<Value> = candle.into_iter().chain(ours).flatten().collect();
    runs.iter().for_each(|run| println!("{run}"));
    let table = table(&runs)?;
    println!("\n{table}");
    write(sh, "embed.md", &table)?;
    match with_docs {
        true => into_docs(sh, "models.md", "embed", &table),
        false => Ok(()),
    }
}

/// Keeps the faster of two runs.
fn keep(best: &mut Option<Value>, run: Cmd<'_>) -> Result<()> {
    let found: Value = serde_json::from_str(&run.read()?)?;
    let rate = number(&found, "per_second")?;
    let known = best.as_ref().and_then(|best| best["per_second"].as_f64());
    if known < Some(rate) {
        *best = Some(found);
    }
    Ok(())
}

fn number(run: &Value, key: &str) -> Result<f64> {
    run[key]
        .as_f64()
        .with_context(|| format!("there is no `{key}` in: {run}"))
}

fn table(runs: &[Value]) -> Result<String> {
    let [candle, ours @ ..] = runs else {
        anyhow::bail!("candle did not run");
    };
    let rate = number(candle, "per_second")?;
    let adapter = ours[0]["adapter"].as_str().unwrap_or_default();
    let mut text = format!(
        "{SENTENCES} sentences on {adapter}:\n\n{HEAD}| candle | | {rate:.1} | 1 | | | | | |\n"
    );
    let mib = |run, key| number(run, key).map(|bytes| format!("{:.1} MiB", bytes / 1048576.0));
    for (run, (budget, bytes)) in ours.iter().zip(BUDGETS) {
        let likeness = [number(run, "likeness")?, number(candle, "likeness")?];
        let is_same = (likeness[0] - likeness[1]).abs() <= 1e-4;
        ensure!(is_same, "candle and lapidary differ: {likeness:?}");
        // With a budget, not all weights have to be on the device.
        let (budget, least) = match bytes.is_empty() {
            true => (budget.to_owned(), mib(run, "least_bytes")?),
            false => (
                format!("{budget}, {}", mib(run, "budget_bytes")?),
                String::new(),
            ),
        };
        let per_second = number(run, "per_second")?;
        text += &format!(
            "| lapidary | {budget} | {per_second:.1} | {:.2} | {:.1} s | {:.1} | {} | {least} | {} |\n",
            per_second / rate,
            number(run, "first_batch_seconds")?,
            number(run, "rest_per_second")?,
            mib(run, "peak_device_bytes")?,
            mib(run, "restored_bytes")?,
        );
    }
    Ok(text)
}
