//! The programs that a user starts from: they run, and the demo learns what it should.

use crate::driver::cargo_with_gpu;
use crate::process::{Result, run, watch};
use crate::suite::FEATURES;

/// Programs that need only run to their end.
const PROGRAMS: &[&str] = &["hello", "matmul", "custom_kernel", "adopt_device"];

const DEMO: &str = "demo";

/// The least accuracy that the demo's network reaches on the data it never saw.
const LEAST_ACCURACY: f64 = 0.97;

/// Builds all programs at once, runs each, and reads what the demo says at the end.
pub(crate) fn run_all() -> Result<String> {
    let mut build = cargo_with_gpu()?;
    build.args(["build", "--release"]).args(FEATURES);
    for name in PROGRAMS.iter().chain([&DEMO]) {
        build.args(["--example", name]);
    }
    run(&mut build)?;

    let mut failures = Vec::new();
    for name in PROGRAMS {
        if let Err(sentence) = run_one(name) {
            failures.push(sentence);
        }
    }
    let demo = run_one(DEMO).and_then(|lines| judge(last_line_for_programs(&lines)));
    match demo {
        Ok(found) if failures.is_empty() => return Ok(found),
        Ok(_) => {}
        Err(sentence) => failures.push(sentence),
    }
    Err(failures.join(" "))
}

/// Runs one program and returns the lines it printed.
fn run_one(name: &str) -> Result<Vec<String>> {
    let mut program = cargo_with_gpu()?;
    program
        .args(["run", "--quiet", "--release"])
        .args(FEATURES)
        .args(["--example", name]);
    let output = watch(&mut program, |_| true)?;
    if !output.succeeded {
        return Err(format!("the example `{name}` failed."));
    }
    let lines: Vec<_> = output
        .lines
        .into_iter()
        .filter(|line| !line.is_empty())
        .collect();
    if lines.is_empty() {
        Err(format!("the example `{name}` said nothing."))
    } else {
        Ok(lines)
    }
}

/// The last line that is meant for us; a driver may have warned about something after it.
fn last_line_for_programs(lines: &[String]) -> &str {
    lines
        .iter()
        .rfind(|line| line.starts_with("demo: "))
        .or(lines.last())
        .map_or("", String::as_str)
}

/// Reads the demo's last line, which is meant for programs:
/// `demo: accuracy=… buffers_after_first_epoch=… peak_reserved_bytes=… peak_live_bytes=… adapter="…"`.
fn judge(line: &str) -> Result<String> {
    let complain = |fault: &str| Err(format!("the demo's last line {fault}: {line}"));
    let Some(fields) = line.strip_prefix("demo: ") else {
        return complain("does not begin with `demo: `");
    };
    // The adapter's name stands last because it may hold spaces.
    let (numbers, adapter) = fields.split_once(" adapter=").unwrap_or((fields, ""));
    let number = |name: &str| -> Result<f64> {
        let mut pairs = numbers
            .split_whitespace()
            .filter_map(|field| field.split_once('='));
        let value = pairs
            .find(|(key, _)| *key == name)
            .and_then(|(_, value)| value.parse().ok());
        value.ok_or(format!(
            "the demo's last line has no number `{name}`: {line}"
        ))
    };
    let accuracy = number("accuracy")?;
    let late_buffers = number("buffers_after_first_epoch")?;
    let (reserved, live) = (number("peak_reserved_bytes")?, number("peak_live_bytes")?);
    // Not `accuracy < LEAST_ACCURACY`, which a NaN would pass.
    if !(LEAST_ACCURACY..=1.0).contains(&accuracy) {
        return complain(&format!("has an accuracy below {LEAST_ACCURACY}"));
    }
    if late_buffers != 0.0 {
        return complain("tells of buffers created after the first epoch");
    }
    if !(live > 0.0 && reserved >= live) {
        return complain("has peaks that cannot be");
    }
    if adapter.trim_matches('"').is_empty() {
        return complain("names no adapter");
    }
    Ok(format!(
        "accuracy {accuracy}, reserved/live {:.3}",
        reserved / live
    ))
}

#[cfg(test)]
mod tests {
    use super::judge;

    const GOOD: &str = "demo: accuracy=0.9811 buffers_after_first_epoch=0 peak_reserved_bytes=2097152 \
                        peak_live_bytes=2000000 adapter=\"llvmpipe (LLVM 15.0.6, 256 bits)\"";

    #[test]
    fn a_demo_that_learned_is_accepted() {
        assert_eq!(
            judge(GOOD),
            Ok("accuracy 0.9811, reserved/live 1.049".into())
        );
    }

    #[test]
    fn a_demo_that_did_not_is_refused_with_its_line() {
        let bad = [
            GOOD.replace("0.9811", "0.96"),
            GOOD.replace("0.9811", "NaN"),
            GOOD.replace("epoch=0", "epoch=3"),
            GOOD.replace("2097152", "1"),
            GOOD.replace("peak_live_bytes", "peak"),
            GOOD.replace("llvmpipe (LLVM 15.0.6, 256 bits)", ""),
            GOOD.replace("demo: ", ""),
            String::new(),
        ];
        for line in bad {
            let sentence = judge(&line).expect_err("this line is bad");
            assert!(sentence.ends_with(&line), "{sentence}");
        }
    }
}
