//! The lines of code of each crate and of the tests, without blanks and comments, beside those of
//! `main`. There is no limit: it is a number to look at.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::process::{Context, Result, Shell, cmd, emptied, root};
use crate::steps::PASSED;

/// What begins a comment, by the ending of a file.
const LANGUAGES: [(&str, &str); 8] = [
    ("rs", "//"),
    ("wgsl", "//"),
    ("js", "//"),
    ("mjs", "//"),
    ("c", "/*"),
    ("py", "#"),
    ("sh", "#"),
    ("lua", "--"),
];

/// Prints the table. What is not committed counts too.
pub(crate) fn check(sh: &Shell) -> Result<String> {
    let of = |name: &str| cmd!(sh, "git rev-parse --verify --quiet {name}").read();
    let head = of("HEAD")?;
    let main = of("main")
        .or_else(|_| of("origin/main"))
        .unwrap_or(head.clone());
    // On `main` itself, the change is its last commit.
    let base = match main == head {
        true => of("HEAD~1").ok(),
        false => cmd!(sh, "git merge-base HEAD {main}").read().ok(),
    };
    let now = count(
        &root(),
        &cmd!(sh, "git ls-files --cached --others --exclude-standard").read()?,
    )?;
    let before = match &base {
        Some(base) => {
            let folder = emptied(sh, "count")?;
            let tar = cmd!(sh, "git archive {base}").output()?.stdout;
            cmd!(sh, "tar --extract --directory {folder}")
                .stdin(tar)
                .run()?;
            count(
                &folder,
                &cmd!(sh, "git ls-tree -r --name-only {base}").read()?,
            )?
        }
        None => BTreeMap::new(),
    };
    let row = |name: &str, now: i64, before: i64| match &base {
        Some(_) => println!("{name:<32} {now:>7} {:>+7}", now - before),
        None => println!("{name:<32} {now:>7}"),
    };
    for name in now
        .keys()
        .chain(before.keys().filter(|name| !now.contains_key(*name)))
    {
        let of = |counts: &BTreeMap<String, i64>| counts.get(name).copied().unwrap_or(0);
        row(name, of(&now), of(&before));
    }
    row("all", now.values().sum(), before.values().sum());
    Ok(PASSED)
}

/// The lines of code of each part of the repository.
fn count(root: &Path, files: &str) -> Result<BTreeMap<String, i64>> {
    let mut counts = BTreeMap::new();
    for file in files.lines() {
        let ending = Path::new(file)
            .extension()
            .and_then(|ending| ending.to_str());
        let language = LANGUAGES.iter().find(|language| Some(language.0) == ending);
        let (Some((_, comment)), true) = (language, root.join(file).exists()) else {
            continue;
        };
        let text = fs::read(root.join(file)).with_context(|| file.to_owned())?;
        *counts.entry(part_of(file)).or_default() +=
            lines(&String::from_utf8_lossy(&text), comment);
    }
    Ok(counts)
}

fn lines(text: &str, comment: &str) -> i64 {
    let lines = text.lines().map(str::trim);
    lines
        .filter(|line| !line.is_empty() && !line.starts_with(comment))
        .count() as i64
}

/// The crate of a file, or its tests: those of its folder `tests`, and those beside the source.
fn part_of(file: &str) -> String {
    let parts: Vec<&str> = file.split('/').collect();
    let is_test = |part: &&str| *part == "tests" || *part == "tests.rs";
    let name = match parts[..] {
        ["crates", name, ..] => format!("crates/{name}"),
        ["src" | "shaders" | "tests", ..] => "lapidary".into(),
        [folder, _, ..] => folder.into(),
        _ => "others".into(),
    };
    match parts.iter().any(is_test) {
        true => format!("{name}, tests"),
        false => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blanks_and_comments_are_no_code_and_tests_count_apart() {
        assert_eq!(lines("//! a\n\nfn f() {} // b\n    // c\n", "//"), 1);
        for (file, part) in [
            ("src/ops/unary.rs", "lapidary"),
            ("shaders/unary.wgsl", "lapidary"),
            ("tests/engine/order.rs", "lapidary, tests"),
            ("crates/core/src/engine/tests.rs", "crates/core, tests"),
            ("crates/core/src/lib.rs", "crates/core"),
            ("xtask/src/main.rs", "xtask"),
        ] {
            assert_eq!(part_of(file), part);
        }
    }
}
