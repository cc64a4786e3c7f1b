//! Foreign text on one line of a report or an error: no control characters, and a limited width.

/// The beginning of a text in at most `columns` columns, with an ellipsis if it was shortened.
pub fn printable(text: &str, columns: usize) -> String {
    match fit(text.chars(), columns) {
        (all, true) => all,
        _ => fit(text.chars(), columns.saturating_sub(1)).0 + "…",
    }
}

/// The end of a text in at most `columns` columns. The end of a path tells more than its beginning.
pub fn printable_end(text: &str, columns: usize) -> String {
    let mirrored = |text: String| text.chars().rev().collect::<String>();
    match fit(text.chars().rev(), columns) {
        (all, true) => mirrored(all),
        _ => "…".to_string() + &mirrored(fit(text.chars().rev(), columns.saturating_sub(1)).0),
    }
}

/// As many characters as fit, and whether all of them fit.
fn fit(text: impl Iterator<Item = char>, columns: usize) -> (String, bool) {
    let (mut out, mut taken) = (String::new(), 0);
    for c in text {
        let c = if is_hidden(c) { '?' } else { c };
        taken += width(c);
        if taken > columns {
            return (out, false);
        }
        out.push(c);
    }
    (out, true)
}

/// Whether a character moves the cursor, changes the direction of the text, or is invisible.
pub(crate) fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(
            u32::from(c),
            0xad | 0x61c | 0x180e | 0x200b..=0x200f | 0x2028..=0x202e | 0x2060..=0x206f | 0xfeff
                | 0xe0000..=0xe007f
        )
}

/// The columns that a character takes in a terminal: two for ideographs and pictographs. Combining
/// marks count as one, so the sum is never too small.
fn width(c: char) -> usize {
    let is_wide = matches!(
        u32::from(c),
        0x1100..=0x115f | 0x2e80..=0xa4cf | 0xac00..=0xd7a3 | 0xf900..=0xfaff | 0xfe30..=0xfe6f
            | 0xff00..=0xff60 | 0xffe0..=0xffe6 | 0x1f300..=0x1faff | 0x20000..=0x3fffd
    );
    1 + usize::from(is_wide)
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_name_stays_on_its_line_and_in_its_columns() {
        use super::{printable, printable_end};
        assert_eq!(printable("scores", 6), "scores");
        assert_eq!(printable("scores", 5), "scor…");
        assert_eq!(printable_end("src/main.rs:7", 10), "…main.rs:7");
        assert_eq!(printable("a\nb\u{202e}c\u{1b}[31m", 20), "a?b?c?[31m");
        assert_eq!(printable("記憶装置", 6), "記憶…");
        assert_eq!(printable_end("記憶装置", 6), "…装置");
        assert_eq!(printable("x", 0), "…");
    }
}
