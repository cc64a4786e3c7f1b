//! The table: a few steps with each habit alone, with all of them, and within less and less memory.

use std::process::ExitCode;

use lapidary::units::Bytes;
use lapidary::{Gpu, Result};

use crate::data::Text;
use crate::measure::Measured;
use crate::training::Habits;

/// Percentages of the memory that a step takes beside parameters and optimizer.
const BUDGETS: [u64; 4] = [100, 60, 40, 25];

const HABITS: &[(&str, Habits)] = &[
    (
        "--checkpoint",
        Habits {
            checkpoint: true,
            ..Habits::PLAIN
        },
    ),
    (
        "--accumulate 4",
        Habits {
            parts: 4,
            ..Habits::PLAIN
        },
    ),
    (
        "--f16",
        Habits {
            f16: true,
            ..Habits::PLAIN
        },
    ),
    (
        "--bf16-state",
        Habits {
            bf16_state: true,
            ..Habits::PLAIN
        },
    ),
    (
        "all four",
        Habits {
            checkpoint: true,
            parts: 4,
            f16: true,
            bf16_state: true,
        },
    ),
];

const HEADING: &str =
    "                 steps/s  peak, live  on device   evicted  restored  recomputed      loss";

/// Prints the table, checks what it promises, and prints the line for programs.
pub(crate) fn habits(gpu: &Gpu, text: &Text, steps: usize) -> Result<ExitCode> {
    println!("{HEADING}");
    let plain = Measured::steps(gpu, text, Habits::PLAIN, None, steps)?;
    print_row("no flag", &plain);
    let (mut is_equal, mut is_within) = (true, true);
    let mut least = None;
    for percent in BUDGETS {
        let budget = plain.budget(percent);
        let row = Measured::steps(gpu, text, Habits::PLAIN, Some(budget), steps)?;
        print_row(&format!("--budget {percent}"), &row);
        is_equal &= row.begins_as(&plain.losses);
        is_within &= Some(row.peak_device_bytes) <= budget.device_bytes;
        least = Some(row);
    }
    let mut least_live_bytes = plain.peak_live_bytes;
    for (name, habits) in HABITS {
        let row = Measured::steps(gpu, text, *habits, None, steps)?;
        print_row(name, &row);
        let computes_the_same = habits.parts == 1 && !habits.f16 && !habits.bf16_state;
        is_equal &= !computes_the_same || row.begins_as(&plain.losses);
        least_live_bytes = least_live_bytes.min(row.peak_live_bytes);
    }
    println!(
        "\n{} are parameters and optimizer, to which the percentages do not apply.",
        Bytes(plain.fixed_bytes)
    );
    println!(
        "The losses at 100, 60, 40 and 25 %, and with --checkpoint, are {} to the bit.\n",
        if is_equal { "equal" } else { "not equal" },
    );
    let moved = |row: Measured| row.evicted_bytes + row.recomputed_bytes;
    println!(
        "train: equal={is_equal} within={is_within} budgets={} moved_bytes={} peak_live_bytes={} \
         least_peak_live_bytes={least_live_bytes}",
        BUDGETS.len(),
        least.map_or(0, moved),
        plain.peak_live_bytes,
    );
    Ok(match is_equal && is_within {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

fn print_row(name: &str, row: &Measured) {
    let [live, device, evicted, restored, recomputed] = [
        row.peak_live_bytes,
        row.peak_device_bytes,
        row.evicted_bytes,
        row.restored_bytes,
        row.recomputed_bytes,
    ]
    .map(|bytes| Bytes(bytes).to_string());
    println!(
        "{name:<16} {:>7.2} {live:>11} {device:>10} {evicted:>9} {restored:>9} {recomputed:>11} {:>9.6}",
        row.steps_per_s,
        row.losses.last().copied().unwrap_or(f32::NAN),
    );
}
