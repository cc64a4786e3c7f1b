//! What the host pays: a tensor created and dropped, a small operation recorded and encoded.
//!
//! ```text
//! cargo bench --features sim --bench engine [-- sim]
//! ```
//!
//! First on the simulated device (sizes only, so that the driver does next to nothing), then on
//! the adapter, unless `sim` is asked for. Nanoseconds, best of 20 rounds. Under cachegrind, with
//! `sim`, the instructions of a round can be had: each line says how many calls a round is.

use std::time::Instant;

use lapidary::sim::{SimMode, SimOptions};
use lapidary::{DType, Gpu, Options, Result};

const ROUNDS: u32 = 20;
const BATCH: u32 = 256;

/// Nanoseconds of one of `calls` calls in the best round; `settle` is not counted.
fn best_ns(
    calls: u32,
    mut round: impl FnMut() -> Result<()>,
    mut settle: impl FnMut() -> Result<()>,
) -> Result<f64> {
    let mut best = f64::INFINITY;
    for _ in 0..ROUNDS {
        let start = Instant::now();
        round()?;
        best = best.min(start.elapsed().as_nanos() as f64 / f64::from(calls));
        settle()?;
    }
    Ok(best)
}

fn measure(gpu: &Gpu) -> Result<()> {
    println!("{} ({})", gpu.caps().name, gpu.caps().backend);
    let report = |what: &str, calls: u32, ns: f64| {
        println!("  {what:<58} {ns:>7.0} ns   ({calls} calls a round)");
    };
    // Kept until all are placed, so that each has a block of its own.
    let mut kept = Vec::with_capacity(BATCH as usize);
    let ns = best_ns(
        BATCH,
        || {
            for _ in 0..BATCH - 1 {
                kept.push(gpu.zeros(&[64], DType::F32)?);
            }
            gpu.flush()?;
            kept.clear();
            Ok(())
        },
        || gpu.finish(),
    )?;
    report("tensor created, cleared, placed, dropped", BATCH, ns);
    let (a, b) = (
        gpu.full(&[64], 1.0, DType::F32)?,
        gpu.full(&[64], 1.0, DType::F32)?,
    );
    let ns = best_ns(
        BATCH,
        || {
            for _ in 0..BATCH - 1 {
                (&a + &b)?;
            }
            Ok(())
        },
        || gpu.finish(),
    )?;
    report("a + b recorded, result dropped", BATCH, ns);
    let ns = best_ns(
        BATCH,
        || {
            for _ in 0..BATCH - 1 {
                (&a + &b)?;
            }
            gpu.flush()
        },
        || gpu.finish(),
    )?;
    report("a + b recorded, placed, encoded and submitted", BATCH, ns);
    let ns = best_ns(
        BATCH,
        || {
            let mut x = a.clone();
            for _ in 0..BATCH - 1 {
                x = (x + 1.0)?;
            }
            gpu.flush()
        },
        || gpu.finish(),
    )?;
    report(
        "x = x + 1, a chain in place, encoded and submitted",
        BATCH,
        ns,
    );
    Ok(())
}

fn main() -> Result<()> {
    let (gpu, _sim) = Gpu::simulated(SimOptions {
        mode: SimMode::SizesOnly,
        ..SimOptions::default()
    })?;
    measure(&gpu)?;
    if !std::env::args().any(|arg| arg == "sim") {
        measure(&Gpu::open(Options::default())?)?;
    }
    Ok(())
}
