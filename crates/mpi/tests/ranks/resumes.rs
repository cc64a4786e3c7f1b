//! A training whose rank is killed goes on from its state file, with the same losses to the bit.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::job::Job;

const RANKS: usize = 4;
const STEPS: usize = 5;
/// Steps between two state files.
const EVERY: usize = 2;
/// The step after which a rank is killed.
const KILLED_AT: usize = 3;

pub(crate) fn check() {
    let whole = job(&fresh("whole.state")).passes();
    let file = fresh("killed.state");
    let mut victim = None;
    let killed = job(&file).end(|line| {
        if let Some(process) = process_of(line, RANKS - 1) {
            victim = Some(process);
        }
        if line.starts_with(&format!("step {KILLED_AT:>4}")) {
            let process = victim
                .as_ref()
                .expect("the ranks are named before the first step");
            let sent = Command::new("kill").args(["-KILL", process]).status();
            assert!(sent.is_ok_and(|sent| sent.success()), "kill {process}");
        }
    });
    assert!(
        !killed.succeeded,
        "it went on without a rank:\n{}",
        killed.text
    );
    killed.tells_who_died(RANKS - 1);
    let resumed = job(&file).passes();
    let from: usize = value(&resumed.text, "from").parse().expect("a number");
    assert!((EVERY..STEPS).contains(&from), "{}", resumed.text);
    let losses = |text: &str| value(text, "losses_crc").to_owned();
    assert_eq!(losses(&resumed.text), losses(&whole.text));
    // The file is of another training now.
    let other = Job::training(RANKS, &arguments(&file, STEPS + 1)).fails();
    assert!(other.text.contains("give `--steps 5`"), "{}", other.text);
}

fn job(state: &Path) -> Job {
    Job::training(RANKS, &arguments(state, STEPS))
}

fn arguments(state: &Path, steps: usize) -> Vec<String> {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let pairs = [
        ("--steps", steps.to_string()),
        ("--every", EVERY.to_string()),
        ("--state", state.display().to_string()),
        ("--folder", docs.display().to_string()),
    ];
    let pairs = pairs.into_iter();
    pairs
        .flat_map(|(flag, value)| [flag.to_owned(), value])
        .collect()
}

/// A file that is not there.
fn fresh(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_file(&path);
    path
}

/// The process of this rank, if the line names it: `rank 1 of 2 (process 123 on host)`.
fn process_of(line: &str, rank: usize) -> Option<String> {
    let rest = line.strip_prefix(&format!("rank {rank} of "))?;
    let (_, rest) = rest.split_once("(process ")?;
    Some(rest.split_once(' ')?.0.to_owned())
}

/// The value of a key in the last line for programs.
fn value<'a>(text: &'a str, key: &str) -> &'a str {
    let last = text.lines().rfind(|line| line.starts_with("train: "));
    let mut pairs = last.into_iter().flat_map(str::split_whitespace);
    let found = pairs.find_map(|pair| pair.strip_prefix(key)?.strip_prefix('='));
    found.unwrap_or_else(|| panic!("no `{key}`:\n{text}"))
}
