//! The same cases by other libraries, in turn with ours. They are in `benches/peers`, a separate
//! workspace, so only this verb downloads and builds them.

use serde_json::json;

use super::Options;
use super::programs::{build_peer, build_table, cases, into_docs, one, write};
use super::row::{Row, digits, escaped};
use crate::process::{Result, Shell, ensure, root, target_dir};

pub(super) const NAMES: [&str; 3] = ["raw", "candle", "burn"];

/// Runs of each library for a case.
const TURNS: usize = 2;
const SECONDS: &str = "0.7";

pub(super) fn peers(sh: &Shell, peers: &[String], options: &Options) -> Result<()> {
    let ours = build_table(sh, &root(), &target_dir())?;
    let mut programs = vec![("lapidary", ours.clone())];
    for name in peers {
        let is_known = NAMES.contains(&name.as_str());
        ensure!(
            is_known,
            "there is no peer `{name}`; there are: {}",
            NAMES.join(", ")
        );
        programs.push((name, build_peer(sh, name)?));
    }
    let seconds = options.seconds.as_deref().unwrap_or(SECONDS);
    let names: Vec<&str> = programs.iter().map(|(name, _)| *name).collect();
    let mut text = String::new();
    for case in cases(sh, &ours, &options.words)? {
        let mut rows: Vec<Row> = Vec::new();
        let mut limits = Vec::new();
        for turn in 0..TURNS {
            for (index, (by, program)) in programs.iter().enumerate() {
                // Only our runs measure the machine's limit.
                let bare: &[&str] = if index == 0 { &[] } else { &["--bare"] };
                let extra = [bare, &["--seconds", seconds]].concat();
                let mut row = one(sh, program, by, &case, &extra)?;
                row.0["by"] = json!(by);
                limits.extend(seconds_at_limit(&row).map(|seconds| (seconds, row.clone())));
                if turn == 0 {
                    rows.push(row);
                } else if is_better(&row, &rows[index]) {
                    rows[index] = row;
                }
            }
        }
        // Everybody's share is of the same limit, the best that was measured.
        let limit = limits.into_iter().min_by(|a, b| a.0.total_cmp(&b.0));
        if let Some(limit) = &limit {
            rows.iter_mut().for_each(|row| set_limit(row, limit));
        }
        if text.is_empty() {
            let (adapter, names, lines) = (rows[0].adapter(), names.join(" | "), names.len() + 1);
            text = format!("On {adapter}:\n\n| case | the cores | {names} |\n");
            text += &format!("| --- |{}\n", " ---: |".repeat(lines));
            if !options.is_json {
                print!("{text}");
            }
        }
        let line = line(&case, &rows, limit.as_ref().map(|(_, row)| row));
        match options.is_json {
            true => rows.iter().for_each(|row| println!("{}", row.0)),
            false => print!("{line}"),
        }
        text += &line;
    }
    write(sh, "peers.md", &text)?;
    match options.into_docs {
        true => into_docs(sh, "libraries.md", "peers", &text),
        false => Ok(()),
    }
}

/// The seconds at the machine's limit, computed from the share.
fn seconds_at_limit(row: &Row) -> Option<f64> {
    Some(row.number("share")? * row.seconds()?)
}

/// Less time is better. An error replaces a figure, and a wrong result stays wrong.
fn is_better(row: &Row, than: &Row) -> bool {
    match (row.seconds(), than.seconds()) {
        _ if than.has_error() => false,
        (Some(row), Some(than)) => row < than,
        _ => row.has_error(),
    }
}

fn set_limit(row: &mut Row, (seconds, limit): &(f64, Row)) {
    if let Some(took) = row.seconds() {
        row.0["share"] = json!(seconds / took);
        for key in ["limit", "limit_value"] {
            row.0[key] = limit.0[key].clone();
        }
    }
}

fn line(case: &str, rows: &[Row], limit: Option<&Row>) -> String {
    let unit = rows
        .iter()
        .map(|row| row.text("unit"))
        .find(|unit| !unit.is_empty());
    let limit = limit.and_then(|row| row.number("limit_value"));
    let limit = limit.map(|limit| format!("{} {}", digits(limit), unit.unwrap_or_default()));
    let mut line = format!("| {} | {}", escaped(case), limit.unwrap_or("–".into()));
    for row in rows {
        line += &match (row.number("value"), row.number("share")) {
            (Some(value), Some(_)) => format!(" | {} ({})", digits(value), row.share()),
            _ => format!(" | {}", row.figure()),
        };
    }
    line + " |\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_result_outlives_a_figure() {
        let (slow, fast) = (Row::counted("a", 2.0, "s"), Row::counted("a", 1.0, "s"));
        let wrong = Row::failed("raw", "a", "wrong");
        assert!(is_better(&fast, &slow) && !is_better(&slow, &fast));
        assert!(is_better(&wrong, &fast) && !is_better(&fast, &wrong));
    }

    #[test]
    fn everybodys_share_is_of_the_same_limit() {
        let limit = Row(json!({ "limit": "loops", "limit_value": 8.0 }));
        let mut row = Row::counted("a", 4.0, "s");
        set_limit(&mut row, &(1.0, limit.clone()));
        assert_eq!(
            line("a*b", &[row], Some(&limit)),
            "| a\\*b | 8 s | 4 (25 %) |\n"
        );
    }
}
