//! The budgets on simulated graphics cards, for several speeds of memory and link.

use lapidary::sim::Speed;
use lapidary::{Options, Result};

use crate::budgets::{self, Device, Row};
use crate::simulated_card;

const RUNS: usize = 3;

/// The best of these steps counts. On shared cores the host is often late.
const ROUNDS: usize = 15;

/// Bytes a second that kernels read and write. The kernels of a step are busy for 32 ms at the
/// first, and for 4 ms at the last.
const MEMORY_BYTES_PER_S: [u64; 4] = [
    50_000_000_000,
    100_000_000_000,
    200_000_000_000,
    400_000_000_000,
];

pub(crate) fn tell() -> Result<()> {
    let slow_link = Speed {
        upload_bytes_per_s: 13_000_000_000,
        download_bytes_per_s: 13_000_000_000,
        copy_ns: 0,
        submission_ns: 0,
        ..Speed::default()
    };
    for link in [Speed::default(), slow_link] {
        println!(
            "link {} GB/s each way, {} us a copy, {} us a submission; means of {RUNS} runs, the \
             least and the most; MB a step",
            link.upload_bytes_per_s / 1_000_000_000,
            link.copy_ns / 1000,
            link.submission_ns / 1000,
        );
        println!(
            "{:<8} {:<10} {:>9} {:>9} {:>19} {:>11} {:>6} {:>8} {:>8} {:>10} {:>7}",
            "memory",
            "budget",
            "step",
            "idle",
            "/ no budget",
            "submissions",
            "waits",
            "evicted",
            "restored",
            "recomputed",
            "moved",
        );
        for memory_bytes_per_s in MEMORY_BYTES_PER_S {
            tell_of(Speed {
                memory_bytes_per_s,
                ..link
            })?;
        }
    }
    Ok(())
}

fn tell_of(speed: Speed) -> Result<()> {
    let open = || {
        let (gpu, sim) = simulated_card::open(speed, Options::from_env()?)?;
        Ok(Device {
            gpu,
            busy_ns: Box::new(move || sim.counters().busy_ns),
        })
    };
    let runs = (0..RUNS).map(|_| Ok(budgets::measure(open, ROUNDS)?.rows));
    let runs: Vec<Vec<Row>> = runs.collect::<Result<_>>()?;
    for at in 0..runs[0].len() {
        let rows: Vec<&Row> = runs.iter().map(|rows| &rows[at]).collect();
        let mean =
            |figure: fn(&Row) -> f64| rows.iter().map(|row| figure(row)).sum::<f64>() / RUNS as f64;
        let ratios = || rows.iter().map(|row| row.ratio);
        let ratio = format!(
            "{:.2} ({:.2}-{:.2})",
            mean(|row| row.ratio),
            ratios().fold(f64::INFINITY, f64::min),
            ratios().fold(0.0, f64::max),
        );
        println!(
            "{:<8} {:<10} {:>6.2} ms {:>6.2} ms {ratio:>19} {:>11.1} \
             {:>6.1} {:>8.1} {:>8.1} {:>10.1} {:>7.1}",
            format!("{} GB/s", speed.memory_bytes_per_s / 1_000_000_000),
            rows[0].name(),
            mean(|row| row.step_s) * 1e3,
            mean(|row| row.step_s - row.busy_s) * 1e3,
            mean(|row| row.submissions),
            mean(|row| row.waits),
            mean(|row| row.evicted_mb),
            mean(|row| row.restored_mb),
            mean(|row| row.recomputed_mb),
            mean(|row| row.moved_mb),
        );
    }
    Ok(())
}
