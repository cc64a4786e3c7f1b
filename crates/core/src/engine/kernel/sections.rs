//! Sections of WGSL files: each begins with a line of the form `//# name`.

use std::borrow::Cow;

/// The section `name`, without its first line.
pub fn section(file: &'static str, name: &str) -> Option<&'static str> {
    file.split("//# ")
        .find_map(|part| part.strip_prefix(name)?.strip_prefix('\n'))
}

/// The names of the sections of a file.
pub fn names(file: &'static str) -> impl Iterator<Item = &'static str> {
    let sections = file.split("//# ").skip(1);
    sections.filter_map(|part| part.lines().next())
}

/// The section `name.kind` if there is one, else `name`.
pub fn section_for(file: &'static str, name: &str, kind: &str) -> &'static str {
    section(file, &format!("{name}.{kind}"))
        .or_else(|| section(file, name))
        .expect("the tests look at every operation's section")
}

/// Appends the sections `names`, all of which must exist.
pub fn push_sections(out: &mut String, file: &'static str, names: &[&str]) {
    for name in names {
        out.push_str(section(file, name).expect("the tests look at every variant's sections"));
    }
}

/// A skeleton with its placeholders `${name}` replaced.
pub fn fill(skeleton: &str, values: &[(&str, &str)]) -> String {
    let mut text = skeleton.to_string();
    for (name, value) in values {
        text = text.replace(&format!("${{{name}}}"), value.trim_end());
    }
    debug_assert!(!text.contains("${"), "a placeholder is left:\n{text}");
    text
}

/// A text with some words replaced. A word after a dot is a field and stays.
pub fn with_words<'a>(text: &str, other: impl Fn(&str) -> Option<Cow<'a, str>>) -> String {
    let is_of_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut out = String::with_capacity(2 * text.len());
    let mut rest = text;
    while let Some(at) = rest.find(is_of_word) {
        let (between, word) = rest.split_at(at);
        out.push_str(between);
        let end = word.find(|c| !is_of_word(c)).unwrap_or(word.len());
        let (word, after) = word.split_at(end);
        match other(word).filter(|_| !out.ends_with('.')) {
            Some(other) => out.push_str(&other),
            None => out.push_str(word),
        }
        rest = after;
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_section_ends_where_the_next_begins() {
        const FILE: &str = "head\n//# a\none\n//# a.f32\ntwo\n";
        assert_eq!(section(FILE, "a"), Some("one\n"));
        assert_eq!(section_for(FILE, "a", "f32"), "two\n");
        assert_eq!(section_for(FILE, "a", "u32"), "one\n");
        assert_eq!(section(FILE, "b"), None);
        assert!(names(FILE).eq(["a", "a.f32"]));
    }
}
