//! Weights larger than the memory, on a simulated graphics card behind PCIe.
//!
//! ```text
//! cargo bench --bench oversubscribe
//! ```
//!
//! The work is that of `examples/oversubscribe`: `x = tanh(x · W)` through 32 weights of 16 MiB,
//! several times. The weights have no source, so they are evicted to the host's memory. The
//! reference is the time of the kernels, and of the bytes that travelled at the rate of the link.
//! Below 1 the transfers would be hidden behind the kernels, which one queue cannot do.
//!
//! Then the same with weights in a file, as fast as a good disk. The reference is the time of the
//! kernels, and of the restored bytes at the rate of the file. Below 1 reads of the file are hidden
//! behind the rest. Without memory of the host nothing is read ahead of need: that shows what reads
//! ahead are worth.
//!
//! At last an adapter runs with a heap in the host's memory that is full: [`below_the_heap`].

mod below_the_heap;
#[path = "../simulated/card.rs"]
mod simulated_card;

use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use lapidary::sim::Speed;
use lapidary::{Budget, DType, Gpu, Options, Result, Source, Tensor};

const WEIGHTS: usize = 32;
/// Rows and columns of a weight.
const SIZE: usize = 2048;
const ALL_BYTES: u64 = (WEIGHTS * SIZE * SIZE * 4) as u64;
/// Rows of the input.
const ROWS: usize = 16;
/// Passes through all weights, after one that does not count.
const PASSES: u32 = 4;
const RUNS: usize = 3;
/// The weights ÷ the budget.
const FACTORS: [u64; 2] = [2, 4];
/// Bytes a second that the file gives.
const FILE_BYTES_PER_S: u64 = 3_000_000_000;

/// Where the weights are kept.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kept {
    Memory,
    File,
    /// In a file, and the host has no memory for what could be read ahead.
    FileAlone,
}

/// The means of several passes.
struct Pass {
    time: Duration,
    /// The time for which the device worked.
    busy: Duration,
    evicted_bytes: u64,
    restored_bytes: u64,
    submissions: u64,
    /// For memory, as `MemoryStats::waits` counts.
    waits: u64,
}

fn main() -> Result<()> {
    let speed = Speed::default();
    let free = passes(speed, None, Kept::Memory)?;
    println!(
        "{WEIGHTS} weights of 16 MiB; the kernels of a pass take {:.2} ms",
        ms(free.busy)
    );
    for kept in [Kept::Memory, Kept::File, Kept::FileAlone] {
        match kept {
            Kept::Memory => println!("weights in memory, bytes at the rate of the link"),
            Kept::File => println!(
                "weights in a file of {} GB/s, bytes at its rate",
                FILE_BYTES_PER_S / 1_000_000_000
            ),
            Kept::FileAlone => println!("the same, and nothing is read ahead of need"),
        }
        for factor in FACTORS {
            tell(speed, &free, factor, kept)?;
        }
    }
    below_the_heap::tell()
}

fn tell(speed: Speed, free: &Pass, factor: u64, kept: Kept) -> Result<()> {
    let runs = (0..RUNS).map(|_| passes(speed, Some(ALL_BYTES / factor), kept));
    let runs: Vec<Pass> = runs.collect::<Result<_>>()?;
    let ratios = runs.iter().map(|pass| {
        let seconds = |bytes: u64, bytes_per_s: u64| bytes as f64 / bytes_per_s as f64;
        let travel_s = match kept {
            Kept::Memory => {
                seconds(pass.evicted_bytes, speed.download_bytes_per_s)
                    + seconds(pass.restored_bytes, speed.upload_bytes_per_s)
            }
            Kept::File | Kept::FileAlone => seconds(pass.restored_bytes, FILE_BYTES_PER_S),
        };
        pass.time.as_secs_f64() / (free.busy.as_secs_f64() + travel_s)
    });
    let ratios: Vec<f64> = ratios.collect();
    let pass = &runs[0];
    println!(
        "  at {factor} x the budget: {:.2} ms, of which the device works {:.2} ms; {:.2} x \
         (kernels and bytes), {:.2}-{:.2}; {} submissions, {} waits; evicted {:.1} MB, restored \
         {:.1} MB",
        ms(runs.iter().map(|pass| pass.time).sum::<Duration>() / RUNS as u32),
        ms(pass.busy),
        ratios.iter().sum::<f64>() / RUNS as f64,
        ratios.iter().copied().fold(f64::INFINITY, f64::min),
        ratios.iter().copied().fold(0.0, f64::max),
        pass.submissions,
        pass.waits,
        pass.evicted_bytes as f64 / 1e6,
        pass.restored_bytes as f64 / 1e6,
    );
    Ok(())
}

