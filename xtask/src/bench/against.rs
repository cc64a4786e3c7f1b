//! The same cases by the working tree and by another commit, in turn.

use std::fmt::Write as _;
use std::path::Path;

use super::options::Options;
use super::page::write;
use super::programs::{TABLE, build_table, cases, one};
use super::row::{Figure, Row, quoted};
use super::table::{digits, escaped, none};
use crate::process::{Result, capture, command, root, run_quietly, target_dir};

const BENCH: &str = "benches/table/main.rs";
/// Pairs of runs of each case.
const PAIRS: usize = 3;
const SECONDS: &str = "0.4";

/// The results of both for one case.
struct Pairs {
    case: String,
    new: Vec<Row>,
    old: Vec<Row>,
}

pub(crate) fn against(options: &Options) -> Result {
    let revision = options.against.as_deref().unwrap_or("HEAD");
    let commit = format!("{revision}^{{commit}}");
    let found =
        capture(command("git").args(["rev-parse", "--short=12", "--verify", "--quiet", &commit]));
    let commit = found.map_err(|_| format!("there is no commit `{revision}`."))?;
    let commit = commit.trim();
    let folder = target_dir().join("bench/against").join(commit);
    let bench = format!("{commit}:{BENCH}");
    if capture(command("git").args(["cat-file", "-e", &bench])).is_err() {
        return Err(too_old(revision, commit));
    }
    let new = build_table(&root(), &target_dir())?;
    let tree = Tree::check_out(commit, &folder)?;
    // Outputs have the same names in every folder, so these need their own target folder. Files
    // that were just checked out are newer than older outputs, so cargo builds them again.
    let target = target_dir().join("bench/against/target");
    let old = build_table(tree.0, &target)
        .map_err(|_| format!("the bench of {commit} could not be built; see above."))?;

    let known = [
        cases(&new, &options.words)?,
        cases(&old, &options.words).unwrap_or_default(),
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
    let mut text = String::new();
    let mut is_good = true;
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
                    true => one(program, "lapidary", &pairs.case, &extra)?,
                    false => Row::missing("lapidary", &pairs.case),
                });
            }
        }
        if text.is_empty() {
            let adapter = [&pairs.new[0], &pairs.old[0]].map(Row::adapter);
            let adapter = &adapter[usize::from(pairs.new[0].adapter.is_empty())];
            text = format!(
                "The working tree beside {commit}, on {adapter}:\n\n{}",
                head()
            );
            if !options.is_json {
                print!("{text}");
            }
        }
        is_good &= pairs.new.iter().all(|row| row.error.is_none());
        let line = pairs.markdown();
        text += &line;
        match options.is_json {
            true => println!("{}", pairs.json()),
            false => print!("{line}"),
        }
    }
    write("against.md", &text)?;
    match is_good {
        true => Ok(()),
        false => Err("not everything is right; see above.".into()),
    }
}

fn head() -> String {
    "| case | now | before | × as fast | in single pairs |\n| --- | ---: | ---: | ---: | ---: |\n"
        .into()
}

fn too_old(revision: &str, commit: &str) -> String {
    let first =
        capture(command("git").args(["log", "--format=%h, %s", "--diff-filter=A", "--", BENCH]));
    let first = first.unwrap_or_default();
    let first = match first.trim().lines().last() {
        Some(first) => format!("it came with {first}"),
        None => "it is not committed yet".into(),
    };
    format!(
        "{revision} ({commit}) has no bench `{TABLE}`: {first}. An older commit can be compared by the \
         single benches that both have."
    )
}

/// A work tree of git. Dropping it removes it.
struct Tree<'a>(&'a Path);

impl<'a> Tree<'a> {
    fn check_out(commit: &str, folder: &'a Path) -> Result<Tree<'a>> {
        let tree = Tree(folder);
        // An interrupted run may have left one.
        tree.remove();
        run_quietly(
            command("git")
                .args(["worktree", "add", "--detach"])
                .arg(folder)
                .arg(commit),
        )?;
        Ok(tree)
    }

    fn remove(&self) {
        // There is usually nothing to remove, but `add` fails if something is left.
        let _ = capture(
            command("git")
                .args(["worktree", "remove", "--force"])
                .arg(self.0),
        );
        let _ = capture(command("git").args(["worktree", "prune"]));
    }
}

impl Drop for Tree<'_> {
    fn drop(&mut self) {
        self.remove();
    }
}

/// The best of several runs.
fn best(rows: &[Row]) -> Option<&Figure> {
    let figures = rows.iter().filter_map(|row| row.figure.as_ref());
    figures.min_by(|a, b| a.seconds.total_cmp(&b.seconds))
}

impl Pairs {
    /// The speed of the new commit relative to the old one: the ratio of the best, and the least
    /// and greatest ratio of the pairs.
    fn ratios(&self) -> Option<[f64; 3]> {
        let whole = best(&self.old)?.seconds / best(&self.new)?.seconds;
        let pairs = self.new.iter().zip(&self.old);
        let single = pairs.filter_map(|(new, old)| {
            Some(old.figure.as_ref()?.seconds / new.figure.as_ref()?.seconds)
        });
        let (least, most) = single.fold((f64::INFINITY, 0.0_f64), |(least, most), ratio| {
            (least.min(ratio), most.max(ratio))
        });
        Some([whole, least, most])
    }

    fn markdown(&self) -> String {
        let cell = |rows: &[Row]| match best(rows) {
            Some(figure) => format!("{} {}", digits(figure.value), figure.unit),
            None => rows.first().map_or("–".into(), none),
        };
        let ratios = match self.ratios() {
            Some([whole, least, most]) => format!("{whole:.2} | {least:.2}–{most:.2}"),
            None => "– | ".into(),
        };
        let (new, old) = (cell(&self.new), cell(&self.old));
        format!("| {} | {new} | {old} | {ratios} |\n", escaped(&self.case))
    }

    fn json(&self) -> String {
        let mut line = format!("{{\"case\":{}", quoted(&self.case));
        for (name, rows) in [("new", &self.new), ("old", &self.old)] {
            match (best(rows), rows.iter().find_map(|row| row.error.as_ref())) {
                (Some(figure), _) => {
                    let _ = write!(
                        line,
                        ",\"{name}\":{:.6e},\"{name}_unit\":{}",
                        figure.value,
                        quoted(&figure.unit)
                    );
                }
                (None, Some(error)) => {
                    let _ = write!(line, ",\"{name}_error\":{}", quoted(error));
                }
                (None, None) => {}
            }
        }
        if let Some([whole, least, most]) = self.ratios() {
            let _ = write!(
                line,
                ",\"ratio\":{whole:.4},\"least\":{least:.4},\"most\":{most:.4}"
            );
        }
        line + "}"
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
        assert!(pairs.json().contains("old_error"));
        let pairs = Pairs {
            old: vec![Row::missing("lapidary", "a")],
            ..pairs
        };
        assert_eq!(pairs.markdown(), "| a | 1 s | – | – |  |\n");
    }
}
