//! A file for the checks: its text, a copy with blank comments and strings, and a copy that has
//! blank test modules too. Copies keep the place of every byte, so an offset is valid in all of
//! them.

use std::fs;
use std::path::{Path, PathBuf};

/// One file of the repository.
pub(crate) struct Source {
    /// Its path from the root, with forward slashes.
    pub(crate) path: String,
    pub(crate) text: String,
    /// The text without comments and contents of quotes.
    pub(crate) code: String,
    /// The code without its `#[cfg(test)]` items; all blank if the whole file is a test.
    pub(crate) shipped: String,
}

impl Source {
    pub(crate) fn new(path: &str, text: &str) -> Self {
        let code = blank_quiet_parts(text);
        let is_test = path.ends_with("/tests.rs") || path.contains("/tests/");
        let shipped = if is_test {
            blank(&code, 0, code.len())
        } else {
            without_tests(&code)
        };
        Self {
            path: path.into(),
            text: text.into(),
            code,
            shipped,
        }
    }

    /// `file:line: what`, for the line that holds this offset.
    pub(crate) fn offence(&self, offset: usize, what: &str) -> String {
        let line = 1 + self.text.as_bytes()[..offset]
            .iter()
            .filter(|byte| **byte == b'\n')
            .count();
        format!("{}:{line}: {what}", self.path)
    }
}

/// The repository's root.
pub(crate) fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// The paths of all files in these folders, relative to the root. A missing folder is empty, and so
/// is one with build results.
pub(crate) fn list(folders: &[&str]) -> Vec<String> {
    let mut found = Vec::new();
    let mut open: Vec<PathBuf> = folders.iter().map(|folder| root().join(folder)).collect();
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                // Cargo marks its folders of build results.
                if !path.join("CACHEDIR.TAG").exists() {
                    open.push(path)
                }
            } else {
                found.push(from_root(&path))
            }
        }
    }
    found.sort();
    found
}

/// The files in these folders with one of these extensions.
pub(crate) fn read_folders(folders: &[&str], extensions: &[&str]) -> Vec<Source> {
    list(folders)
        .iter()
        .filter(|path| has_extension(path, extensions))
        .map(|path| read(path))
        .collect()
}

/// The files directly in the root.
pub(crate) fn read_top(extensions: &[&str]) -> Vec<Source> {
    let files = fs::read_dir(root())
        .expect("the root can be read")
        .flatten();
    let paths = files
        .filter(|file| file.path().is_file())
        .map(|file| from_root(&file.path()));
    paths
        .filter(|path| has_extension(path, extensions))
        .map(|path| read(&path))
        .collect()
}

fn read(path: &str) -> Source {
    let text =
        fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"));
    Source::new(path, &text)
}

fn from_root(path: &Path) -> String {
    let path = path
        .strip_prefix(root())
        .expect("it was found under the root");
    path.to_string_lossy().replace('\\', "/")
}

fn has_extension(path: &str, extensions: &[&str]) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    extensions
        .iter()
        .any(|extension| name.rsplit('.').next() == Some(extension))
}

/// The offsets of `word` in `code` as a whole word.
pub(crate) fn words<'a>(code: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    let is_part =
        |byte: Option<&u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric() || *byte == b'_');
    code.match_indices(word)
        .map(|(offset, _)| offset)
        .filter(move |offset| {
            let before = offset
                .checked_sub(1)
                .and_then(|before| code.as_bytes().get(before));
            !is_part(before) && !is_part(code.as_bytes().get(offset + word.len()))
        })
}

/// The offset after the bracket that closes the one at `open`; brackets of other kinds are skipped.
/// The end of the code if it is not closed.
pub(crate) fn past_closing(code: &str, open: usize) -> usize {
    let bytes = code.as_bytes();
    let closing = match bytes[open] {
        b'{' => b'}',
        b'[' => b']',
        _ => b')',
    };
    let mut depth = 0;
    for (offset, byte) in bytes.iter().enumerate().skip(open) {
        if *byte == bytes[open] {
            depth += 1;
        } else if *byte == closing {
            depth -= 1;
            if depth == 0 {
                return offset + 1;
            }
        }
    }
    bytes.len()
}

/// Blanks comments and the contents of strings and characters, but not their quotes.
fn blank_quiet_parts(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut code = bytes.to_vec();
    let mut at = 0;
    while at < bytes.len() {
        let rest = &bytes[at..];
        let (quiet, length) = match rest {
            [b'/', b'/', ..] => (0..line_length(rest), line_length(rest)),
            [b'/', b'*', ..] => (0..comment_length(rest), comment_length(rest)),
            [b'"', ..] => within(string_length(rest), 1),
            [b'\'', ..] => match character_length(rest) {
                Some(length) => within(length, 1),
                None => (0..0, 1),
            },
            [b'r', b'"' | b'#', ..] if !is_inside_word(bytes, at) => {
                match raw_string_length(rest) {
                    Some((length, hashes)) => (hashes + 2..length - hashes - 1, length),
                    None => (0..0, 1),
                }
            }
            _ => (0..0, 1),
        };
        for byte in &mut code[at + quiet.start..at + quiet.end] {
            if *byte != b'\n' {
                *byte = b' ';
            }
        }
        at += length;
    }
    String::from_utf8(code).expect("whole characters are replaced")
}

