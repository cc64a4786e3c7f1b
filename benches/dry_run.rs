//! How long dry runs of a transformer's training step take, and the search for its batch.
//!
//! ```text
//! cargo bench --bench dry_run
//! ```
//!
//! The network has 12 layers, 768 wide; a step has its gradients and updates in place. Nothing of
//! it is on the device: the dry run makes the network too.

#[path = "../tests/dry_run/transformer.rs"]
mod transformer;

use std::time::Instant;

use lapidary::{Budget, Gpu, Options, Result};
use transformer::Transformer;

const LAYERS: usize = 12;
const WIDTH: usize = 768;
const TOKENS: usize = 128;
const BUDGETS: [u64; 2] = [4 << 30, 8 << 30];

fn step(gpu: &Gpu, batch: usize) -> Result<()> {
    let net = Transformer::new(gpu, LAYERS, WIDTH)?;
    net.step(gpu, batch, TOKENS).map(drop)
}

fn main() -> Result<()> {
    let gpu = Gpu::open(Options::from_env()?)?;
    println!("{} ({})", gpu.caps().name, gpu.caps().backend);
    for batch in [1, 8, 64] {
        let start = Instant::now();
        let found = gpu.dry_run(|gpu| step(gpu, batch))?;
        let time = start.elapsed();
        println!("  batch {batch}: {time:.1?}, {} kernels", found.launches);
    }
    for budget_bytes in BUDGETS {
        gpu.memory().set_budget(Budget::device(budget_bytes))?;
        let start = Instant::now();
        let fit = gpu.fit_batch(1..=256, step)?;
        let time = start.elapsed();
        println!(
            "  {} GiB: batch {} of 1..=256, found in {time:.1?}",
            budget_bytes >> 30,
            fit.batch
        );
        println!("{}", fit.report);
        let start = Instant::now();
        let fit = gpu.fit_batch_within(1..=256, 1.2, step)?;
        let (time, slowdown) = (start.elapsed(), fit.report.slowdown());
        println!(
            "  within 1.2: batch {} ({slowdown:.2}), found in {time:.1?}",
            fit.batch
        );
    }
    Ok(())
}
