//! Work several times larger than its memory: a chain of matmuls whose weights are 1, 2 and 4 times
//! the budget. It runs once with the weights in a file and once without.
//!
//! ```text
//! cargo run --release --example oversubscribe -- [FACTOR]
//! ```
//!
//! FACTOR (4 by default, 8 at most) is the ratio of the weights to the budget in the end. The
//! results must equal those of a run without a budget, bit for bit. The last line is for programs;
//! its bytes and times are the sums of both runs at FACTOR.

mod chain;
mod files;
mod least;

use std::error::Error;
use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::time::Duration;

use chain::{Numbers, Origin, PASSES, Run, WEIGHT_BYTES, WEIGHTS, X_BYTES};
use files::{Rates, Weights};
use lapidary::units::{Bytes, GIB};
use lapidary::{Budget, Gpu, Options};

const USAGE: &str = "usage: oversubscribe [FACTOR], of 1 to 8";

const SEED: u64 = 4;

/// Rounds over all budgets, so that other programs' load affects all of them alike.
const ROUNDS: usize = 3;
/// Runs per round. The first makes the slabs. The fastest of all counts.
const RUNS: usize = 2;

/// Bytes of all weights.
const ALL_BYTES: u64 = WEIGHTS as u64 * WEIGHT_BYTES;

fn main() -> ExitCode {
    oversubscribe().unwrap_or_else(|error| {
        eprintln!("oversubscribe: failed: {error}");
        ExitCode::FAILURE
    })
}

fn oversubscribe() -> Result<ExitCode, Box<dyn Error>> {
    let factor: u64 = match std::env::args().nth(1).map(|factor| factor.parse()) {
        None => 4,
        Some(Ok(factor @ 1..=8)) => factor,
        Some(_) => return Err(USAGE.into()),
    };
    let mut factors = vec![1, 2, factor];
    factors.retain(|&one| one <= factor);
    factors.dedup();

    let gpu = Gpu::open(Options::from_env()?)?;
    let numbers = Numbers::new(SEED);
    let file = Weights::write(numbers.bytes())?;
    let rates = Rates::measure(&file, numbers.bytes())?;
    println!(
        "{WEIGHTS} weights of {}, {} together, {PASSES} times through, on {} ({})\n",
        Bytes(WEIGHT_BYTES),
        Bytes(ALL_BYTES),
        gpu.caps().name,
        gpu.caps().backend,
    );

    let origins = [Origin::File(file.path()), Origin::Memory];
    let mut budgets = vec![None];
    budgets.extend(factors.iter().map(|factor| Some(ALL_BYTES / factor)));
    let mut progress = Progress::new(ROUNDS * origins.len() * budgets.len() * RUNS * PASSES);
    let mut fastest = vec![None; origins.len() * budgets.len()];
    for _ in 0..ROUNDS {
        let settings = origins.iter().flat_map(|origin| {
            let budgets = budgets.iter();
            budgets.map(move |budget_bytes| (*origin, *budget_bytes))
        });
        for ((origin, budget_bytes), fastest) in settings.zip(&mut fastest) {
            gpu.memory()
                .set_budget(budget_bytes.map_or_else(Budget::default, Budget::device))?;
            for _ in 0..RUNS {
                let run = chain::run(&gpu, &numbers, origin, || progress.step())?;
                keep_faster(fastest, run)?;
            }
        }
    }
    progress.clear();

    let runs: Vec<Run> = fastest.into_iter().flatten().collect();
    let mut rows = Vec::new();
    for (origin, runs) in origins.into_iter().zip(runs.chunks(budgets.len())) {
        let (free, runs) = runs.split_first().ok_or("there was no run")?;
        let runs = factors.iter().zip(runs);
        rows.extend(runs.map(|(&factor, run)| Row::new(factor, origin, free, run, rates)));
    }
    print_table(&rows, rates);
    rows.retain(|row| row.factor == factor);
    Ok(verdict(factor, &rows))
}

/// Keeps the faster of two runs, which must have the same result.
fn keep_faster(fastest: &mut Option<Run>, run: Run) -> Result<(), Box<dyn Error>> {
    match fastest {
        Some(best) if !same(best, &run) => return Err("two runs have different results".into()),
        Some(best) if best.time <= run.time => {}
        _ => *fastest = Some(run),
    }
    Ok(())
}

/// Do two runs have the same result, bit for bit?
fn same(a: &Run, b: &Run) -> bool {
    let bits = |run: &Run| run.result.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
    bits(a) == bits(b)
}

/// A run under a budget, compared with the one without.
struct Row {
    factor: u64,
    origin: &'static str,
    budget_bytes: u64,
    run: Run,
    free_time: Duration,
    is_equal: bool,
    /// The fewest bytes that must travel out and in.
    least_bytes: u64,
    /// The time of the run without a budget, plus the travelled bytes at the machine's rates.
    reference: Duration,
}

