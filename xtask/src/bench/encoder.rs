//! `bench embed`: a real sentence encoder, `examples/embed`, beside candle on the CPU with the same
//! files and sentences, and under budgets smaller than its weights.

use std::fs::{self, File};

use super::page::{into_docs, write};
use super::programs::built;
use crate::driver::with_gpu;
use crate::model;
use crate::process::{Result, capture, cargo, command, root, target_dir};

/// Runs of each program, in turn; the fastest counts.
const TURNS: usize = 2;
const SENTENCES: &str = "1000";

/// Half and a quarter of the bytes of the weights.
const BUDGETS: [(&str, Option<&str>); 3] = [
    ("none", None),
    ("½ of the weights", Some("45132032")),
    ("¼", Some("22566016")),
];

pub(crate) fn embed(with_docs: bool) -> Result {
    let folder = model::fetched()?;
    let mut build = cargo();
    let build = build.args([
        "build",
        "--release",
        "--package",
        "embed",
        "--manifest-path",
    ]);
    let program = built(
        build
            .arg(model::manifest())
            .env("CARGO_TARGET_DIR", target_dir()),
    )?;
    let mut build = cargo();
    let build = build.current_dir(root().join("benches/peers"));
    let build = build.env("CARGO_TARGET_DIR", target_dir().join("bench/peers"));
    let peer = built(build.args([
        "build",
        "--release",
        "--bin",
        "embed",
        "--features",
        "embed",
    ]))?;

    let sentences = target_dir().join("bench").join("sentences.txt");
    let explain = |error: std::io::Error| format!("{}: {error}.", sentences.display());
    let text = capture(command(&program).args(["sentences", "--most", SENTENCES]))?;
    fs::write(&sentences, text).map_err(explain)?;
    let index = target_dir().join("bench").join("embed.index");

    let mut lines: Vec<Option<String>> = vec![None; 1 + BUDGETS.len()];
    for _ in 0..TURNS {
        let mut candle = command(&peer);
        candle
            .arg(&folder)
            .stdin(File::open(&sentences).map_err(explain)?);
        keep(&mut lines[0], capture(&mut candle)?);
        for ((_, budget), line) in BUDGETS.iter().zip(&mut lines[1..]) {
            let mut ours = with_gpu(command(&program))?;
            ours.args(["index", "--json", "--most", SENTENCES, "--model"])
                .arg(&folder);
            ours.arg("--index").arg(&index);
            if let Some(budget) = budget {
                ours.args(["--budget", budget]);
            }
            keep(line, capture(&mut ours)?);
        }
    }
    let lines: Vec<String> = lines.into_iter().flatten().collect();
    for line in &lines {
        println!("{line}");
    }
    let table = table(&lines)?;
    println!("\n{table}");
    write("embed.md", &table)?;
    match with_docs {
        true => into_docs("models.md", "embed", &table),
        false => Ok(()),
    }
}

/// Keeps the faster of two runs.
fn keep(best: &mut Option<String>, line: String) {
    let rate = |line: &str| number(line, "per_second").unwrap_or(0.0);
    if best.as_deref().is_none_or(|best| rate(&line) > rate(best)) {
        *best = Some(line.trim().to_owned());
    }
}

fn table(lines: &[String]) -> Result<String> {
    let wanted =
        |line: &str, key: &str| number(line, key).ok_or(format!("there is no `{key}` in: {line}"));
    let mut rows = lines.iter();
    let candle = rows.next().ok_or("candle did not run")?;
    let rate = wanted(candle, "per_second")?;
    let mut text = format!(
        "{SENTENCES} sentences on {}:\n\n\
         | | budget | sentences a second | times candle | first batch (kernels compiled, weights read) | sentences a second after it | device memory, at most | least possible | read from the file |\n\
         | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n\
         | candle | | {rate:.1} | 1 | | | | | |\n",
        rows.as_slice()
            .first()
            .and_then(|line| word(line, "adapter"))
            .unwrap_or("an unknown adapter"),
    );
    let mib = |bytes: f64| format!("{:.1} MiB", bytes / f64::from(1 << 20));
    for (line, (budget, bytes)) in rows.zip(BUDGETS) {
        let likeness = [wanted(line, "likeness")?, wanted(candle, "likeness")?];
        if (likeness[0] - likeness[1]).abs() > 1e-4 {
            return Err(format!(
                "candle and lapidary do not compute the same: {likeness:?}"
            ));
        }
        let per_second = wanted(line, "per_second")?;
        text += &format!(
            "| lapidary | {budget}{} | {per_second:.1} | {:.2} | {:.1} s | {:.1} | {} | {} | {} |\n",
            bytes.map_or(String::new(), |_| format!(
                ", {}",
                mib(wanted(line, "budget_bytes").unwrap_or(0.0))
            )),
            per_second / rate,
            wanted(line, "first_batch_seconds")?,
            wanted(line, "rest_per_second")?,
            mib(wanted(line, "peak_device_bytes")?),
            match bytes {
                // With a budget, not all weights have to be on the device.
                Some(_) => String::new(),
                None => mib(wanted(line, "least_bytes")?),
            },
            mib(wanted(line, "restored_bytes")?),
        );
    }
    Ok(text)
}

/// The value of a key in a flat object, up to a comma.
fn value<'a>(line: &'a str, key: &str) -> Option<&'a str> {
    let (_, after) = line.split_once(&format!("\"{key}\":"))?;
    Some(after.split([',', '}']).next()?.trim())
}

fn number(line: &str, key: &str) -> Option<f64> {
    value(line, key)?.parse().ok()
}

/// The value of a key that is a text, which may contain commas.
fn word<'a>(line: &'a str, key: &str) -> Option<&'a str> {
    let (_, after) = line.split_once(&format!("\"{key}\":\""))?;
    after.split('"').next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_a_line_are_found() {
        let line = r#"{"adapter":"a, b","per_second":2.5,"budget_bytes":null}"#;
        assert_eq!(number(line, "per_second"), Some(2.5));
        assert_eq!(number(line, "budget_bytes"), None);
        assert_eq!(word(line, "adapter"), Some("a, b"));
    }

    #[test]
    fn the_faster_run_is_kept() {
        let mut best = None;
        for rate in [1.0, 3.0, 2.0] {
            keep(&mut best, format!("{{\"per_second\":{rate}}}\n"));
        }
        assert_eq!(best.as_deref(), Some("{\"per_second\":3}"));
    }
}
