//! The cases, each by several programs in turn: by the working tree alone, by it and another
//! commit, or beside other libraries. Those are in `benches/peers`, a separate workspace, so only
//! this verb downloads and builds them.

use std::cmp::Ordering::Equal;

use serde_json::json;

use super::programs::{build_peer, build_table, cases, into_docs, one, write};
use super::row::{Row, escaped};
use super::{Options, weight};
use crate::process::{Context, Result, Shell, cmd, emptied, ensure, root, target_dir};

/// Pairs of runs of each case by two commits, and of one whose pairs differ by more than a tenth:
/// some take one of two times, by chance.
const PAIRS: usize = 3;
const MOST_PAIRS: usize = 9;

const HEAD: &str = "Each has the median of 3 runs, and of 9 where the single pairs of runs differ \
    by more than 10 %.\n\n| case | now | before | × as fast | in single pairs |\n\
    | --- | ---: | ---: | ---: | ---: |\n";

/// The other libraries.
pub(super) const PEERS: [&str; 3] = ["raw", "candle", "burn"];

/// Runs of each library for a case beside other libraries.
const TURNS: usize = 2;

/// A program that measures: its name, its path, and the cases that it has.
type Program<'a> = (&'a str, String, Vec<String>);

/// Runs a case once by each program, in this order or backwards.
fn turn(
    sh: &Shell,
    programs: &[Program<'_>],
    case: &String,
    seconds: &str,
    is_forward: bool,
    rows: &mut [Vec<Row>],
) -> Result<()> {
    let mut order: Vec<_> = programs.iter().zip(rows).collect();
    if !is_forward {
        order.reverse();
    }
    for ((name, program, cases), rows) in order {
        // Only ours beside other libraries measures the machine's limit.
        let all = ["--seconds", seconds, "--bare"];
        let extra = if *name == "lapidary" { &all[..2] } else { &all };
        let mut row = match cases.contains(case) {
            true => one(sh, program, case, extra)?,
            false => Row(json!({ "case": case })),
        };
        row.0["by"] = json!(name);
        rows.push(row);
    }
    Ok(())
}

/// Prints the rows or the line of the table, and the title in front of the first one. Adds them to
/// the text.
fn show(text: &mut String, title: &str, rows: &[Row], line: &str, options: &Options) {
    let title = if text.is_empty() { title } else { "" };
    match options.is_json {
        true => rows.iter().for_each(|row| println!("{}", row.0)),
        false => print!("{title}{line}"),
    }
    *text += title;
    *text += line;
}

/// The row that stands for several runs: a failed one, or the one at this place by its time.
fn chosen(rows: &[Row], place: usize) -> &Row {
    let mut sorted: Vec<_> = rows.iter().collect();
    sorted.sort_by(|a, b| a.seconds().partial_cmp(&b.seconds()).unwrap_or(Equal));
    let failed = rows.iter().find(|row| row.has_error());
    failed.unwrap_or(sorted[place])
}

pub(super) fn against(sh: &Shell, revision: &str, options: &Options) -> Result<()> {
    let commit = format!("{revision}^{{commit}}");
    let commit = cmd!(sh, "git rev-parse --short=12 --verify --quiet {commit}").read();
    let commit = commit.with_context(|| format!("there is no commit `{revision}`"))?;
    let new = build_table(sh, &root(), &target_dir())?;
    let folder = emptied(sh, "bench/against/tree")?;
    let packed = target_dir().join("bench/against/tree.tar");
    cmd!(sh, "git archive --output {packed} {commit}").run()?;
    // Files that are newer than older outputs, so cargo builds them again. Outputs have the same
    // names in every folder, so these need their own target folder.
    cmd!(sh, "tar -xmf {packed} -C {folder}").run()?;
    let target = target_dir().join("bench/against/target");
    let old = build_table(sh, &folder, &target).context(commit.clone())?;
    let words = &options.words;
    let known = cases(sh, &new, words)?;
    let before = cases(sh, &old, words).unwrap_or_default();
    let mut names = known.clone();
    names.extend(before.iter().filter(|name| !known.contains(name)).cloned());
    let programs = [("now", new, known), (&commit, old, before)];
    let seconds = options.seconds.as_deref().unwrap_or("0.4");
    let (mut text, mut is_good) = (String::new(), true);
    for case in names {
        let mut rows = [Vec::new(), Vec::new()];
        // The order alternates, in case it matters.
        while rows[0].len() < PAIRS || (differ(&rows) && rows[0].len() < MOST_PAIRS) {
            let is_forward = rows[0].len() % 2 == 0;
            turn(sh, &programs, &case, seconds, is_forward, &mut rows)?;
        }
        is_good &= !rows[0].iter().any(Row::has_error);
        let mut adapters = rows.iter().flatten().map(Row::adapter);
        let adapter = adapters.find(|adapter| adapter != "no adapter");
        let adapter = adapter.unwrap_or("no adapter".into());
        let title = format!("The working tree beside {commit}, on {adapter}. {HEAD}");
        let line = compared(&case, &rows);
        show(&mut text, &title, &rows.concat(), &line, options);
    }
    write(sh, "against.md", &text)?;
    ensure!(is_good, "not everything is right; see above");
    Ok(())
}

/// The least and the greatest speed of the new commit relative to the old one in single pairs.
fn spread([new, old]: &[Vec<Row>; 2]) -> (f64, f64) {
    let pairs = new.iter().zip(old);
    let ratios = pairs.filter_map(|(new, old)| Some(old.seconds()? / new.seconds()?));
    let ends = (f64::INFINITY, 0.0_f64);
    ratios.fold(ends, |(a, b), ratio| (a.min(ratio), b.max(ratio)))
}

fn differ(rows: &[Vec<Row>; 2]) -> bool {
    let (least, most) = spread(rows);
    most > 1.1 * least
}

fn compared(case: &str, rows: &[Vec<Row>; 2]) -> String {
    let [new, old] = rows.each_ref().map(|rows| chosen(rows, rows.len() / 2));
    let (case, (least, most)) = (escaped(case), spread(rows));
    let ratio = match (new.seconds(), old.seconds()) {
        (Some(new), Some(old)) => format!("{:.2} | {least:.2}–{most:.2}", old / new),
        _ => "– | ".into(),
    };
    let (new, old) = (new.figure(), old.figure());
    format!("| {case} | {new} | {old} | {ratio} |\n")
}

/// The table: lapidary beside what the cores can do, and beside these other libraries.
pub(super) fn table(sh: &Shell, peers: &[String], options: &Options) -> Result<()> {
    let ours = build_table(sh, &root(), &target_dir())?;
    let cases = cases(sh, &ours, &options.words);
    let named = cases.as_deref().unwrap_or_default();
    let mut programs = vec![("lapidary", ours, named.to_vec())];
    for name in peers {
        let is_known = PEERS.contains(&name.as_str());
        ensure!(is_known, "there is no peer `{name}`; there are: {PEERS:?}");
        programs.push((name, build_peer(sh, name)?, named.to_vec()));
    }
    let columns = programs.iter().map(|program| format!(" {} |", program.0));
    let title = format!("| case | the cores |{}\n", columns.collect::<String>());
    let title = title + "| --- | ---: |" + &" ---: |".repeat(programs.len()) + "\n";
    let is_alone = peers.is_empty();
    let (default, turns) = if is_alone { ("1.5", 1) } else { ("0.7", TURNS) };
    let seconds = options.seconds.as_deref().unwrap_or(default);
    let (mut text, mut is_good) = (String::new(), true);
    let mut take = |best: Vec<Row>| {
        is_good &= !best.iter().any(Row::has_error);
        let title = format!("On {}:\n\n{title}", best[0].adapter());
        show(&mut text, &title, &best, &line(&best), options);
    };
    for case in named {
        let mut rows = vec![Vec::new(); programs.len()];
        for _ in 0..turns {
            turn(sh, &programs, case, seconds, true, &mut rows)?;
        }
        // Everybody's share is of the same limit, the best that was measured.
        let limits = rows[0].iter();
        let limits = limits.filter_map(|row| Some((seconds_at_limit(row)?, row)));
        let limit = limits.min_by(|a, b| a.0.total_cmp(&b.0));
        let mut best: Vec<_> = rows.iter().map(|rows| chosen(rows, 0).clone()).collect();
        best.iter_mut().for_each(|row| set_limit(row, limit));
        take(best);
    }
    if is_alone {
        for row in weight::rows(sh, options)? {
            take(vec![row]);
        }
    }
    if text.is_empty() {
        return cases.map(drop);
    }
    let [mark, page] = match is_alone {
        true => ["table", "all_cases.md"],
        false => ["peers", "libraries.md"],
    };
    write(sh, &format!("{mark}.md"), &text)?;
    if options.into_docs {
        into_docs(sh, page, mark, &text)?;
    }
    ensure!(is_good, "not everything is right; see above");
    Ok(())
}

/// The seconds at the machine's limit, computed from the share.
fn seconds_at_limit(row: &Row) -> Option<f64> {
    Some(row.number("share")? * row.seconds()?)
}

fn set_limit(row: &mut Row, limit: Option<(f64, &Row)>) {
    if let (Some((seconds, limit)), Some(took)) = (limit, row.seconds()) {
        row.0["share"] = json!(seconds / took);
        for key in ["limit", "limit_value"] {
            row.0[key] = limit.0[key].clone();
        }
    }
}

fn line(rows: &[Row]) -> String {
    let figures = rows.iter().map(|row| format!(" {} |", row.figure()));
    let (case, figures) = (escaped(rows[0].text("case")), figures.collect::<String>());
    format!("| {case} | {} |{figures}\n", rows[0].limit())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(seconds: &[f64]) -> Vec<Row> {
        let row = |seconds: &f64| Row::counted("a", *seconds, "s");
        seconds.iter().map(row).collect()
    }

    #[test]
    fn a_ratio_is_of_the_medians_and_its_spread_of_the_pairs() {
        let failed = Row(json!({ "case": "a", "error": "wrong" }));
        let missing = vec![Row(json!({ "case": "a" }))];
        for (pairs, is_spread, line) in [
            (
                [rows(&[1.0, 2.0, 2.0]), rows(&[3.0, 2.0, 2.0])],
                true,
                "| a | 2 s | 2 s | 1.00 | 1.00–3.00 |\n",
            ),
            (
                [rows(&[1.0, 2.0]), rows(&[1.05, 2.0])],
                false,
                "| a | 2 s | 2 s | 1.00 | 1.00–1.05 |\n",
            ),
            (
                [rows(&[1.0, 1.0]), vec![rows(&[1.0]).remove(0), failed]],
                false,
                "| a | 1 s | ERROR: wrong | – |  |\n",
            ),
            ([rows(&[1.0]), missing], false, "| a | 1 s | – | – |  |\n"),
        ] {
            assert_eq!(compared("a", &pairs), line);
            assert_eq!(differ(&pairs), is_spread, "{line}");
        }
    }

    #[test]
    fn everybodys_share_is_of_the_same_limit() {
        let limit = Row(json!({ "limit": "loops", "limit_value": 8.0 }));
        let mut rows = rows(&[4.0, 2.0]);
        rows[0].0["case"] = json!("a*b");
        for row in &mut rows {
            set_limit(row, Some((1.0, &limit)));
        }
        let wanted = "| a\\*b | 8 (loops) | 4 s (25 %) | 2 s (50 %) |\n";
        assert_eq!(line(&rows), wanted);
    }
}
