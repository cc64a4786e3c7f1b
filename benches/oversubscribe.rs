//! Weights larger than the memory, on a simulated graphics card behind PCIe.
//!
//! ```text
//! cargo bench --bench oversubscribe --features sim
//! ```
//!
//! The work is that of `examples/oversubscribe`: `x = tanh(x · W)` through 32 weights of 4 MiB,
//! several times. The weights have no source, so they are evicted to the host's memory. The
//! reference is the time of the kernels, and of the bytes that travelled at the rate of the link.
//! Below 1 the transfers would be hidden behind the kernels, which one queue cannot do.

#[path = "simulated/card.rs"]
mod simulated_card;

use std::time::{Duration, Instant};

use lapidary::sim::Speed;
use lapidary::{Budget, DType, Gpu, Options, Result, Tensor};

const WEIGHTS: usize = 32;
/// Rows and columns of a weight.
const SIZE: usize = 1024;
const ALL_BYTES: u64 = (WEIGHTS * SIZE * SIZE * 4) as u64;
/// Rows of the input.
const ROWS: usize = 16;
/// Passes through all weights, after one that does not count.
const PASSES: u32 = 4;
const RUNS: usize = 3;
/// The weights ÷ the budget.
const FACTORS: [u64; 2] = [2, 4];

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
    let free = passes(speed, None)?;
    println!(
        "{WEIGHTS} weights of 4 MiB; the kernels of a pass take {:.2} ms",
        ms(free.busy)
    );
    for factor in FACTORS {
        let runs = (0..RUNS).map(|_| passes(speed, Some(ALL_BYTES / factor)));
        let runs: Vec<Pass> = runs.collect::<Result<_>>()?;
        let ratios = runs.iter().map(|pass| {
            let travel_s = pass.evicted_bytes as f64 / speed.download_bytes_per_s as f64
                + pass.restored_bytes as f64 / speed.upload_bytes_per_s as f64;
            pass.time.as_secs_f64() / (free.busy.as_secs_f64() + travel_s)
        });
        let ratios: Vec<f64> = ratios.collect();
        let pass = &runs[0];
        println!(
            "  at {factor} x the budget: {:.2} ms, of which the device works {:.2} ms; {:.2} x \
             (kernels, and bytes at the rate of the link), {:.2}-{:.2}; {} submissions, {} waits; evicted {:.1} MB, restored {:.1} MB",
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
    }
    Ok(())
}

/// Passes through all weights on a card of its own.
fn passes(speed: Speed, budget_bytes: Option<u64>) -> Result<Pass> {
    let options = Options {
        budget: budget_bytes.map(Budget::device),
        ..Options::default()
    };
    let (gpu, sim) = simulated_card::open(speed, options)?;
    let numbers = vec![0.0_f32; SIZE * SIZE];
    let weights = (0..WEIGHTS).map(|_| gpu.tensor(&numbers, &[SIZE, SIZE]));
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
