//! The cost on the host: creating and dropping a tensor, recording and encoding a small operation.
//!
//! ```text
//! cargo bench --bench engine [-- sim] [PART OF A NAME]
//! ```
//!
//! First on the simulated device (sizes only, so the driver does little), then on the adapter,
//! except with `sim`. Nanoseconds, best of 20 rounds of 255 calls.
//!
//! To count instructions, run the bench's binary under `valgrind --tool=cachegrind`, once with
//! `sim` and a name and once with `sim` and `nothing`. The difference divided by 20 × 255 is the
//! count of one call. `--tool=callgrind` shows the part below `SimDriver`.

use std::time::Instant;

use lapidary::shares::ShareOptions;
use lapidary::sim::{SimMode, SimOptions};
use lapidary::{DType, Gpu, Options, Result, Tensor};

const ROUNDS: u32 = 20;
/// One less than the number of commands that makes the engine flush.
const CALLS: u32 = 255;

/// Prints the nanoseconds of one call in the best round. Waiting for the device is not counted.
fn report(gpu: &Gpu, what: &str, mut round: impl FnMut() -> Result<()>) -> Result<()> {
    let mut names = std::env::args().skip(1);
    if names.any(|name| !name.starts_with('-') && name != "sim" && !what.contains(&name)) {
        return Ok(());
    }
    let mut best = f64::INFINITY;
    for _ in 0..ROUNDS {
        let start = Instant::now();
        round()?;
        best = best.min(start.elapsed().as_nanos() as f64 / f64::from(CALLS));
        gpu.finish()?;
    }
    println!("  {what:<58} {best:>7.0} ns");
    Ok(())
}

/// Creates tensors, and keeps them until all are placed, so each has its own block.
fn create(gpu: &Gpu, kept: &mut Vec<Tensor>) -> Result<()> {
    for _ in 0..CALLS {
        kept.push(gpu.zeros(&[64], DType::F32)?);
    }
    gpu.flush()?;
    kept.clear();
    Ok(())
}

fn measure(gpu: &Gpu) -> Result<()> {
    println!("{} ({})", gpu.caps().name, gpu.caps().backend);
    let (a, b) = (gpu.ones(&[64], DType::F32)?, gpu.ones(&[64], DType::F32)?);
    (&a + &b)?.force()?;
    let mut kept = Vec::with_capacity(CALLS as usize);
    report(gpu, "tensor created, placed, dropped", || {
        create(gpu, &mut kept)
    })?;
    report(gpu, "a + b recorded, result dropped", || {
        for _ in 0..CALLS {
            (&a + &b)?;
        }
        Ok(())
    })?;
    let w = gpu.ones(&[64], DType::F32)?.requires_grad()?;
    report(gpu, "a * b recorded, result dropped", || {
        for _ in 0..CALLS {
            (&a * &b)?;
        }
        Ok(())
    })?;
    report(
        gpu,
        "a * w of a parameter, for gradients, result dropped",
        || {
            for _ in 0..CALLS {
                (&a * &w)?;
            }
            Ok(())
        },
    )?;
    report(gpu, "a + b recorded, placed, encoded and submitted", || {
        for _ in 0..CALLS {
            (&a + &b)?;
        }
        gpu.flush()
    })?;
    report(
        gpu,
        "x = x + 1, a chain in place, encoded and submitted",
        || {
            let mut x = a.clone();
            for _ in 0..CALLS {
                x = (x + 1.0)?;
            }
            gpu.flush()
        },
    )?;
    gpu.memory().keep_history(1 << 16);
    report(gpu, "with a history: created, placed, dropped", || {
        create(gpu, &mut kept)
    })?;
    report(gpu, "with a history: a + b encoded and submitted", || {
        for _ in 0..CALLS {
            (&a + &b)?;
        }
        gpu.flush()
    })?;
    gpu.memory().keep_history(0);
    let only = gpu.share("only", ShareOptions::guaranteed(0))?;
    report(gpu, "in the only share: created, placed, dropped", || {
        create(&only, &mut kept)
    })
}

fn main() -> Result<()> {
    let (gpu, _sim) = Gpu::simulated(SimOptions {
        mode: SimMode::SizesOnly,
        ..SimOptions::default()
    })?;
    measure(&gpu)?;
    if !std::env::args().any(|arg| arg == "sim") {
        measure(&Gpu::open(Options::from_env()?)?)?;
    }
    Ok(())
}
