//! What is wrong with a kernel, shown at its line with carets below the place.

use std::fmt::Write;
use std::ops::Range;
use std::sync::Arc;

use super::tokens::{is_line_break, line_breaks};
use crate::error::{Error, KernelError};
use crate::text::is_hidden;

/// Characters of a line that an excerpt shows, at most.
const MOST_COLUMNS: usize = 100;

/// Characters of a message that we did not write, at most.
const MOST_MESSAGE: usize = 1000;

/// An error about a kernel as a whole.
pub(super) fn error(kernel: &str, message: impl Into<String>) -> Error {
    error_with(kernel, message.into(), String::new())
}

/// An error about a place in its text.
pub(super) fn error_at(
    kernel: &str,
    text: &str,
    place: Range<usize>,
    label: &str,
    message: impl Into<String>,
) -> Error {
    error_with(kernel, message.into(), excerpt(text, place, label))
}

fn error_with(kernel: &str, message: String, excerpt: String) -> Error {
    Error::Kernel(Arc::new(KernelError {
        kernel: printable(kernel, MOST_COLUMNS).replace('\n', " "),
        message: printable(&message, MOST_MESSAGE),
        excerpt,
    }))
}

/// The line of a place, with carets under it:
///
/// ```text
///  --> wgsl:3:9
///   |
/// 3 | let a = b;
///   |         ^ no such name
/// ```
pub(super) fn excerpt(text: &str, place: Range<usize>, label: &str) -> String {
    let start = floor(text, place.start);
    let before = text[..start].char_indices().rev();
    let mut before = before.filter(|(_, c)| is_line_break(*c));
    let line_start = before.next().map_or(0, |(at, c)| at + c.len_utf8());
    let line_end = text[start..].find(is_line_break);
    let line_end = line_end.map_or(text.len(), |at| start + at);
    let end = floor(text, place.end).clamp(start, line_end);
    let number = line_breaks(&text[..line_start]) + 1;
    let column = text[line_start..start].chars().count();
    let line = text[line_start..line_end].trim_end();
    // A long line is shown from a little before the place.
    let skipped = match line.chars().count() > MOST_COLUMNS {
        true => column.saturating_sub(MOST_COLUMNS / 2),
        false => 0,
    };
    let cut = if skipped > 0 { "…" } else { "" };
    let rest: String = line.chars().skip(skipped).collect();
    let shown = format!("{cut}{}", printable(&rest, MOST_COLUMNS));
    let under = column - skipped + cut.chars().count();
    let most_carets = (shown.chars().count()).saturating_sub(under).max(1);
    let carets = text[start..end].chars().count().clamp(1, most_carets);
    let gutter = number.to_string().len();
    let mut out = format!("{:gutter$}--> wgsl:{number}:{}\n", "", column + 1);
    let _ = writeln!(out, "{:gutter$} |\n{number} | {}", "", shown.trim_end());
    let _ = write!(out, "{:gutter$} | {:under$}{}", "", "", "^".repeat(carets));
    if !label.is_empty() {
        let _ = write!(out, " {}", printable(label, MOST_COLUMNS));
    }
    out
}

/// The last boundary of a character that is not after `at`.
fn floor(text: &str, at: usize) -> usize {
    let mut at = at.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

/// One column for every character: no tabs, no control characters, nothing that reverses what
/// follows, and not too long.
fn printable(text: &str, most: usize) -> String {
    let clean = |c: char| match c {
        '\n' => c,
        '\t' => ' ',
        c if is_hidden(c) => '\u{fffd}',
        c => c,
    };
    let mut shown: String = text.chars().take(most).map(clean).collect();
    if text.chars().nth(most).is_some() {
        shown.push('…');
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn carets_stand_below_the_place() {
        let text = "// é\n\tlet aé = bb;\n}";
        let at = text.find("bb").unwrap();
        let shown = excerpt(text, at..at + 2, "here");
        assert_eq!(
            shown,
            " --> wgsl:2:11\n  |\n2 |  let aé = bb;\n  |           ^^ here"
        );
    }

    #[test]
    fn no_place_is_too_strange() {
        for text in ["", "é", "\n", "a\nb", &"x".repeat(100_000)] {
            for start in [0, 1, 2, 50_000, usize::MAX] {
                for end in [0, 1, 3, usize::MAX] {
                    let shown = excerpt(text, start..end, "");
                    assert!(
                        shown.contains("--> wgsl:") && shown.ends_with('^'),
                        "{shown}"
                    );
                    assert!(
                        shown.lines().all(|line| line.chars().count() < 120),
                        "{shown}"
                    );
                }
            }
        }
        assert_eq!(printable("a\u{202e}b\0", 9), "a\u{fffd}b\u{fffd}");
    }
}