fn within(length: usize, quote: usize) -> (std::ops::Range<usize>, usize) {
    (quote..(length - quote).max(quote), length)
}

/// Whether the letter at `at` is inside a word and so does not begin a raw string.
fn is_inside_word(bytes: &[u8], at: usize) -> bool {
    let is_word = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    let word = bytes[..at]
        .iter()
        .rev()
        .take_while(|byte| is_word(byte))
        .count();
    // `br"…"` is a raw string as well.
    word > 0 && &bytes[at - word..at] != b"b"
}

fn line_length(rest: &[u8]) -> usize {
    rest.iter()
        .position(|byte| *byte == b'\n')
        .unwrap_or(rest.len())
}

fn comment_length(rest: &[u8]) -> usize {
    let (mut at, mut depth) = (2, 1);
    while at < rest.len() && depth > 0 {
        match &rest[at..] {
            [b'/', b'*', ..] => (at, depth) = (at + 2, depth + 1),
            [b'*', b'/', ..] => (at, depth) = (at + 2, depth - 1),
            _ => at += 1,
        }
    }
    at
}

fn string_length(rest: &[u8]) -> usize {
    let mut at = 1;
    while at < rest.len() {
        match rest[at] {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    rest.len()
}

/// The length of a character literal; none if the quote begins a lifetime.
fn character_length(rest: &[u8]) -> Option<usize> {
    if rest.get(1) == Some(&b'\\') {
        return rest
            .iter()
            .skip(3)
            .position(|byte| *byte == b'\'')
            .map(|found| found + 4);
    }
    let character = match rest.get(1)? {
        0..0x80 => 1,
        0x80..0xe0 => 2,
        0xe0..0xf0 => 3,
        _ => 4,
    };
    (rest.get(1 + character) == Some(&b'\'')).then_some(character + 2)
}

/// The length of `r#"…"#` and its number of hashes; none if it is something else.
fn raw_string_length(rest: &[u8]) -> Option<(usize, usize)> {
    let hashes = rest[1..].iter().take_while(|byte| **byte == b'#').count();
    if rest.get(1 + hashes) != Some(&b'"') {
        return None;
    }
    let closing = [&b"\""[..], &vec![b'#'; hashes]].concat();
    let body = hashes + 2;
    let found = rest[body..]
        .windows(closing.len())
        .position(|window| window == closing)?;
    Some((body + found + closing.len(), hashes))
}

/// Blanks every item after `#[cfg(test)]`.
fn without_tests(code: &str) -> String {
    let mut shipped = code.to_owned();
    while let Some(start) = shipped.find("#[cfg(test)]") {
        let after = start + "#[cfg(test)]".len();
        let end = match shipped[after..].find(['{', ';']).map(|found| after + found) {
            Some(open) if shipped.as_bytes()[open] == b'{' => past_closing(&shipped, open),
            Some(semicolon) => semicolon + 1,
            None => shipped.len(),
        };
        shipped = blank(&shipped, start, end);
    }
    shipped
}

fn blank(code: &str, start: usize, end: usize) -> String {
    let quiet = |(offset, byte): (usize, u8)| {
        if (start..end).contains(&offset) && byte != b'\n' {
            b' '
        } else {
            byte
        }
    };
    let bytes = code.bytes().enumerate().map(quiet).collect();
    String::from_utf8(bytes).expect("items begin and end at ASCII characters")
}

#[test]
fn comments_and_quotes_are_blank_and_code_is_not() {
    let check =
        |text: &str, expected: &str| assert_eq!(Source::new("src/a.rs", text).code, expected);
    check("a // b\nc", "a     \nc");
    check("a /* b /* c */ d */ e", "a                   e");
    check(r#"f("x\"{") {"#, r#"f("    ") {"#);
    check("r\"a\\\" + b", "r\"  \" + b");
    check("br#\"a\"b\"# c", "br#\"   \"# c");
    check("'{' + '\\'' + '\\u{1}'", "' ' + '  ' + '     '");
    check("fn f<'a>(x: &'a str)", "fn f<'a>(x: &'a str)");
    check("'é' b", "'  ' b");
    check("\"\" x", "\"\" x");
    check("for \"a\" in b", "for \" \" in b");
}

#[test]
fn what_only_tests_compile_is_not_shipped() {
    let shipped = |path, text| {
        Source::new(path, text)
            .shipped
            .split_whitespace()
            .collect::<String>()
    };
    assert_eq!(
        shipped(
            "src/a.rs",
            "a(); #[cfg(test)] mod tests { fn b() { c(); } } d();"
        ),
        "a();d();"
    );
    assert_eq!(
        shipped("src/a.rs", "#[cfg(test)]\nmod tests;\nfn a() {}"),
        "fna(){}"
    );
    assert_eq!(shipped("src/a/tests.rs", "fn a() {}"), "");
    assert_eq!(
        shipped("src/a.rs", "#[cfg(not(test))] fn a() {}"),
        "#[cfg(not(test))]fna(){}"
    );
}

#[test]
fn words_are_whole() {
    let found: Vec<_> = words("unsafe_code unsafe { } not_unsafe unsafe", "unsafe").collect();
    assert_eq!(found, [12, 34]);
}
