//! What the host pays: a tensor created and dropped, a small operation recorded and encoded.
//!
//! On the simulated device, so that the driver's own time is not in it; best of 20 rounds.

use std::time::Instant;

use lapidary::sim::{SimMode, SimOptions};
use lapidary::{DType, Gpu};

/// Nanoseconds of one of `count` calls, best of 20 rounds.
fn best_ns(count: u32, mut round: impl FnMut()) -> f64 {
    let mut best = f64::INFINITY;
    for _ in 0..20 {
        let start = Instant::now();
        round();
        best = best.min(start.elapsed().as_nanos() as f64 / f64::from(count));
    }
    best
}

fn main() -> lapidary::Result<()> {
    let options = SimOptions {
        mode: SimMode::SizesOnly,
        ..SimOptions::default()
    };
    let (gpu, _sim) = Gpu::simulated(options)?;
    let count = 100_000;
    let ns = best_ns(count, || {
        for _ in 0..count {
            let tensor = gpu.zeros(&[256], DType::F32);
            assert!(tensor.is_ok());
        }
    });
    println!("tensor created, placed, dropped: {ns:.0} ns");
    Ok(())
}
