//! The gain of tuning trials: each problem with the rules' choice and with that of trials, in turns
//! on one adapter.
//!
//! ```text
//! cargo bench --bench tuning [-- FILTER]
//! ```
//!
//! Times are wall-clock times. On Linux the ratio of CPU times is shown beside the ratio of the
//! least times. On a software adapter it shows the work independently of the machine's load.
//!
//! A process spends only a few seconds on trials. So each problem is tried in its own process, like
//! several starts of an app. This process reads the results from their file and tries nothing.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use lapidary::{DType, Gpu, Options, Result, Tensor, adapter::Tune};

/// Least and most rounds of one problem, and the time limit between them.
const ROUNDS: (usize, usize) = (9, 400);
const ENOUGH: Duration = Duration::from_secs(2);

/// Duration of one round. Short calls are repeated to fill it.
const ROUND: Duration = Duration::from_millis(8);

/// Set to the folder of the results, for a process that runs trials.
const FOLDER: &str = "LAPIDARY_BENCH_FOLDER";

/// The computation on two tensors.
type Call = fn(&Tensor, &Tensor) -> Result<Tensor>;

struct Case {
    name: &'static str,
    shapes: [&'static [usize]; 2],
    call: Call,
}

const fn case(name: &'static str, a: &'static [usize], b: &'static [usize], call: Call) -> Case {
    let shapes = [a, b];
    Case { name, shapes, call }
}

const MATMUL: Call = |a, b| a.matmul(b);
const BY_TRANSPOSED: Call = |a, b| a.matmul(&b.transpose(-1, -2)?);

const CASES: [Case; 24] = [
    case("matmul 128²", &[128, 128], &[128, 128], MATMUL),
    case("matmul 256²", &[256, 256], &[256, 256], MATMUL),
    case("matmul 512²", &[512, 512], &[512, 512], MATMUL),
    case("matmul 1024²", &[1024, 1024], &[1024, 1024], MATMUL),
    case("matmul 512² by Bᵀ", &[512, 512], &[512, 512], BY_TRANSPOSED),
    case("matmul 511²", &[511, 511], &[511, 511], MATMUL),
    case("matmul 500 × 301 × 199", &[500, 199], &[199, 301], MATMUL),
    case(
        "matmul 1000 × 1001 × 999",
        &[1000, 999],
        &[999, 1001],
        MATMUL,
    ),
    case(
        "matmul 16 of 128²",
        &[16, 128, 128],
        &[16, 128, 128],
        MATMUL,
    ),
    case(
        "matmul thin, 64 × 4096 × 512",
        &[64, 512],
        &[512, 4096],
        MATMUL,
    ),
    case(
        "matmul tall, 4096 × 64 × 512",
        &[4096, 512],
        &[512, 64],
        MATMUL,
    ),
    case(
        "matmul long, 128 × 128 × 8192",
        &[128, 8192],
        &[8192, 128],
        MATMUL,
    ),
    case(
        "matmul heads, 16 of 256² × 64 by Bᵀ",
        &[16, 256, 64],
        &[16, 256, 64],
        BY_TRANSPOSED,
    ),
    case("matmul 1 × 1024²", &[1, 1024], &[1024, 1024], MATMUL),
    case(
        "matmul 1 × 1024² by Bᵀ",
        &[1, 1024],
        &[1024, 1024],
        BY_TRANSPOSED,
    ),
    case("matmul 8 × 1024²", &[8, 1024], &[1024, 1024], MATMUL),
    case("sum 4M", &[4 << 20], &[1], |a, _| a.sum_all()),
    case("sum of 4096 rows of 1024", &[4096, 1024], &[1], |a, _| {
        a.sum(&[1])
    }),
    case(
        "sum of 1024 columns of 4096",
        &[4096, 1024],
        &[1],
        |a, _| a.sum(&[0]),
    ),
    case("max of 16 rows of 64k", &[16, 64 << 10], &[1], |a, _| {
        a.max(&[1])
    }),
    case("softmax, 4096 rows of 1024", &[4096, 1024], &[1], |a, _| {
        a.softmax(1)
    }),
    case("softmax, 64 rows of 4096", &[64, 4096], &[1], |a, _| {
        a.softmax(1)
    }),
    case("softmax, 16 rows of 64k", &[16, 64 << 10], &[1], |a, _| {
        a.softmax(1)
    }),
    case(
        "layer norm, 4096 rows of 1024",
        &[4096, 1024],
        &[1],
        |a, _| a.layer_norm(&[1024], None, None, 1e-5),
    ),
];

/// Creates the operands and solves the problem once.
fn start(gpu: &Gpu, case: &Case) -> Result<[Tensor; 2]> {
    let [a, b] = case
        .shapes
        .map(|shape| gpu.rand_uniform(shape, -1.0, 1.0, 7, DType::F32));
    let (a, b) = (a?, b?);
    (case.call)(&a, &b)?.force()?;
    gpu.finish()?;
    Ok([a, b])
}

/// The times of one side.
struct Side {
    /// Least seconds of one run.
    least: f64,
    /// CPU seconds of all runs.
    processor: Option<f64>,
}

impl Side {
    const NONE: Side = Side {
        least: f64::INFINITY,
        processor: Some(0.0),
    };