impl Row {
    fn new(factor: u64, origin: Origin<'_>, free: &Run, run: &Run, rates: Rates) -> Row {
        let budget_bytes = ALL_BYTES / factor;
        // The input and the output of a matmul must be resident beside the weights.
        let room = (budget_bytes - 2 * X_BYTES) / WEIGHT_BYTES;
        let room = (room as usize).min(WEIGHTS);
        let least = match origin {
            Origin::File(_) => least::loads(WEIGHTS, room, 0, PASSES),
            Origin::Memory => {
                // Of the uploaded weights, as many as have room are resident.
                least::loads(WEIGHTS, room, room, PASSES) + least::stores(WEIGHTS, room)
            }
        };
        let (write, read) = match (origin, run.on_disk) {
            (Origin::Memory, false) => (rates.copy, rates.copy),
            _ => (rates.write, rates.read),
        };
        // Without a budget the file is read once too, and its time includes that.
        let more_in_bytes = run.in_bytes.saturating_sub(free.in_bytes);
        let travel = run.out_bytes as f64 / write + more_in_bytes as f64 / read;
        Row {
            factor,
            origin: origin.name(),
            budget_bytes,
            run: run.clone(),
            free_time: free.time,
            is_equal: same(free, run),
            least_bytes: least * WEIGHT_BYTES,
            reference: free.time + Duration::from_secs_f64(travel),
        }
    }

    fn moved_bytes(&self) -> u64 {
        self.run.out_bytes + self.run.in_bytes
    }
}

fn print_table(rows: &[Row], rates: Rates) {
    println!(
        "factor  weights in      budget        out         in     least  moved/least     time  \
         slow-down  reference  time/reference"
    );
    for row in rows {
        let (time, reference) = (row.run.time.as_secs_f64(), row.reference.as_secs_f64());
        println!(
            "{:>5}x  {:<10} {:>11} {:>10} {:>10} {:>9} {:>12.2} {:>6.2} s {:>9.2}x {:>8.2} s {:>15.2}",
            row.factor,
            row.origin,
            Bytes(row.budget_bytes).to_string(),
            Bytes(row.run.out_bytes).to_string(),
            Bytes(row.run.in_bytes).to_string(),
            Bytes(row.least_bytes).to_string(),
            ratio(row.moved_bytes() as f64, row.least_bytes as f64),
            time,
            ratio(time, row.free_time.as_secs_f64()),
            reference,
            ratio(time, reference),
        );
    }
    let gib = |rate: f64| rate / GIB as f64;
    println!(
        "\nleast: the fewest bytes that may travel, for one who knows the future. slow-down: beside a run\n\
         without a budget. reference: the time of that run, and for all bytes that travelled besides, by one\n\
         thread and with nothing else to do, at the rates of this machine: {:.1} GiB/s from a file, {:.1} to\n\
         one, {:.1} within memory. Below 1 the transfers were hidden behind the work.\n",
        gib(rates.read),
        gib(rates.write),
        gib(rates.copy),
    );
}

fn ratio(a: f64, b: f64) -> f64 {
    if b > 0.0 { a / b } else { 1.0 }
}

/// Checks the promises, and prints the line for programs.
fn verdict(factor: u64, rows: &[Row]) -> ExitCode {
    let mut code = ExitCode::SUCCESS;
    let is_equal = rows.iter().all(|row| row.is_equal);
    if !is_equal {
        eprintln!("oversubscribe: failed: the results differ from those without a budget");
        code = ExitCode::FAILURE;
    }
    let peak = rows.iter().map(|row| row.run.peak_device_bytes).max();
    let (peak_bytes, budget_bytes) = (peak.unwrap_or(0), ALL_BYTES / factor);
    if peak_bytes > budget_bytes {
        eprintln!("oversubscribe: failed: the budget was exceeded");
        code = ExitCode::FAILURE;
    }
    let time: f64 = rows.iter().map(|row| row.run.time.as_secs_f64()).sum();
    let free_time: f64 = rows.iter().map(|row| row.free_time.as_secs_f64()).sum();
    let reference: f64 = rows.iter().map(|row| row.reference.as_secs_f64()).sum();
    println!(
        "oversubscribe: equal={is_equal} factor={factor} bytes_moved={} least={} slowdown={:.3} \
         time_over_reference={:.3} peak_device_bytes={peak_bytes} budget_bytes={budget_bytes}",
        rows.iter().map(Row::moved_bytes).sum::<u64>(),
        rows.iter().map(|row| row.least_bytes).sum::<u64>(),
        ratio(time, free_time),
        ratio(time, reference),
    );
    code
}

/// A bar on the terminal, if there is one.
struct Progress {
    done: usize,
    all: usize,
    is_shown: bool,
}

impl Progress {
    const CELLS: usize = 50;

    fn new(all: usize) -> Progress {
        Progress {
            done: 0,
            all,
            is_shown: std::io::stdout().is_terminal(),
        }
    }

    fn step(&mut self) {
        self.done += 1;
        let filled = "#".repeat(Self::CELLS * self.done / self.all);
        let percent = 100 * self.done / self.all;
        self.show(&format!("\r[{filled:<50}] {percent:>3} %"));
    }

    fn clear(&self) {
        self.show(&format!("\r{:60}\r", ""));
    }

    fn show(&self, text: &str) {
        if self.is_shown {
            print!("{text}");
            let _ = std::io::stdout().flush();
        }
    }
}