/// A thread may sleep longer than it wants to, so it does not sleep to the end.
const SLEPT_TOO_LONG: Duration = Duration::from_micros(200);

/// A file that gives zeros at its rate, to one reader at a time.
fn file() -> Source {
    let busy_until = Mutex::new(Instant::now());
    Source::reader(move |_, bytes| {
        let taken = Duration::from_secs_f64(bytes.len() as f64 / FILE_BYTES_PER_S as f64);
        let until = {
            let mut busy_until = busy_until.lock().expect("no reader panics");
            *busy_until = (*busy_until).max(Instant::now()) + taken;
            *busy_until
        };
        bytes.fill(0);
        let left = until.saturating_duration_since(Instant::now());
        thread::sleep(left.saturating_sub(SLEPT_TOO_LONG));
        while Instant::now() < until {
            std::hint::spin_loop();
        }
        Ok(())
    })
}

/// Passes through all weights on a card of its own.
fn passes(speed: Speed, budget_bytes: Option<u64>, kept: Kept) -> Result<Pass> {
    let options = Options {
        budget: budget_bytes.map(|bytes| Budget {
            host_bytes: (kept == Kept::FileAlone).then_some(0),
            ..Budget::device(bytes)
        }),
        ..Options::from_env().unwrap()
    };
    let (gpu, sim) = simulated_card::open(speed, options)?;
    let (numbers, file) = (vec![0.0_f32; SIZE * SIZE], file());
    let weights = (0..WEIGHTS).map(|_| match kept {
        Kept::Memory => gpu.tensor(&numbers, &[SIZE, SIZE]),
        Kept::File | Kept::FileAlone => gpu.backed(file.clone(), &[SIZE, SIZE], DType::F32),
    });
    let weights: Vec<Tensor> = weights.collect::<Result<_>>()?;
    pass(&gpu, &weights)?;
    let (before, counted) = (gpu.memory().stats(), sim.counters());
    let begun = Instant::now();
    for _ in 0..PASSES {
        pass(&gpu, &weights)?;
    }
    let time = begun.elapsed() / PASSES;
    let after = gpu.memory().stats();
    let a_pass = |after: u64, before: u64| (after - before) / u64::from(PASSES);
    Ok(Pass {
        time,
        busy: Duration::from_nanos(a_pass(sim.counters().busy_ns, counted.busy_ns)),
        evicted_bytes: a_pass(after.evicted_bytes, before.evicted_bytes),
        restored_bytes: a_pass(after.restored_bytes, before.restored_bytes),
        submissions: a_pass(after.submissions, before.submissions),
        waits: a_pass(after.waits().total().times, before.waits().total().times),
    })
}

/// A pass, until the device has done it.
fn pass(gpu: &Gpu, weights: &[Tensor]) -> Result<()> {
    let mut x = gpu.zeros(&[ROWS, SIZE], DType::F32)?;
    for weight in weights {
        x = x.matmul(weight)?.tanh()?;
    }
    drop(x);
    gpu.finish()
}

fn ms(time: Duration) -> f64 {
    1e3 * time.as_secs_f64()
}
