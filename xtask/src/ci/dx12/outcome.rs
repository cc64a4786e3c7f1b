//! What the tests under Wine said. A program's status tells little: Wine may fall over a driver's
//! thread after the last test has passed.

use crate::process::Result;

/// Counts of all test programs together.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Outcome {
    passed: u32,
    skipped: u32,
    failed: Vec<String>,
    /// Programs that started, and programs that reached their end.
    started: u32,
    ended: u32,
}

impl Outcome {
    /// Reads what cargo and the tests print.
    pub(super) fn of(lines: &[String]) -> Self {
        let mut outcome = Outcome::default();
        for line in lines.iter().map(|line| line.trim()) {
            if line.starts_with("Running ") {
                outcome.started += 1;
            } else if line.starts_with("test result: ") {
                outcome.ended += 1;
            } else if line.starts_with("test ") {
                outcome.count(line);
            }
        }
        outcome
    }

    /// A line of one test. What it printed itself may stand before its end.
    fn count(&mut self, line: &str) {
        let (name, end) = (line.split(' ').nth(1), line.rsplit("... ").next());
        match (name, end.unwrap_or_default()) {
            (_, "ok") => self.passed += 1,
            (Some(name), "FAILED") => self.failed.push(name.to_owned()),
            (_, end) if end.starts_with("ignored") => self.skipped += 1,
            _ => (),
        }
    }

    /// The counts, as an error if a test failed or a program fell before its end.
    pub(super) fn judged(&self) -> Result<String> {
        let Outcome {
            passed,
            skipped,
            started,
            ended,
            ..
        } = self;
        let failed = self.failed.len();
        let found = format!("{passed} passed, {failed} failed, {skipped} skipped");
        if self.started == 0 || self.passed == 0 {
            return Err("no test ran.".into());
        }
        if ended < started {
            return Err(format!("{found}; {} test programs fell.", started - ended));
        }
        match self.failed.as_slice() {
            [] => Ok(found),
            names => Err(format!("{found}: {}.", names.join(", "))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(text: &str) -> Result<String> {
        let lines: Vec<_> = text.lines().map(str::to_owned).collect();
        Outcome::of(&lines).judged()
    }

    #[test]
    fn tests_are_counted_and_a_program_that_falls_is_noticed() {
        let good = "     Running tests/a.rs (target/a.exe)\n\
                    test one ... ok\n\
                    test two has been running for over 60 seconds\n\
                    test two ... ok\n\
                    test three ... ignored, for a reason\n\
                    test result: ok. 2 passed; 0 failed\n\
                    wine: Unhandled page fault\n";
        assert_eq!(judged(good), Ok("2 passed, 0 failed, 1 skipped".into()));
        let failed = good.replace("test two ... ok", "test two ... FAILED");
        let sentence = judged(&failed).expect_err("a test failed");
        assert!(sentence.ends_with(": two."), "{sentence}");
        let fallen = good.replace("test result", "no result");
        assert!(judged(&fallen).is_err());
        assert!(judged("").is_err());
    }
}
