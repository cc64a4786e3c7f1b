//! Pages of Markdown: the length of the README and the width of all lines.

use crate::source::Source;

/// The README says what this is, for whom, how to start, and where to read on. Everything else is
/// on other pages.
const MOST_README_BYTES: usize = 8192;

/// No line is wider than this.
const MOST_COLUMNS: usize = 100;

/// Pages whose lines may be wider, with the reason.
const WIDE: &[(&str, &str)] = &[("CHANGELOG.md", "an entry may be one line")];

/// The README exists and is short.
pub(crate) fn check_readme(files: &[Source]) -> Vec<String> {
    match files.iter().find(|file| file.path == "README.md") {
        None => vec!["README.md was not found".into()],
        Some(readme) if readme.text.len() > MOST_README_BYTES => vec![format!(
            "README.md: {} bytes, at most {MOST_README_BYTES}",
            readme.text.len()
        )],
        Some(_) => Vec::new(),
    }
}

/// No line is too wide, except rows of tables, code blocks, and links that cannot be broken.
pub(crate) fn check_columns(files: &[Source]) -> Vec<String> {
    let is_checked = |file: &&Source| !WIDE.iter().any(|(path, _)| *path == file.path);
    let mut offences = Vec::new();
    for file in files.iter().filter(is_checked) {
        let mut is_code = false;
        for (index, line) in file.text.lines().enumerate() {
            let text = line.trim();
            if text.starts_with("```") {
                is_code = !is_code;
            }
            let columns = line.chars().count();
            let is_free = is_code || text.starts_with('|') || !can_be_broken(text);
            if columns > MOST_COLUMNS && !is_free {
                offences.push(format!(
                    "{}:{}: a line of {columns} columns, at most {MOST_COLUMNS}",
                    file.path,
                    index + 1
                ));
            }
        }
    }
    offences
}

/// Whether the line has a space at which it could be broken. A long link has none, with or without
/// a list's mark before it, and neither has the definition of a link.
fn can_be_broken(text: &str) -> bool {
    let text = text.trim_start_matches(['-', '*', '>', ' ']);
    let text = match text.split_once("]: ") {
        Some((name, target)) if name.starts_with('[') => target,
        _ => text,
    };
    text.contains(' ')
}

#[test]
fn a_readme_that_is_too_long_is_found() {
    let found =
        |path: &str, bytes: usize| check_readme(&[Source::new(path, &"a".repeat(bytes))]).len();
    assert_eq!(found("README.md", MOST_README_BYTES), 0);
    assert_eq!(found("README.md", MOST_README_BYTES + 1), 1);
    assert_eq!(found("docs/README.md", 1), 1);
}

#[test]
fn a_line_of_prose_that_is_too_wide_is_found() {
    let found = |path: &str, text: &str| check_columns(&[Source::new(path, text)]).len();
    let (fits, wide) = ("÷ ".repeat(50), "÷ ".repeat(51));
    let word = "a".repeat(120);
    assert_eq!(found("README.md", &fits), 0);
    assert_eq!(found("README.md", &wide), 1);
    assert_eq!(found("docs/a.md", &format!("{wide}\n- {wide}\n")), 2);
    assert_eq!(found("CHANGELOG.md", &wide), 0);
    assert_eq!(found("docs/a.md", &format!("| {wide} |\n")), 0);
    assert_eq!(found("docs/a.md", &format!("```text\n{wide}\n```\n")), 0);
    assert_eq!(found("docs/a.md", &format!("```\na\n```\n{wide}\n")), 1);
    assert_eq!(found("docs/a.md", &format!("* [{word}]({word})\n")), 0);
    assert_eq!(found("docs/a.md", &format!("[a b]: {word}\n")), 0);
    assert_eq!(found("docs/a.md", &format!("see [{word}]({word})\n")), 1);
}
