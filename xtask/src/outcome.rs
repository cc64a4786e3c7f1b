//! The output of a test runner, cargo's own or cargo-nextest, reduced to counts and names.

/// The results of the tests.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Tests {
    pub(crate) passed: usize,
    pub(crate) skipped: usize,
    /// Program and name of each failed test, or its name alone.
    pub(crate) failed: Vec<String>,
    /// Programs of cargo's runner that ended without a summary.
    pub(crate) fallen: usize,
}

impl Tests {
    pub(crate) fn of(lines: &[String]) -> Tests {
        let mut tests = Tests::default();
        for line in lines.iter().map(|line| plain(line)) {
            let line = line.trim();
            if line.starts_with("Running ") {
                tests.fallen += 1;
            } else if let Some(name) = failed(line) {
                tests.failed.push(name);
            } else if line.starts_with("test result: ") || line.starts_with("Summary [") {
                // "test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; …", or
                // "Summary [ 1.2s] 5 tests run: 4 passed (1 slow), 1 failed, 2 skipped".
                tests.fallen = tests.fallen.saturating_sub(1);
                tests.passed += count_before(line, " passed");
                tests.skipped += count_before(line, " ignored") + count_before(line, " skipped");
            }
        }
        tests.failed.sort();
        tests.failed.dedup();
        tests
    }

    /// The counts in one line.
    pub(crate) fn summary(&self) -> String {
        let (passed, failed, skipped) = (self.passed, self.failed.len(), self.skipped);
        format!("{passed} passed, {failed} failed, {skipped} skipped")
    }
}

/// The number in front of a word.
fn count_before(text: &str, word: &str) -> usize {
    let before = text.split_once(word).map_or("", |(before, _)| before);
    before
        .rsplit(' ')
        .next()
        .and_then(|number| number.parse().ok())
        .unwrap_or(0)
}

/// The failed test that a line names.
fn failed(line: &str) -> Option<String> {
    // A test's own output may precede its result.
    if let Some((name, _)) = line
        .strip_prefix("test ")
        .and_then(|rest| rest.split_once(' '))
    {
        return line.ends_with("... FAILED").then(|| name.to_owned());
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
    let (line, words) = (
        plain(line),
        ["Running ", "Summary [", "Starting ", "SLOW ", "error"],
    );
    let line = line.trim();
    let is_result = line.starts_with("test result: ");
    is_result || failed(line).is_some() || words.iter().any(|word| line.starts_with(word))
}

/// The text without the escape sequences of colours.
pub(crate) fn plain(line: &str) -> String {
    let mut parts = line.split('\u{1b}');
    let first = parts.next().unwrap_or_default().to_owned();
    let rest = parts.filter_map(|part| part.split_once(|c: char| c.is_ascii_alphabetic()));
    first + &rest.map(|(_, text)| text).collect::<String>()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tests_of(text: &str) -> Tests {
        Tests::of(&text.lines().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn cargos_runner_is_understood_and_a_program_that_falls_is_noticed() {
        let text = "\
     Running tests/a.rs (target/a.exe)
running 3 tests
test order::queue ... ok
test order::queue has been running for over 60 seconds
test order::reads ... its own words ... FAILED
test long ... ignored, for a reason
test result: FAILED. 1 passed; 1 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.01s
wine: Unhandled page fault
     Running tests/b.rs (target/b.exe)
test result: ok. 20 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.01s";
        let expected = Tests {
            passed: 21,
            skipped: 1,
            failed: vec!["order::reads".into()],
            fallen: 0,
        };
        assert_eq!(tests_of(text), expected);
        assert_eq!(
            tests_of(&text.replace("test result: ok", "no result")).fallen,
            1
        );
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
            fallen: 0,
        };
        assert_eq!(tests_of(text), expected);
    }

    #[test]
    fn other_lines_say_nothing() {
        let text = "thread 'a' panicked at src/a.rs:1:2:\nFAILED in words\ntest-like text";
        assert_eq!(tests_of(text), Tests::default());
    }
}
