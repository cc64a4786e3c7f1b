//! Splits a user's WGSL into words and marks.
//!
//! Words, marks and comments must end where naga ends them. Otherwise a hostile text could hide
//! marks from the [check of its depth](super::nesting::check_depth). Some of naga's tokens are
//! several here: `1.5e-3` is, and so are pairs such as `&&`.

use std::ops::Range;

use crate::excerpt::is_line_break;

/// Most bytes of a kernel's text.
pub(super) const MOST_TEXT_BYTES: usize = 1 << 20;

/// The kind of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TokenKind {
    /// A name, a keyword or a number.
    Word,
    /// Any other character.
    Mark(u8),
}

/// A token and its place.
#[derive(Clone, Copy, Debug)]
pub(super) struct Token {
    pub(super) kind: TokenKind,
    start: u32,
    end: u32,
}

impl Token {
    pub(super) fn range(&self) -> Range<usize> {
        self.start as usize..self.end as usize
    }

    pub(super) fn is(&self, mark: u8) -> bool {
        self.kind == TokenKind::Mark(mark)
    }

    /// Is it this word of the text?
    pub(super) fn is_word(&self, text: &str, word: &str) -> bool {
        self.kind == TokenKind::Word && text.get(self.range()) == Some(word)
    }
}

/// Is it white space?
fn is_blank(c: char) -> bool {
    is_line_break(c) || matches!(c, ' ' | '\t' | '\u{200e}' | '\u{200f}')
}

/// The tokens of a text, without spaces and comments. The text is at most [`MOST_TEXT_BYTES`].
pub(super) fn tokens(text: &str) -> Vec<Token> {
    let (mut tokens, mut start) = (Vec::new(), 0);
    while let Some(first) = text[start..].chars().next() {
        let rest = &text[start..];
        let (kind, len) = if rest.starts_with("//") {
            (None, rest.find(is_line_break).unwrap_or(rest.len()))
        } else if rest.starts_with("/*") {
            (None, comment_bytes(rest))
        } else if is_blank(first) {
            (None, first.len_utf8())
        } else if is_word(first) {
            let len = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
            (Some(TokenKind::Word), len)
        } else {
            // Any character outside words is ASCII, so it is one byte.
            (Some(TokenKind::Mark(rest.as_bytes()[0])), 1)
        };
        let end = start + len;
        tokens.extend(kind.map(|kind| Token {
            kind,
            start: start as u32,
            end: end as u32,
        }));
        start = end;
    }
    tokens
}

/// The places where the text asks for a length by `arrayLength(&name)` or
/// `arrayLength(&name.member)`, with the binding. `None` if it asks in another form.
pub(super) fn lengths(
    text: &str,
    tokens: &[Token],
    binding: impl Fn(&str) -> Option<usize>,
) -> Option<Vec<(usize, Range<usize>)>> {
    let calls = tokens.iter().enumerate();
    let calls = calls.filter(|(_, token)| token.is_word(text, "arrayLength"));
    calls
        .map(|(index, call)| {
            let rest = &tokens[index + 1..];
            let [open, and, name, ..] = rest else {
                return None;
            };
            if !open.is(b'(') || !and.is(b'&') || name.kind != TokenKind::Word {
                return None;
            }
            let mut members = rest[3..].chunks(2);
            let close = members.find(|two| !two[0].is(b'.'))?.first()?;
            let which = binding(text.get(name.range())?);
            // A variable that no call binds has no length that matters.
            let which = which.unwrap_or(usize::MAX);
            (close.is(b')')).then(|| (which, call.range().start..close.range().end))
        })
        .collect()
}

/// naga refuses all characters that are neither in words nor white space, so they need no case
/// here.
fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || (!c.is_ascii() && !is_blank(c))
}

/// Length of a block comment. Block comments nest; an unclosed one extends to the end.
fn comment_bytes(text: &str) -> usize {
    let bytes = text.as_bytes();
    let (mut at, mut open) = (2, 1);
    while open > 0 && at < bytes.len() {
        match &bytes[at..bytes.len().min(at + 2)] {
            b"/*" => (open, at) = (open + 1, at + 2),
            b"*/" => (open, at) = (open - 1, at + 2),
            _ => at += 1,
        }
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The tokens as text, with spaces between them.
    fn shown(text: &str) -> String {
        let tokens = tokens(text).into_iter();
        let words: Vec<_> = tokens.map(|token| &text[token.range()]).collect();
        words.join(" ")
    }

    #[test]
    fn a_line_ends_where_wgsl_says() {
        for end in [
            "\n", "\r", "\r\n", "\u{b}", "\u{c}", "\u{85}", "\u{2028}", "\u{2029}",
        ] {
            assert_eq!(shown(&format!("a// b{end}c")), "a c", "{end:?}");
            assert_eq!(shown(&format!("a{end}c")), "a c", "{end:?}");
            assert_eq!(
                crate::excerpt::line_breaks(&format!("a{end}b{end}")),
                2,
                "{end:?}"
            );
        }
        assert_eq!(shown("a\u{200e}b\u{200f}c\td"), "a b c d");
        assert_eq!(shown("a//\u{200e}b"), "a");
    }
}
