//! Matrix products: billions of floating-point operations a second, best of several rounds, and
//! how many times the naive variant that is. The naive variant is what integers go through.
//!
//! `LAPIDARY_ADAPTER` picks the adapter, as everywhere.

use std::time::Instant;

use lapidary::{DType, Gpu, Options, Result, Tensor};

/// Rounds of one product; the first compiles.
const ROUNDS: usize = 12;

/// Multiplications up to which the naive variant is worth waiting for.
const NAIVE_WORK: usize = 512 * 512 * 512;

/// m, n, k, and whether B is transposed.
const PRODUCTS: [(usize, usize, usize, bool); 14] = [
    (64, 64, 64, false),
    (128, 128, 128, false),
    (256, 256, 256, false),
    (512, 512, 512, false),
    (512, 512, 512, true),
    (511, 511, 511, false),
    (1024, 1024, 1024, false),
    (1024, 1024, 1024, true),
    (2048, 2048, 2048, false),
    (1, 2048, 2048, false),
    (1, 2048, 2048, true),
    (8, 2048, 2048, false),
    (8, 2048, 2048, true),
    (2048, 1, 2048, false),
];

/// Elements that are neither 0 nor constant, so that no shortcut helps.
fn operand(gpu: &Gpu, dtype: DType, rows: usize, columns: usize) -> Result<Tensor> {
    let values = (0..rows * columns).map(|i| i % 17);
    match dtype {
        DType::I32 => gpu.tensor(
            &values.map(|v| v as i32).collect::<Vec<_>>(),
            &[rows, columns],
        ),
        _ => gpu.tensor(
            &values.map(|v| v as f32).collect::<Vec<_>>(),
            &[rows, columns],
        ),
    }
}

/// GFLOP/s of the best of several rounds.
fn rate(gpu: &Gpu, dtype: DType, product: (usize, usize, usize, bool)) -> Result<f64> {
    let (m, n, k, is_transposed) = product;
    let a = operand(gpu, dtype, m, k)?;
    let b = match is_transposed {
        true => operand(gpu, dtype, n, k)?.t()?,
        false => operand(gpu, dtype, k, n)?,
    };
    let mut best_seconds = f64::INFINITY;
    for _ in 0..ROUNDS {
        gpu.finish()?;
        let start = Instant::now();
        let c = a.matmul(&b)?;
        gpu.finish()?;
        best_seconds = best_seconds.min(start.elapsed().as_secs_f64());
        drop(c);
    }
    Ok(2.0 * (m * n * k) as f64 / best_seconds / 1e9)
}

fn main() -> Result<()> {
    let gpu = Gpu::open(Options::default())?;
    println!("{}", gpu.caps().name);
    for product in PRODUCTS {
        let (m, n, k, is_transposed) = product;
        let fast = rate(&gpu, DType::F32, product)?;
        let transposed = if is_transposed { "B^T" } else { "B" };
        print!("{m:>5} x {n:>5} x {k:>5} {transposed:<3} {fast:>9.1} GFLOP/s");
        if m * n * k <= NAIVE_WORK {
            let naive = rate(&gpu, DType::I32, product)?;
            print!(", {:.1} times naive", fast / naive);
        }
        println!();
    }
    Ok(())
}
