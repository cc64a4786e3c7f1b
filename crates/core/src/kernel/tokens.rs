//! Splits a user's WGSL into words and marks.
//!
//! The tokens must be exactly those of naga. Otherwise a hostile text could hide brackets from the
//! [check of its depth](super::nesting::check_depth), and naga would overflow its stack.

use std::ops::Range;

use crate::excerpt::is_line_break;

/// Most bytes of a kernel's text.
pub(super) const MOST_TEXT_BYTES: usize = 1 << 20;

/// The kind of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TokenKind {
    /// A name, a keyword or a number.
    Word,
    /// Any other character, or a pair that is one operator.
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
        } else if first.is_ascii_digit() {
            (Some(TokenKind::Word), number_bytes(rest))
        } else if is_word(first) {
            (Some(TokenKind::Word), word_bytes(rest))
        } else {
            // Any character outside words is ASCII, so it is one byte.
            let mark = rest.as_bytes()[0];
            let second = rest.as_bytes().get(1);
            let is_pair = second.is_some_and(|&second| is_pair(mark, second));
            (Some(TokenKind::Mark(mark)), 1 + usize::from(is_pair))
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

fn word_bytes(text: &str) -> usize {
    text.find(|c| !is_word(c)).unwrap_or(text.len())
}

/// Operators that naga reads as one. `>>` stays two marks, because it may close two templates.
fn is_pair(first: u8, second: u8) -> bool {
    match second {
        b'=' => b"=!+-*/%&|^".contains(&first),
        b'&' | b'|' => first == second,
        _ => false,
    }
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

/// Length of a number. `1.5e-3f` is one word: its marks are not operators. In `1f.x` the word ends
/// before the point.
fn number_bytes(text: &str) -> usize {
    let bytes = text.as_bytes();
    let is_hex = bytes.len() > 1 && bytes[1] | 0x20 == b'x' && bytes[0] == b'0';
    let digits = |from: usize| {
        let is_digit = |byte: &&u8| match is_hex {
            true => byte.is_ascii_hexdigit(),
            false => byte.is_ascii_digit(),
        };
        from + bytes[from..].iter().take_while(is_digit).count()
    };
    let mut at = digits(if is_hex { 2 } else { 0 });
    if bytes.get(at) == Some(&b'.') {
        at = digits(at + 1);
    }
    let exponent = if is_hex { b'p' } else { b'e' };
    if bytes.get(at).is_some_and(|byte| byte | 0x20 == exponent) {
        let has_sign = matches!(bytes.get(at + 1), Some(b'+' | b'-'));
        at += 1 + usize::from(has_sign);
    }
    at + word_bytes(&text[at..])
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

    #[test]
    fn a_number_ends_where_naga_ends_it() {
        for (text, expected) in [
            ("1.5e-3f+2", "1.5e-3f + 2"),
            ("0x1.8p-1-1", "0x1.8p-1 - 1"),
            ("0xfe-1", "0xfe - 1"),
            ("1f.x.x", "1f . x . x"),
            ("1.x", "1.x"),
            ("1..x", "1. . x"),
            ("1e+1e+1", "1e+1e + 1"),
            ("a.0", "a . 0"),
        ] {
            assert_eq!(shown(text), expected);
        }
    }
}
