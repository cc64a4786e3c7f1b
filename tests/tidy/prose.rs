//! Rules for texts.

use crate::source::{Source, past_closing, words};

/// Every file begins by saying what it is.
pub(crate) fn check_openings(files: &[Source]) -> Vec<String> {
    let silent = files.iter().filter(|file| !file.text.starts_with("//!"));
    silent
        .map(|file| file.offence(0, "the file does not open with `//!`"))
        .collect()
}

/// Every silenced lint has a reason.
pub(crate) fn check_silenced_lints(files: &[Source]) -> Vec<String> {
    let mut offences = Vec::new();
    for file in files {
        for (offset, start) in file
            .code
            .match_indices("#[")
            .chain(file.code.match_indices("#!["))
        {
            let end = past_closing(&file.code, offset + start.len() - 1);
            let attribute = &file.code[offset..end];
            let silences = ["allow", "expect"].iter().any(|word| {
                let mut found = words(attribute, word);
                found.any(|at| attribute[at + word.len()..].trim_start().starts_with('('))
            });
            let has_reason = words(attribute, "reason").next().is_some();
            if silences && !has_reason {
                offences.push(file.offence(offset, "a lint is silenced without `reason = \"…\"`"));
            }
        }
    }
    offences
}

/// No path leads to a folder that exists only on one machine.
pub(crate) fn check_machine_paths(files: &[Source]) -> Vec<String> {
    // Built at run time, so this file does not contain them.
    let folders = ["work", "home", "root"].map(|name| format!("/{name}/"));
    let mut offences = Vec::new();
    for file in files {
        for folder in &folders {
            for (offset, _) in file.text.match_indices(folder.as_str()) {
                // After a name it is the middle of a longer path or of an address.
                let is_absolute = !file.text[..offset]
                    .ends_with(|c: char| c.is_alphanumeric() || "_-.~/}*".contains(c));
                if is_absolute {
                    offences.push(
                        file.offence(offset, &format!("`{folder}` is a folder of one machine")),
                    );
                }
            }
        }
    }
    offences
}

/// No comment is wider than this.
const MOST_COLUMNS: usize = 100;

/// Comments fit, except tables, drawings, code examples, and text without a space.
pub(crate) fn check_comment_columns(files: &[Source]) -> Vec<String> {
    let mut offences = Vec::new();
    for file in files {
        let mut is_code = false;
        for (index, line) in file.text.lines().enumerate() {
            let marks = if file.path.ends_with(".toml") {
                "#"
            } else {
                "//"
            };
            let Some(said) = line.trim_start().strip_prefix(marks) else {
                is_code = false;
                continue;
            };
            let said = said.trim_start_matches(['/', '!']).trim();
            if said.starts_with("```") {
                is_code = !is_code;
            }
            let is_drawing = said.contains("  ") || said.contains(['│', '─', '|']);
            let can_be_broken = said.contains(' ') && !is_drawing && !is_code;
            if line.chars().count() > MOST_COLUMNS && can_be_broken {
                let columns = line.chars().count();
                offences.push(format!(
                    "{}:{}: a comment of {columns} columns, at most {MOST_COLUMNS}",
                    file.path,
                    index + 1
                ));
            }
        }
    }
    offences
}

#[test]
fn a_comment_that_is_too_wide_is_found() {
    let found = |text: &str| check_comment_columns(&[Source::new("src/a.rs", text)]).len();
    let long = "word ".repeat(25);
    assert_eq!(found(&format!("/// {long}\nfn f() {{}}")), 1);
    assert_eq!(found(&format!("    // {long}")), 1);
    assert_eq!(found(&format!("/// ```\n/// {long}\n/// ```")), 0);
    assert_eq!(found(&format!("/// | {long} |")), 0);
    assert_eq!(found(&format!("/// {}", "x".repeat(120))), 0);
    assert_eq!(found("/// Short."), 0);
    let found = |path: &str, text: &str| check_comment_columns(&[Source::new(path, text)]).len();
    assert_eq!(found("Cargo.toml", &format!("# {long}")), 1);
    assert_eq!(found("shaders/a.wgsl", &format!("// {long}")), 1);
}

#[test]
fn a_file_without_an_opening_is_found() {
    let found = |text: &str| check_openings(&[Source::new("src/a.rs", text)]).len();
    assert_eq!(found("//! What this is.\n"), 0);
    assert_eq!(found("// What this is.\n"), 1);
    assert_eq!(found("use std::fmt;\n//! Late."), 1);
    assert_eq!(found(""), 1);
}

#[test]
fn a_lint_silenced_without_a_reason_is_found() {
    let found = |text: &str| check_silenced_lints(&[Source::new("src/a.rs", text)]).len();
    assert_eq!(found("#[allow(dead_code)]\nfn f() {}"), 1);
    assert_eq!(found("#![expect(dead_code)]"), 1);
    assert_eq!(found("#[cfg_attr(test, allow(dead_code))]"), 1);
    assert_eq!(
        found("#[allow(\n    dead_code,\n    reason = \"read by [tests]\"\n)]"),
        0
    );
    assert_eq!(found("#[derive(Debug)] // #[allow(dead_code)]"), 0);
}

#[test]
fn a_path_of_one_machine_is_found() {
    let found = |text: &str| check_machine_paths(&[Source::new("README.md", text)]).len();
    for name in ["work", "home", "root"] {
        assert_eq!(found(&format!("see /{name}/x")), 1);
        assert_eq!(found(&format!("`/{name}/x`, (/{name}/y)")), 2);
        assert_eq!(
            found(&format!("example.org/{name}/x or ./{name}/x or a/{name}/b")),
            0
        );
    }
}
