//! The example programs run to their end. The demo learns, and programs that are short of memory or
//! lose their device end with the right result.

use crate::line::Line;
use crate::process::{Result, Shell, ensure, lines_of};
use crate::suite::built;

/// Programs with their arguments, and conditions on their last lines. Those without only have to
/// run to their end.
#[rustfmt::skip]
const PROGRAMS: &[(&str, &str)] = &[
    ("hello", ""),
    ("matmul", ""),
    ("custom_kernel", ""),
    ("adopt_device", ""),
    ("demo", "accuracy >= 0.97, accuracy <= 1, buffers_after_first_epoch is 0, \
        peak_live_bytes > 0, peak_reserved_bytes >= peak_live_bytes, adapter is not \"\""),
    // The bytes moved are usually 1.04 times the least possible.
    ("oversubscribe", "equal is true, factor is 4, peak_device_bytes > 0, \
        peak_device_bytes <= budget_bytes, least > 0, bytes_moved >= 0.5 * least, \
        bytes_moved <= 1.25 * least, slowdown > 0, time_over_reference > 0"),
    ("stay_inside", "right is true, worst_over_budget_bytes is 0, steps >= 1, \
        peak_device_bytes > 0"),
    ("survive_loss", "equal is true, losses is 2, kept_bytes > 0, gone_bytes > 0"),
    ("monitor", "steps >= 1, peak_device_bytes > 0, peak_device_bytes <= budget_bytes"),
    // Peaks and bits do not change after the third step. The habits usually save 6.6 times.
    ("train --compare --steps 3", "equal is true, within is true, budgets is 4, moved_bytes > 0, \
        least_peak_live_bytes > 0, peak_live_bytes >= 4 * least_peak_live_bytes"),
    ("train --budget 40 --steps 12", "equal is true, read_back is true, last_loss > 0, \
        last_loss <= 0.95 * first_loss"),
    ("cache", "right is yes, peak_bytes <= budget_bytes"),
    ("particles", "right is yes, peak_bytes <= budget_bytes"),
    // Usually it creates 2 buffers for 60 frames.
    ("pipeline", "right is yes, buffers_created <= 8"),
];

/// Runs each program and checks the last line of some. The programs are those that the suite has
/// built: the kernels take most of the time, and a release build would not make them faster.
pub(crate) fn check(sh: &Shell) -> Result<String> {
    let mut failures = Vec::new();
    for (words, conditions) in PROGRAMS {
        if let Err(error) = run(sh, words, conditions) {
            failures.push(format!("{words}: {error:#}"));
        }
    }
    ensure!(failures.is_empty(), "{}", failures.join("; "));
    Ok(format!("{} programs", PROGRAMS.len()))
}

fn run(sh: &Shell, words: &str, conditions: &str) -> Result<()> {
    let mut words = words.split(' ');
    let name = words.next().unwrap_or_default();
    // `train` is a package, since others use it as a library.
    let file = match name {
        "train" => name.to_owned(),
        _ => format!("examples/{name}"),
    };
    let lines = lines_of(built(sh, &file)?.args(words))?;
    ensure!(lines.iter().any(|line| !line.is_empty()), "it said nothing");
    if !conditions.is_empty() {
        Line::last(name, &lines)?.expect(conditions)?;
    }
    Ok(())
}
