//! The lines of code of each crate and of the tests, without blanks and comments, beside those of
//! `main`. There is no limit: it is a number to look at.

use std::collections::BTreeMap;

use crate::process::{PASSED, Result, Shell, cmd};

/// Files of code, as git selects them.
const FILES: [&str; 7] = ["*.rs", "*.wgsl", "*.js", "*.mjs", "*.c", "*.py", "*.lua"];

/// Blank lines, and those that a comment begins in any of these languages.
const NO_CODE: &str = r"^[[:space:]]*(//|/\*|# |$)";

/// Prints the table. What is not committed counts too.
pub(crate) fn check(sh: &Shell) -> Result<String> {
    let of = |name: &str| cmd!(sh, "git rev-parse --verify --quiet {name}").read();
    let (head, main) = (of("HEAD")?, of("main").or_else(|_| of("origin/main")));
    let base = match main {
        Ok(main) if main != head => cmd!(sh, "git merge-base HEAD {main}").read().ok(),
        // On `main` itself, the change is its last commit.
        _ => of("HEAD~1").ok(),
    };
    let count = |what: Option<&str>| -> Result<BTreeMap<String, i64>> {
        let what = what.unwrap_or("--untracked");
        let counted = cmd!(sh, "git grep -cvE -e {NO_CODE} {what} -- {FILES...}").quiet();
        let mut counts = BTreeMap::new();
        for line in counted.read()?.lines() {
            // "src/lib.rs:12", with the commit in front if there is one.
            let mut parts = line.rsplit(':');
            let lines = parts.next().and_then(|lines| lines.parse::<i64>().ok());
            if let (Some(lines), Some(file)) = (lines, parts.next()) {
                *counts.entry(part_of(file)).or_default() += lines;
                *counts.entry("all".into()).or_default() += lines;
            }
        }
        Ok(counts)
    };
    let (mut parts, before) = (count(None)?, base.as_deref().map(|base| count(Some(base))));
    let before = before.transpose()?.unwrap_or_default();
    for name in before.keys() {
        parts.entry(name.clone()).or_default();
    }
    for (name, lines) in parts {
        let change = lines - before.get(&name).copied().unwrap_or(0);
        println!("{name:<32} {lines:>7} {change:>+7}");
    }
    Ok(PASSED)
}

/// The crate of a file, or its tests: those of its folder `tests`, and those beside the source.
fn part_of(file: &str) -> String {
    let parts: Vec<&str> = file.split('/').collect();
    let name = match parts[..] {
        ["crates", name, ..] => format!("crates/{name}"),
        ["src" | "shaders" | "tests", ..] => "lapidary".into(),
        [folder, _, ..] => folder.into(),
        _ => "others".into(),
    };
    match parts.contains(&"tests") || parts.contains(&"tests.rs") {
        true => format!("{name}, tests"),
        false => name,
    }
}

#[test]
fn tests_count_apart() {
    for (file, part) in [
        ("shaders/unary.wgsl", "lapidary"),
        ("tests/engine/order.rs", "lapidary, tests"),
        ("crates/core/src/engine/tests.rs", "crates/core, tests"),
        ("xtask/src/main.rs", "xtask"),
    ] {
        assert_eq!(part_of(file), part);
    }
}
