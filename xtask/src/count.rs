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
    // The lines now, and the change.
    let mut parts: BTreeMap<String, [i64; 2]> = BTreeMap::new();
    let before = base.iter().map(|base| (base.as_str(), [0, -1]));
    for (what, signs) in before.chain([("--untracked", [1, 1])]) {
        let counted = cmd!(sh, "git grep -cvE -e {NO_CODE} {what} -- {FILES...}").quiet();
        for line in counted.read()?.lines() {
            // "src/lib.rs:12", with the commit in front if there is one.
            let mut fields = line.rsplit(':');
            let lines = fields.next().unwrap_or_default().parse::<i64>()?;
            let part = part_of(fields.next().unwrap_or_default());
            for name in [part, "all".into()] {
                let sums = parts.entry(name).or_default();
                *sums = [sums[0] + signs[0] * lines, sums[1] + signs[1] * lines];
            }
        }
    }
    for (name, [lines, change]) in parts {
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
