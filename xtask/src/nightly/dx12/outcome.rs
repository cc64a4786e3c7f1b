//! The results of the tests under Wine. The exit status of a program says little: Wine may crash in
//! a driver's thread after the last test passed.

use crate::process::Result;

/// This test uses only wgpu, and fails: Wine's Direct3D hands out memory that an earlier device
/// wrote. Direct3D promises zeros.
const BY_WINE: &str = "plain::a_buffer_that_nobody_wrote_reads_as_zeros";

/// The results of each test program, in the order of their start.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Outcome(Vec<Program>);

#[derive(Debug, Default, PartialEq, Eq)]
struct Program {
    name: String,
    passed: u32,
    skipped: u32,
    failed: Vec<String>,
    /// Whether the test failed that only Wine can fix.
    has_blamed_wine: bool,
    has_ended: bool,
}

impl Outcome {
    /// Parses the output of cargo and of the tests.
    pub(super) fn of(lines: &[String]) -> Self {
        let mut programs: Vec<Program> = Vec::new();
        for line in lines.iter().map(|line| line.trim()) {
            if let Some(rest) = line.strip_prefix("Running ") {
                let name = rest.split(" (").next().unwrap_or(rest);
                programs.push(Program {
                    name: name.to_owned(),
                    ..Program::default()
                });
            } else if let Some(program) = programs.last_mut() {
                program.read(line);
            }
        }
        Outcome(programs)
    }

    /// A line for each program.
    pub(super) fn table(&self) -> String {
        let lines = self.0.iter().map(|program| {
            let Program { name, passed, .. } = program;
            let (failed, skipped) = (program.failed.len(), program.skipped);
            let wine = if program.has_blamed_wine {
                ", 1 failed by Wine's fault"
            } else {
                ""
            };
            let end = if program.has_ended { "" } else { "; it fell" };
            format!("{name}: {passed} passed, {failed} failed, {skipped} skipped{wine}{end}\n")
        });
        lines.collect()
    }

    /// The sums of all counts; an error if a test failed or a program ended early.
    pub(super) fn judged(&self) -> Result<String> {
        let sum = |of: fn(&Program) -> u32| self.0.iter().map(of).sum::<u32>();
        let (passed, skipped) = (sum(|one| one.passed), sum(|one| one.skipped));
        let fallen = sum(|one| u32::from(!one.has_ended));
        let failed: Vec<_> = self.0.iter().flat_map(|one| &one.failed).collect();
        let found = format!(
            "{passed} passed, {} failed, {skipped} skipped",
            failed.len()
        );
        if passed == 0 {
            return Err("no test ran.".into());
        }
        if fallen > 0 {
            return Err(format!("{found}; {fallen} test programs fell."));
        }
        match failed.is_empty() {
            true => Ok(found),
            false => {
                let names: Vec<_> = failed.iter().map(|name| name.as_str()).collect();
                Err(format!("{found}: {}.", names.join(", ")))
            }
        }
    }
}

impl Program {
    /// Parses a line of the program. A test's own output may precede its result.
    fn read(&mut self, line: &str) {
        self.has_ended |= line.starts_with("test result: ");
        let Some(rest) = line.strip_prefix("test ") else {
            return;
        };
        let (name, end) = (rest.split(' ').next(), line.rsplit("... ").next());
        match (name, end.unwrap_or_default()) {
            (_, "ok") => self.passed += 1,
            (Some(BY_WINE), "FAILED") => self.has_blamed_wine = true,
            (Some(name), "FAILED") => self.failed.push(name.to_owned()),
            (_, end) if end.starts_with("ignored") => self.skipped += 1,
            _ => (),
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
        let lines: Vec<_> = (good.lines().chain(failed.lines()))
            .map(str::to_owned)
            .collect();
        assert_eq!(
            Outcome::of(&lines).table(),
            "tests/a.rs: 2 passed, 0 failed, 1 skipped\n\
             tests/a.rs: 1 passed, 1 failed, 1 skipped\n"
        );
        assert!(judged("").is_err());
    }

    #[test]
    fn what_wgpu_alone_fails_is_counted_apart() {
        let text = format!(
            "Running tests/a.rs (target/a.exe)\n\
             test one ... ok\n\
             test {BY_WINE} ... FAILED\n\
             test result: FAILED. 1 passed; 1 failed\n"
        );
        assert_eq!(judged(&text), Ok("1 passed, 0 failed, 0 skipped".into()));
        let lines: Vec<_> = text.lines().map(str::to_owned).collect();
        let table = Outcome::of(&lines).table();
        assert!(
            table.ends_with("skipped, 1 failed by Wine's fault\n"),
            "{table}"
        );
    }
}
