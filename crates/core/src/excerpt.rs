//! A place in a kernel's text, shown with its line.

use std::fmt::Write;
use std::ops::Range;

use crate::printable::is_hidden;

/// The most characters of a line in an excerpt.
const MOST_COLUMNS: usize = 100;

/// Whether a line, and so a `//` comment, ends here. These are all line breaks of WGSL.
pub(crate) fn is_line_break(c: char) -> bool {
    matches!(c, '\n'..='\r' | '\u{85}' | '\u{2028}' | '\u{2029}')
}

/// The number of line breaks in a text. A carriage return with a line feed after it is one.
pub(crate) fn line_breaks(text: &str) -> usize {
    text.matches(is_line_break).count() - text.matches("\r\n").count()
}

/// The line that contains a place, with carets under the place:
///
/// ```text
///  --> wgsl:3:9
///   |
/// 3 | let a = b;
///   |         ^ no such name
/// ```
pub(crate) fn excerpt(text: &str, place: Range<usize>, label: &str) -> String {
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
    // A long line is shown from half an excerpt's width before the place.
    let skipped = match line.chars().count() > MOST_COLUMNS {
        true => column.saturating_sub(MOST_COLUMNS / 2),
        false => 0,
    };
    let cut = if skipped > 0 { "…" } else { "" };
    let rest: String = line.chars().skip(skipped).collect();
    let visible = format!("{cut}{}", shown(&rest, MOST_COLUMNS));
    let under = column - skipped + cut.chars().count();
    let most_carets = (visible.chars().count()).saturating_sub(under).max(1);
    let carets = text[start..end].chars().count().clamp(1, most_carets);
    let gutter = number.to_string().len();
    let mut out = format!("{:gutter$}--> wgsl:{number}:{}\n", "", column + 1);
    let _ = writeln!(out, "{:gutter$} |\n{number} | {}", "", visible.trim_end());
    let _ = write!(out, "{:gutter$} | {:under$}{}", "", "", "^".repeat(carets));
    if !label.is_empty() {
        let _ = write!(out, " {}", shown(label, MOST_COLUMNS));
    }
    out
}

/// The last character boundary that is at most `at`.
fn floor(text: &str, at: usize) -> usize {
    let mut at = at.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

/// At most `most` characters of a text, each in one column. It replaces tabs, control characters
/// and characters that change the direction of text.
pub(crate) fn shown(text: &str, most: usize) -> String {
    let clean = |c: char| match c {
        '\n' => c,
        '\t' => ' ',
        c if is_hidden(c) => '\u{fffd}',
        c => c,
    };
    let mut out: String = text.chars().take(most).map(clean).collect();
    if text.chars().nth(most).is_some() {
        out.push('…');
    }
    out
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
        assert_eq!(shown("a\u{202e}b\0", 9), "a\u{fffd}b\u{fffd}");
    }
}
