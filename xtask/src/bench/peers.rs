//! The same cases by other libraries, in turn with ours. They are in `benches/peers`, a separate
//! workspace, so only this verb downloads and builds them.

use std::fmt::Write as _;

use super::options::Options;
use super::page::{into_docs, write};
use super::plot;
use super::programs::{build_table, built, cases, one};
use super::row::{Figure, Limit, Row};
use super::table::{digits, escaped, none, percent};
use crate::process::{Result, cargo, root, target_dir};

pub(crate) const NAMES: [&str; 3] = ["raw", "candle", "burn"];

/// Runs of each library for a case.
const TURNS: usize = 2;
const SECONDS: &str = "0.7";

pub(crate) fn peers(options: &Options) -> Result {
    let ours = build_table(&root(), &target_dir())?;
    let mut programs = vec![("lapidary", ours.clone())];
    for name in &options.peers {
        let Some(&name) = NAMES.iter().find(|known| *known == name) else {
            return Err(format!(
                "there is no peer `{name}`; there are: {}.",
                NAMES.join(", ")
            ));
        };
        let mut build = cargo();
        build
            .current_dir(root().join("benches/peers"))
            .env("CARGO_TARGET_DIR", target_dir().join("bench/peers"))
            .args(["build", "--release", "--bin", name, "--features", name]);
        let program = built(&mut build).map_err(|sentence| format!("{name}: {sentence}"))?;
        programs.push((name, program));
    }
    let seconds = options.seconds.as_deref().unwrap_or(SECONDS);
    let names: Vec<&str> = programs.iter().map(|(name, _)| *name).collect();
    let mut all = Vec::new();
    let mut text = String::new();
    for case in cases(&ours, &options.words)? {
        let mut best: Vec<Option<Row>> = vec![None; programs.len()];
        let mut limit: Option<(f64, Limit)> = None;
        for _ in 0..TURNS {
            for (index, (by, program)) in programs.iter().enumerate() {
                // Only the first run measures the machine's limit; one measurement is enough.
                let bare: &[&str] = if index == 0 { &[] } else { &["--bare"] };
                let mut row = one(
                    program,
                    by,
                    &case,
                    &[bare, &["--seconds", seconds]].concat(),
                )?;
                row.by = (*by).into();
                if let Some((took, of)) = limit_of(&row) {
                    let is_better = limit.as_ref().is_none_or(|(best, _)| took < *best);
                    limit = if is_better { Some((took, of)) } else { limit };
                }
                if is_better(&row, best[index].as_ref()) {
                    best[index] = Some(row);
                }
            }
        }
        let rows: Vec<Row> = best
            .into_iter()
            .flatten()
            .map(|row| with_limit(row, limit.as_ref()))
            .collect();
        if text.is_empty() {
            let adapter = rows[0].adapter();
            text = format!(
                "On {adapter}:\n\n| case | the cores | {} |\n",
                names.join(" | ")
            );
            text += &format!("| --- |{}\n", " ---: |".repeat(1 + names.len()));
            if !options.is_json {
                print!("{text}");
            }
        }
        let line = line(&case, &rows, limit.as_ref());
        match options.is_json {
            true => rows.iter().for_each(|row| println!("{}", row.json())),
            false => print!("{line}"),
        }
        text += &line;
        all.extend(rows);
    }
    write("peers.md", &text)?;
    write("peers.svg", &plot::plot(&all))?;
    match options.into_docs {
        true => into_docs("libraries.md", "peers", &text),
        false => Ok(()),
    }
}

/// The seconds at the machine's limit, computed from the share.
fn limit_of(row: &Row) -> Option<(f64, Limit)> {
    let figure = row.figure.as_ref()?;
    let limit = figure.limit.clone()?;
    Some((limit.share * figure.seconds, limit))
}

/// A figure is better than none, and less time is better. An error replaces a figure, and a wrong
/// result stays wrong.
fn is_better(row: &Row, than: Option<&Row>) -> bool {
    let Some(than) = than else {
        return true;
    };
    match (&row.figure, &than.figure) {
        _ if than.error.is_some() => false,
        (Some(row), Some(than)) => row.seconds < than.seconds,
        _ => row.error.is_some(),
    }
}

fn with_limit(mut row: Row, limit: Option<&(f64, Limit)>) -> Row {
    if let (Some(figure), Some((seconds, limit))) = (&mut row.figure, limit) {
        let share = seconds / figure.seconds;
        figure.limit = Some(Limit {
            share,
            ..limit.clone()
        });
    }
    row
}

fn line(case: &str, rows: &[Row], limit: Option<&(f64, Limit)>) -> String {
    let unit = |figure: &Figure| figure.unit.clone();
    let unit = rows
        .iter()
        .find_map(|row| row.figure.as_ref().map(unit))
        .unwrap_or_default();
    let mut line = format!("| {} | ", escaped(case));
    line += &match limit {
        Some((_, limit)) => format!("{} {unit}", digits(limit.value)),
        None => "–".into(),
    };
    for row in rows {
        let cell = match &row.figure {
            None => none(row),
            Some(figure) => match &figure.limit {
                Some(limit) => format!("{} ({})", digits(figure.value), percent(limit.share)),
                None => format!("{} {}", digits(figure.value), figure.unit),
            },
        };
        let _ = write!(line, " | {cell}");
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
        assert!(is_better(&slow, None) && is_better(&fast, Some(&slow)));
        assert!(!is_better(&slow, Some(&fast)));
        assert!(is_better(&wrong, Some(&fast)) && !is_better(&fast, Some(&wrong)));
    }

    #[test]
    fn everybodys_share_is_of_the_same_limit() {
        let limit = Limit {
            name: "loops".into(),
            value: 8.0,
            share: 0.0,
        };
        let row = with_limit(Row::counted("a", 4.0, "s"), Some(&(1.0, limit.clone())));
        assert!(line("a*b", &[row], Some(&(1.0, limit))).contains("| a\\*b | 8 s | 4 (25 %) |"));
    }
}
