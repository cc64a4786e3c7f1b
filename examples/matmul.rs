//! The speed of a product of two square matrices here, and a check of the result.
//!
//! ```text
//! cargo run --release --example matmul -- [SIZE] [f32|f16|bf16] [RUNS]
//! ```
//!
//! The defaults are 1024, f32 and 10. `LAPIDARY_ADAPTER=cpu` chooses another adapter.

use std::error::Error;
use std::time::{Duration, Instant};

use lapidary::{DType, Gpu, Options, Tensor};

const USAGE: &str = "usage: matmul [SIZE] [f32|f16|bf16] [RUNS]";

/// Number of entries that the host computes again.
const CHECKED: usize = 64;

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |index: usize, otherwise| match args.get(index).map(|arg| arg.parse::<usize>()) {
        None => Ok(otherwise),
        Some(Ok(number)) if number > 0 => Ok(number),
        Some(_) => Err(USAGE),
    };
    let (size, runs) = (number(0, 1024)?, number(2, 10)?);
    let dtype = match args.get(1).map(String::as_str) {
        None | Some("f32") => DType::F32,
        Some("f16") => DType::F16,
        Some("bf16") => DType::Bf16,
        Some(_) => return Err(USAGE.into()),
    };

    let gpu = Gpu::open(Options::from_env()?)?;
    let caps = gpu.caps();
    println!("{} ({}, {:?})", caps.name, caps.backend, caps.kind);
    let a = gpu.rand_uniform(&[size, size], -1.0, 1.0, 1, dtype)?;
    let b = gpu.rand_uniform(&[size, size], -1.0, 1.0, 2, dtype)?;

    // The first product compiles the kernel and places the matrices, so it does not count.
    let mut product = a.matmul(&b)?;
    gpu.finish()?;
    let mut best = Duration::MAX;
    for _ in 0..runs {
        let start = Instant::now();
        product = a.matmul(&b)?;
        gpu.finish()?;
        best = best.min(start.elapsed());
    }
    let gflop = 2.0 * (size as f64).powi(3) / 1e9;
    println!(
        "{size} x {size} {dtype}: {:.3} ms, {:.1} GFLOP/s, the best of {}",
        1e3 * best.as_secs_f64(),
        gflop / best.as_secs_f64(),
        runs,
    );
    check(&a, &b, &product)
}

/// Computes some entries again, on the host and in f64.
fn check(a: &Tensor, b: &Tensor, product: &Tensor) -> Result<(), Box<dyn Error>> {
    let size = a.shape()[0];
    // Rounding errors grow with the terms of a sum and with the sum itself. The narrow types also
    // round the result, to 11 bits and to 8.
    let allowed = match a.dtype() {
        DType::F16 => 1e-3 * (size as f64).sqrt(),
        DType::Bf16 => 8e-3 * (size as f64).sqrt(),
        _ => 1e-7 * size as f64 + 1e-6,
    };
    let mut random = fastrand::Rng::with_seed(1);
    let mut worst = 0.0_f64;
    for _ in 0..CHECKED {
        let (row, column) = (random.usize(..size), random.usize(..size));
        let terms = values(&a.narrow(0, row, 1)?)?;
        let terms = terms.into_iter().zip(values(&b.narrow(1, column, 1)?)?);
        let expected: f64 = terms.map(|(a, b)| f64::from(a) * f64::from(b)).sum();
        let got = values(&product.narrow(0, row, 1)?.narrow(1, column, 1)?)?[0];
        worst = worst.max((f64::from(got) - expected).abs());
    }
    println!("{CHECKED} entries differ from the host's by at most {worst:.1e}");
    match worst <= allowed {
        true => Ok(()),
        false => Err(format!("the product is wrong: {worst:e} is more than {allowed:e}").into()),
    }
}

/// The values of a view, as f32. The device makes it contiguous, so that only these values travel.
fn values(view: &Tensor) -> lapidary::Result<Vec<f32>> {
    view.contiguous()?.cast(DType::F32)?.to_vec()
}
