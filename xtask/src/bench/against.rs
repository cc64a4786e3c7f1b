//! The same cases by the working tree and by another commit, in turn.

use std::path::{Path, PathBuf};

use serde_json::json;

use super::Options;
use super::programs::{TABLE, build_table, cases, one, write};
use super::row::{Row, escaped};
use crate::process::{Context, Result, Shell, cmd, ensure, root, target_dir};

const BENCH: &str = "benches/table/main.rs";
/// Pairs of runs of each case.
const PAIRS: usize = 3;
const SECONDS: &str = "0.4";

const HEAD: &str =
    "| case | now | before | × as fast | in single pairs |\n| --- | ---: | ---: | ---: | ---: |\n";

/// The results of both for one case.
struct Pairs {
    case: String,
    new: Vec<Row>,
    old: Vec<Row>,
}

pub(super) fn against(sh: &Shell, revision: &str, options: &Options) -> Result<()> {
    let commit = format!("{revision}^{{commit}}");
    let commit = cmd!(sh, "git rev-parse --short=12 --verify --quiet {commit}").read();
    let commit = commit.with_context(|| format!("there is no commit `{revision}`"))?;
    let bench = format!("{commit}:{BENCH}");
    if cmd!(sh, "git cat-file -e {bench}")
        .quiet()
        .ignore_stderr()
        .run()
        .is_err()
    {
        let first = cmd!(sh, "git log --format=%h --diff-filter=A -- {BENCH}").read()?;
        anyhow::bail!("{revision} ({commit}) has no bench `{TABLE}`, which came with {first}");
    }
    let new = build_table(sh, &root(), &target_dir())?;
    let tree = Tree::check_out(sh, &commit)?;
    // Outputs have the same names in every folder, so these need their own target folder. Files
    // that were just checked out are newer than older outputs, so cargo builds them again.
    let target = target_dir().join("bench/against/target");
    let old = build_table(sh, &tree.1, &target).context(commit.clone())?;

    let words = &options.words;
    let known = [
        cases(sh, &new, words)?,
        cases(sh, &old, words).unwrap_or_default(),
    ];
    let mut names = known[0].clone();
    names.extend(
        known[1]
            .iter()
            .filter(|name| !known[0].contains(name))
            .cloned(),
    );
    let seconds = options.seconds.as_deref().unwrap_or(SECONDS);
    let extra = ["--bare", "--seconds", seconds];
    let (mut text, mut is_good) = (String::new(), true);
    for case in names {
        let mut pairs = Pairs {
            case,
            new: Vec::new(),
            old: Vec::new(),
        };
        for pair in 0..PAIRS {
            // The order alternates, in case it matters.
            for is_new in [pair % 2 == 0, pair % 2 != 0] {
                let (program, rows) = match is_new {
                    true => (&new, &mut pairs.new),
                    false => (&old, &mut pairs.old),
                };
                rows.push(match known[usize::from(!is_new)].contains(&pairs.case) {
                    true => one(sh, program, "lapidary", &pairs.case, &extra)?,
                    false => Row::missing("lapidary", &pairs.case),
                });
            }
        }
        if text.is_empty() {
            let mut rows = pairs.new.iter().chain(&pairs.old);
            let adapter = rows
                .find(|row| !row.text("adapter").is_empty())
                .map(Row::adapter);
            let adapter = adapter.unwrap_or("no adapter".into());
            text = format!("The working tree beside {commit}, on {adapter}:\n\n{HEAD}");
            if !options.is_json {
                print!("{text}");
            }
        }
        is_good &= !pairs.new.iter().any(Row::has_error);
        let line = pairs.markdown();
        match options.is_json {
            true => println!("{}", pairs.json()),
            false => print!("{line}"),
        }
        text += &line;
    }
    write(sh, "against.md", &text)?;
    ensure!(is_good, "not everything is right; see above");
    Ok(())
}

/// A work tree of git. Dropping it removes it.
struct Tree<'a>(&'a Shell, PathBuf);

