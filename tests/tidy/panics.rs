//! Rules for panics: an operating error is a value, and a broken invariant of ours is named.

use crate::source::Source;

/// What shipped code must not contain, and the replacement.
const FORBIDDEN: &[(&str, &str)] = &[
    ("todo!", "finish it or leave it out"),
    ("unimplemented!", "finish it or leave it out"),
    ("dbg!", "a leftover"),
    (
        ".unwrap()",
        "return an error, or `expect` with why it is impossible",
    ),
    ("panic!(", "return an error"),
];

/// A shorter `expect` cannot say why the failure is impossible.
const SHORTEST_REASON: usize = 10;

/// Shipped code does not panic without a reason.
pub(crate) fn check(files: &[Source]) -> Vec<String> {
    let mut offences = Vec::new();
    for file in files {
        for (forbidden, instead) in FORBIDDEN {
            for (offset, _) in file.shipped.match_indices(forbidden) {
                let is_longer_word = forbidden.starts_with(|c: char| c.is_alphabetic())
                    && file.shipped[..offset].ends_with(|c: char| c.is_alphanumeric() || c == '_');
                if !is_longer_word {
                    offences.push(file.offence(offset, &format!("`{forbidden}`: {instead}")));
                }
            }
        }
        for (offset, call) in file.shipped.match_indices(".expect(") {
            let argument = offset + call.len();
            if reason_length(file, argument).is_some_and(|length| length < SHORTEST_REASON) {
                offences.push(file.offence(offset, "`expect` does not say why this is impossible"));
            }
        }
    }
    offences
}

/// The length of the string at this offset, if there is one.
fn reason_length(file: &Source, argument: usize) -> Option<usize> {
    // Strings are blank in the code but keep their quotes, so the next quote ends this one.
    let blanked = file.shipped[argument..].trim_start().strip_prefix('"')?;
    Some(blanked.find('"').unwrap_or(blanked.len()))
}

#[test]
fn giving_up_is_found_in_code_and_nowhere_else() {
    let found = |text: &str| check(&[Source::new("src/a.rs", text)]).len();
    for bad in [
        "todo!()",
        "unimplemented!(\"x\")",
        "dbg!(a)",
        "a.unwrap()",
        "panic!(\"no\")",
    ] {
        assert_eq!(found(&format!("fn f() {{ {bad}; }}")), 1, "{bad}");
        assert_eq!(
            found(&format!("/// {bad}\n// {bad}\nfn f() {{}}")),
            0,
            "{bad}"
        );
        assert_eq!(
            found(&format!(
                "#[cfg(test)]\nmod tests {{ fn f() {{ {bad}; }} }}"
            )),
            0,
            "{bad}"
        );
    }
    assert_eq!(
        found("a.unwrap_or(b).unwrap_or_default(); my_panic!(); use std::panic::catch_unwind;"),
        0
    );
}

#[test]
fn an_expectation_without_a_reason_is_found() {
    let found = |text: &str| check(&[Source::new("src/a.rs", text)]).len();
    assert_eq!(found("a.expect(\"oops\");"), 1);
    assert_eq!(found("a.expect(\"\");"), 1);
    assert_eq!(found("a.expect(\n    \"oops\",\n);"), 1);
    assert_eq!(found("a.expect(\"the list was checked above\");"), 0);
    assert_eq!(found("parser.expect(Token::Comma)?;"), 0);
}