    /// Runs `times` times in sequence.
    fn run(&mut self, gpu: &Gpu, case: &Case, [a, b]: &[Tensor; 2], times: u32) -> Result<()> {
        let (start, before) = (Instant::now(), processor_seconds());
        for _ in 0..times {
            (case.call)(a, b)?;
        }
        gpu.finish()?;
        let seconds = start.elapsed().as_secs_f64() / f64::from(times);
        self.least = self.least.min(seconds);
        let taken = processor_seconds()
            .zip(before)
            .map(|(now, before)| now - before);
        self.processor = self.processor.zip(taken).map(|(sum, taken)| sum + taken);
        Ok(())
    }
}

/// CPU time of this process's threads so far, if the system reports it.
fn processor_seconds() -> Option<f64> {
    let threads = std::fs::read_dir("/proc/self/task").ok()?;
    let nanos = threads.flatten().map(|thread| {
        let times = std::fs::read_to_string(thread.path().join("schedstat")).ok()?;
        times.split_whitespace().next()?.parse::<f64>().ok()
    });
    nanos.sum::<Option<f64>>().map(|nanos| nanos / 1e9)
}

fn open(tune: Tune, folder: Option<&Path>) -> Result<Gpu> {
    let cache_folder = folder.map(Path::to_path_buf);
    let tune = Some(tune);
    Gpu::open(Options {
        tune,
        cache_folder,
        ..Options::default()
    })
}

/// The work of a process with trials: solves the problem and prints the time.
fn try_it(case: &Case, folder: &Path) -> Result<()> {
    let gpu = open(Tune::FirstUse, Some(folder))?;
    start(&gpu, case)?;
    let found = gpu.kernels().tuned();
    print!("{} trials, {:.2} s", found.trials, found.time.as_secs_f64());
    Ok(())
}

/// Runs trials in another process and returns its output.
fn have_tried(case: &Case, folder: &Path) -> String {
    let program = std::env::current_exe().expect("this program has a path");
    let child = Command::new(program)
        .arg(case.name)
        .env(FOLDER, folder)
        .output();
    let child = child.expect("it can be run again");
    String::from_utf8_lossy(&child.stdout).into_owned()
}

fn main() -> Result<()> {
    let filter = std::env::args().skip(1).find(|arg| !arg.starts_with('-'));
    if let Some(folder) = std::env::var_os(FOLDER) {
        let case = CASES
            .iter()
            .find(|case| Some(case.name) == filter.as_deref());
        return case.map_or(Ok(()), |case| try_it(case, Path::new(&folder)));
    }
    let folder = std::env::temp_dir().join(format!("lapidary-bench-{}", std::process::id()));
    let asked = |case: &&Case| {
        filter
            .as_ref()
            .is_none_or(|filter| case.name.contains(filter))
    };
    let cases: Vec<(&Case, String)> = (CASES.iter().filter(asked))
        .map(|case| (case, have_tried(case, &folder)))
        .collect();
    let by_rule = open(Tune::Off, None)?;
    let by_trial = open(Tune::FirstUse, Some(&folder))?;
    println!("{}; the least time of a run", by_rule.caps().name);
    println!(
        "| problem | by rule, µs | by trial, µs | ratio | of processor time | to find it out |"
    );
    println!("| --- | ---: | ---: | ---: | ---: | --- |");
    for (case, tried) in cases {
        let operands = [start(&by_rule, case)?, start(&by_trial, case)?];
        let mut once = Side::NONE;
        once.run(&by_rule, case, &operands[0], 1)?;
        let times = (ROUND.as_secs_f64() / once.least).clamp(1.0, 64.0) as u32;
        let (mut rule, mut trial) = (Side::NONE, Side::NONE);
        let began = Instant::now();
        for round in 0..ROUNDS.1 {
            if round >= ROUNDS.0 && began.elapsed() > ENOUGH {
                break;
            }
            rule.run(&by_rule, case, &operands[0], times)?;
            trial.run(&by_trial, case, &operands[1], times)?;
        }
        let [rule_us, trial_us] = [&rule, &trial].map(|side| side.least * 1e6);
        let ratio = trial.least / rule.least;
        let of_processor = (trial.processor.zip(rule.processor))
            .map_or(String::new(), |(trial, rule)| {
                format!("{:.2}", trial / rule)
            });
        let name = case.name;
        println!(
            "| {name} | {rule_us:.0} | {trial_us:.0} | {ratio:.2} | {of_processor} | {tried} |"
        );
    }
    println!();
    for (problem, variant) in by_trial.kernels().tuned().best {
        println!("{problem} = {variant}");
    }
    println!(
        "trials of this process: {}",
        by_trial.kernels().tuned().trials
    );
    let _ = std::fs::remove_dir_all(&folder);
    Ok(())
}