impl<'a> Tree<'a> {
    fn check_out(sh: &'a Shell, commit: &str) -> Result<Tree<'a>> {
        let folder = target_dir().join("bench/against").join(commit);
        // An interrupted run may have left one.
        remove(sh, &folder);
        cmd!(sh, "git worktree add --quiet --detach {folder} {commit}").run()?;
        Ok(Tree(sh, folder))
    }
}

/// There may be nothing to remove.
fn remove(sh: &Shell, folder: &Path) {
    let _ = cmd!(sh, "git worktree remove --force {folder}")
        .ignore_stderr()
        .quiet()
        .run();
    let _ = cmd!(sh, "git worktree prune").quiet().run();
}

impl Drop for Tree<'_> {
    fn drop(&mut self) {
        remove(self.0, &self.1);
    }
}

/// The best of several runs that were measured.
fn best(rows: &[Row]) -> Option<(f64, &Row)> {
    let measured = rows.iter().filter_map(|row| Some((row.seconds()?, row)));
    measured.min_by(|a, b| a.0.total_cmp(&b.0))
}

impl Pairs {
    /// The speed of the new commit relative to the old one: the ratio of the best, and the least
    /// and greatest ratio of the pairs.
    fn ratios(&self) -> Option<[f64; 3]> {
        let whole = best(&self.old)?.0 / best(&self.new)?.0;
        let pairs = self.new.iter().zip(&self.old);
        let single = pairs.filter_map(|(new, old)| Some(old.seconds()? / new.seconds()?));
        let ends = (f64::INFINITY, 0.0_f64);
        let (least, most) = single.fold(ends, |(a, b), ratio| (a.min(ratio), b.max(ratio)));
        Some([whole, least, most])
    }

    fn markdown(&self) -> String {
        let cell = |rows: &[Row]| match best(rows).map(|(_, row)| row).or(rows.first()) {
            Some(row) => row.figure(),
            None => "–".into(),
        };
        let ratios = match self.ratios() {
            Some([whole, least, most]) => format!("{whole:.2} | {least:.2}–{most:.2}"),
            None => "– | ".into(),
        };
        let (new, old) = (cell(&self.new), cell(&self.old));
        format!("| {} | {new} | {old} | {ratios} |\n", escaped(&self.case))
    }

    fn json(&self) -> serde_json::Value {
        let mut line = json!({ "case": self.case });
        for (name, rows) in [("new", &self.new), ("old", &self.old)] {
            if let Some((_, row)) = best(rows) {
                line[name] = row.0["value"].clone();
                line[format!("{name}_unit")] = row.0["unit"].clone();
            } else if let Some(row) = rows.iter().find(|row| row.has_error()) {
                line[format!("{name}_error")] = row.0["error"].clone();
            }
        }
        if let Some(ratios) = self.ratios() {
            for (name, ratio) in ["ratio", "least", "most"].into_iter().zip(ratios) {
                line[name] = json!(ratio);
            }
        }
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_is_of_the_best_and_its_spread_of_the_pairs() {
        let row = |seconds| Row::counted("a", seconds, "s");
        let pairs = Pairs {
            case: "a".into(),
            new: vec![row(1.0), row(2.0)],
            old: vec![row(3.0), row(2.0)],
        };
        assert_eq!(pairs.ratios(), Some([2.0, 1.0, 3.0]));
        assert_eq!(pairs.markdown(), "| a | 1 s | 2 s | 2.00 | 1.00–3.00 |\n");
    }

    #[test]
    fn what_the_other_commit_cannot_do_has_no_ratio() {
        let pairs = Pairs {
            case: "a".into(),
            new: vec![Row::counted("a", 1.0, "s")],
            old: vec![Row::failed("lapidary", "a", "wrong")],
        };
        assert_eq!(pairs.ratios(), None);
        assert!(pairs.markdown().contains("ERROR: wrong"));
        assert_eq!(pairs.json()["old_error"], "wrong");
        let pairs = Pairs {
            old: vec![Row::missing("lapidary", "a")],
            ..pairs
        };
        assert_eq!(pairs.markdown(), "| a | 1 s | – | – |  |\n");
    }
}
