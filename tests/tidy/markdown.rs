//! Pages of Markdown: the length of the README and of the architecture, and the width of all lines.

use crate::source::Source;

/// The README says what this is, for whom, how to start, and where to read on. Everything else is
/// on other pages.
const MOST_README_BYTES: usize = 8192;

/// A newcomer reads the architecture in one sitting.
const MOST_ARCHITECTURE_LINES: usize = 200;

/// The words that a newcomer has to learn.
const MOST_GLOSSARY_ROWS: usize = 25;

/// No line is wider than this.
const MOST_COLUMNS: usize = 100;

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

/// The architecture exists and is short, all of its lines fit, rows of tables too, and its glossary
/// has few words.
pub(crate) fn check_architecture(files: &[Source]) -> Vec<String> {
    let Some(page) = files.iter().find(|file| file.path == "ARCHITECTURE.md") else {
        return vec!["ARCHITECTURE.md was not found".into()];
    };
    let mut offences = Vec::new();
    let lines = page.text.lines().count();
    if lines > MOST_ARCHITECTURE_LINES {
        offences.push(format!(
            "ARCHITECTURE.md: {lines} lines, at most {MOST_ARCHITECTURE_LINES}"
        ));
    }
    for (index, line) in page.text.lines().enumerate() {
        let columns = line.chars().count();
        if columns > MOST_COLUMNS {
            offences.push(format!(
                "ARCHITECTURE.md:{}: a line of {columns} columns, at most {MOST_COLUMNS}",
                index + 1
            ));
        }
    }
    match glossary_rows(&page.text) {
        None => offences.push("ARCHITECTURE.md: the glossary was not found".into()),
        Some(rows) if rows > MOST_GLOSSARY_ROWS => offences.push(format!(
            "ARCHITECTURE.md: {rows} words in the glossary, at most {MOST_GLOSSARY_ROWS}"
        )),
        Some(_) => {}
    }
    offences
}

/// The number of rows of the glossary, without the heading of its table.
fn glossary_rows(text: &str) -> Option<usize> {
    let (_, rest) = text.split_once("\n## Glossary\n")?;
    let section = rest.split("\n## ").next().unwrap_or(rest);
    let rows = section.lines().filter(|line| line.starts_with('|')).count();
    rows.checked_sub(2)
}

/// No line is too wide, except rows of tables, code blocks, and links that cannot be broken.
pub(crate) fn check_columns(files: &[Source]) -> Vec<String> {
    let mut offences = Vec::new();
    for file in files {
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
fn an_architecture_that_is_too_long_or_too_wide_is_found() {
    let found = |text: &str| check_architecture(&[Source::new("ARCHITECTURE.md", text)]).len();
    let glossary = |rows: usize| {
        let rows = "| a | b |\n".repeat(rows);
        format!("# A\n\n## Glossary\n\n| word | meaning |\n| --- | --- |\n{rows}")
    };
    assert_eq!(found(&glossary(25)), 0);
    assert_eq!(found(&glossary(26)), 1);
    assert_eq!(
        found(&format!("{}\n## Notes\n\n| a | b |\n", glossary(25))),
        0
    );
    assert_eq!(found("# A\n"), 1);
    assert_eq!(found(&format!("{}{}", glossary(24), "a\n".repeat(170))), 0);
    assert_eq!(found(&format!("{}{}", glossary(24), "a\n".repeat(171))), 1);
    assert_eq!(
        found(&format!("{}| {} |\n", glossary(9), "÷".repeat(96))),
        0
    );
    assert_eq!(
        found(&format!("{}| {} |\n", glossary(9), "÷".repeat(97))),
        1
    );
    assert_eq!(check_architecture(&[]).len(), 1);
}

#[test]
fn a_line_of_prose_that_is_too_wide_is_found() {
    let found = |path: &str, text: &str| check_columns(&[Source::new(path, text)]).len();
    let (fits, wide) = ("÷ ".repeat(50), "÷ ".repeat(51));
    let word = "a".repeat(120);
    assert_eq!(found("README.md", &fits), 0);
    assert_eq!(found("README.md", &wide), 1);
    assert_eq!(found("docs/a.md", &format!("{wide}\n- {wide}\n")), 2);
    assert_eq!(found("docs/a.md", &format!("| {wide} |\n")), 0);
    assert_eq!(found("docs/a.md", &format!("```text\n{wide}\n```\n")), 0);
    assert_eq!(found("docs/a.md", &format!("```\na\n```\n{wide}\n")), 1);
    assert_eq!(found("docs/a.md", &format!("* [{word}]({word})\n")), 0);
    assert_eq!(found("docs/a.md", &format!("[a b]: {word}\n")), 0);
    assert_eq!(found("docs/a.md", &format!("see [{word}]({word})\n")), 1);
}
