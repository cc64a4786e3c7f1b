//! Extracts sentences from documentation: keeps prose and drops its markup.

/// A sentence and the line in which its paragraph begins, from 1.
pub type Found = (u32, String);

/// Fewer words say little, and a text of more bytes is not a sentence.
const FEWEST_WORDS: usize = 5;
const MOST_BYTES: usize = 400;

/// The sentences of the documentation comments in a source.
pub fn of_rust(source: &str) -> Vec<Found> {
    let comment = |line: &'_ str| {
        let line = line.trim_start();
        let text = line
            .strip_prefix("///")
            .or_else(|| line.strip_prefix("//!"))?;
        (!text.starts_with('/')).then(|| text.to_owned())
    };
    of_lines(source.lines().map(comment))
}

/// The sentences of Markdown, or of plain text.
pub fn of_text(text: &str) -> Vec<Found> {
    of_lines(text.lines().map(|line| Some(line.to_owned())))
}

/// The sentences of lines; `None` is a line without text.
fn of_lines(lines: impl Iterator<Item = Option<String>>) -> Vec<Found> {
    let mut found = Vec::new();
    let mut paragraph = String::new();
    let (mut start, mut is_code) = (0, false);
    let mut end = |paragraph: &mut String, start: u32| {
        split(&plain(paragraph), |sentence| {
            found.push((start, sentence.to_owned()))
        });
        paragraph.clear();
    };
    for (number, line) in (1..).zip(lines) {
        let line = line.unwrap_or_else(|| {
            is_code = false;
            String::new()
        });
        let text = line.trim();
        if text.starts_with("```") || text.starts_with("~~~") {
            is_code = !is_code;
        }
        let is_indented = line.starts_with("     ") && paragraph.is_empty();
        let is_prose =
            text.starts_with(|first: char| first.is_alphanumeric() || "-*`[\"'(_".contains(first));
        let is_link = text.starts_with('[') && text.contains("]:");
        if is_code || is_indented || !is_prose || is_link {
            end(&mut paragraph, start);
            continue;
        }
        let item = text.strip_prefix("- ").or_else(|| text.strip_prefix("* "));
        if item.is_some() {
            end(&mut paragraph, start);
        }
        if paragraph.is_empty() {
            start = number;
        } else {
            paragraph.push(' ');
        }
        paragraph.push_str(item.unwrap_or(text));
    }
    end(&mut paragraph, start);
    found
}

/// Without emphasis, marks of code and the targets of links.
fn plain(paragraph: &str) -> String {
    let mut text = String::with_capacity(paragraph.len());
    let mut rest = paragraph.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            '`' | '*' | '[' => {}
            ']' => {
                let close = match rest.peek() {
                    Some('(') => ')',
                    Some('[') => ']',
                    _ => continue,
                };
                for c in rest.by_ref() {
                    if c == close {
                        break;
                    }
                }
            }
            _ => text.push(c),
        }
    }
    text
}

/// Hands over the sentences of a paragraph: each ends with a mark that a space and a capital
/// follow.
fn split(paragraph: &str, mut take: impl FnMut(&str)) {
    let mut keep = |sentence: &str| {
        let sentence = sentence.trim();
        let words = sentence
            .split_whitespace()
            .filter(|word| word.chars().any(char::is_alphabetic));
        if sentence.len() <= MOST_BYTES && words.count() >= FEWEST_WORDS {
            take(sentence);
        }
    };
    let mut start = 0;
    for (at, mark) in paragraph.char_indices() {
        let after = &paragraph[at + mark.len_utf8()..];
        let mut next = after.chars();
        let is_end = ".!?".contains(mark)
            && next.next() == Some(' ')
            && next.next().is_some_and(char::is_uppercase);
        if is_end {
            keep(&paragraph[start..=at]);
            start = at + 1;
        }
    }
    keep(&paragraph[start..]);
}

#[cfg(test)]
mod tests {
    use super::{of_rust, of_text};

    fn texts(found: Vec<super::Found>) -> Vec<(u32, String)> {
        found
    }

    #[test]
    fn comments_of_documentation_become_sentences_without_markup() {
        let source = "\
//! The room of *all* the things. It has [a door](https://example.org) and `two` windows.

/// Opens the window, version 1.2 of it,
/// and lets fresh air in.
///
/// ```
/// let this_is_code = that is not a sentence at all;
/// ```
/// # Errors are a heading and not a sentence here
/// - If the window is [painted][paint] shut for good.
/// [paint]: a link that goes somewhere else entirely
//// No documentation but a row of slashes.
// Nor is this an ordinary comment that counts.
fn open() {}
";
        let expected = [
            (1, "The room of all the things."),
            (1, "It has a door and two windows."),
            (
                3,
                "Opens the window, version 1.2 of it, and lets fresh air in.",
            ),
            (10, "If the window is painted shut for good."),
        ];
        let found = texts(of_rust(source));
        let found: Vec<_> = found
            .iter()
            .map(|(line, text)| (*line, text.as_str()))
            .collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn code_that_never_ends_and_odd_letters_do_no_harm() {
        assert_eq!(of_text("```\nsome words that are all code here"), []);
        assert_eq!(
            of_text("Über. Äpfel sind in diesem Satz so viele! Ja?").len(),
            1
        );
        assert_eq!(of_text("[a [b](c"), []);
    }
}
