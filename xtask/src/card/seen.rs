//! The output of a test runner, cargo's own or cargo-nextest, reduced to counts and names.

/// The results of the tests.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Tests {
    pub(crate) passed: usize,
    pub(crate) skipped: usize,
    /// Program and name of each failed test.
    pub(crate) failed: Vec<String>,
}

impl Tests {
    pub(crate) fn of(lines: &[String]) -> Tests {
        let mut tests = Tests::default();
        for line in lines.iter().map(|line| plain(line)) {
            tests.add(line.trim());
        }
        tests.failed.sort();
        tests.failed.dedup();
        tests
    }

    fn add(&mut self, line: &str) {
        if let Some(counts) = line.strip_prefix("test result: ") {
            // cargo: "ok. 3 passed; 0 failed; 1 ignored; 0 measured; 2 filtered out; …"
            self.passed += count_before(counts, " passed");
            self.skipped += count_before(counts, " ignored");
        } else if line.starts_with("Summary [") {
            // nextest: "Summary [ 1.2s] 5 tests run: 4 passed (1 slow), 1 failed, 2 skipped"
            self.passed += count_before(line, " passed");
            self.skipped += count_before(line, " skipped");
        } else if let Some(name) = failed(line) {
            self.failed.push(name);
        }
    }
}

/// The number in front of a word.
fn count_before(text: &str, word: &str) -> usize {
    let before = text
        .split(word)
        .next()
        .filter(|before| before.len() < text.len());
    let number = before.and_then(|before| before.rsplit([' ', ',']).next());
    number.and_then(|number| number.parse().ok()).unwrap_or(0)
}

/// The failed test that a line names.
fn failed(line: &str) -> Option<String> {
    let of_cargo = line
        .strip_prefix("test ")
        .and_then(|rest| rest.strip_suffix(" ... FAILED"));
    if let Some(name) = of_cargo {
        return Some(name.to_owned());
    }
    // nextest: "FAIL [   0.113s] (12/99) lapidary::device order::queue", "SIGABRT [ 1s] …",
    // "TIMEOUT [600s] …".
    let words = ["FAIL ", "SIG", "ABORT ", "TIMEOUT "];
    let is_named = words.iter().any(|word| line.starts_with(word));
    let (_, rest) = line.split_once(']').filter(|_| is_named)?;
    let rest = rest.trim();
    let name = match rest.strip_prefix('(') {
        Some(counted) => counted.split_once(')')?.1.trim(),
        None => rest,
    };
    name.contains(' ').then(|| name.to_owned())
}

/// Whether the line tells progress to a person who waits.
pub(crate) fn is_telling(line: &str) -> bool {
    let line = plain(line);
    let line = line.trim();
    failed(line).is_some()
        || [
            "Running ",
            "test result: ",
            "Summary [",
            "Starting ",
            "SLOW ",
            "error",
        ]
        .iter()
        .any(|word| line.starts_with(word))
}

/// Whether the line is one of cargo's messages about building and running.
pub(crate) fn is_of_cargo(line: &str) -> bool {
    let words = [
        "Compiling",
        "Finished",
        "Running",
        "Downloading",
        "Downloaded",
        "Locking",
        "Blocking",
        "Updating",
    ];
    let line = plain(line);
    words.iter().any(|word| line.trim_start().starts_with(word)) || line.starts_with("warning:")
}

/// The text without the escape sequences of colours.
fn plain(line: &str) -> String {
    let mut text = String::new();
    let mut chars = line.chars();
    while let Some(c) = chars.next() {
        match c {
            '\u{1b}' => drop(chars.by_ref().find(|c| c.is_ascii_alphabetic())),
            c => text.push(c),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tests_of(text: &str) -> Tests {
        Tests::of(&text.lines().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn cargos_runner_is_understood() {
        let text = "\
running 3 tests
test order::queue ... ok
test order::reads ... FAILED
test long ... ignored
test result: FAILED. 1 passed; 1 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.01s
test result: ok. 20 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.01s";
        let expected = Tests {
            passed: 21,
            skipped: 1,
            failed: vec!["order::reads".into()],
        };
        assert_eq!(tests_of(text), expected);
    }

    #[test]
    fn nextest_is_understood_with_colours_and_repetitions() {
        let text = "
        \u{1b}[32;1mPASS\u{1b}[0m [   0.010s] (1/3) lapidary::device order::queue
        \u{1b}[31;1mFAIL\u{1b}[0m [   0.113s] (2/3) lapidary::device order::reads
     SIGABRT [   1.002s] lapidary ops::matmul
     Summary [   0.2s] 3 tests run: 1 passed (1 slow), 2 failed, 4 skipped
        FAIL [   0.113s] (2/3) lapidary::device order::reads";
        let expected = Tests {
            passed: 1,
            skipped: 4,
            failed: vec![
                "lapidary ops::matmul".into(),
                "lapidary::device order::reads".into(),
            ],
        };
        assert_eq!(tests_of(text), expected);
    }

    #[test]
    fn other_lines_say_nothing() {
        let text = "thread 'a' panicked at src/a.rs:1:2:\nFAILED in words\ntest-like text";
        assert_eq!(tests_of(text), Tests::default());
    }
}
