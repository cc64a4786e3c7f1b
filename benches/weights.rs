//! Smaller weights: a linear layer with weights in f32, f16, bf16, eight bits and blocks, in turns
//! on one adapter.
//!
//! ```text
//! cargo bench --bench weights [-- FILTER]
//! ```
//!
//! Shows the bytes of the weights and the ratio of the least times; below 1 is faster than f32.
//! Also the least cosine between rows of the outputs and those of f32, for gaussian weights and
//! inputs; blocks hold zeros, so they have none.

use std::time::{Duration, Instant};

use lapidary::operations::{BlockFormat, Weight};
use lapidary::{DType, Gpu, Options, Result};

/// Least and most rounds of one layer, and the time limit between them.
const ROUNDS: (usize, usize) = (9, 400);
const ENOUGH: Duration = Duration::from_secs(2);

/// Duration of one round. Short calls are repeated to fill it.
const ROUND: Duration = Duration::from_millis(4);

/// Rows of the input, outputs, inputs.
const LAYERS: [[usize; 3]; 6] = [
    [1, 1024, 1024],
    [8, 1024, 1024],
    [64, 1536, 384],
    [64, 384, 1536],
    [512, 1536, 384],
    [2048, 384, 1536],
];

fn main() -> Result<()> {
    let filter = std::env::args().skip(1).find(|arg| !arg.starts_with('-'));
    let filter = filter.unwrap_or_default();
    let gpu = Gpu::open(Options::from_env()?)?;
    println!("{}", gpu.caps().name);
    println!(
        "{:<18} {:<10} {:>10} {:>10} {:>8} {:>10}",
        "layer", "weights", "bytes", "µs", "of f32", "cosine"
    );
    for [m, n, k] in LAYERS {
        let name = format!("{m} x {n} x {k}");
        if name.contains(&filter) {
            measure(&gpu, &name, [m, n, k])?;
        }
    }
    Ok(())
}

fn measure(gpu: &Gpu, name: &str, [m, n, k]: [usize; 3]) -> Result<()> {
    let x = gpu.rand_normal(&[m, k], 0.0, 1.0, 1, DType::F32)?;
    let wide = gpu.rand_normal(&[n, k], 0.0, 0.02, 2, DType::F32)?;
    let mut all = vec![
        ("f32", Weight::new(wide.clone())?),
        ("f16", Weight::new(wide.cast(DType::F16)?)?),
        ("bf16", Weight::new(wide.cast(DType::Bf16)?)?),
        ("int8", wide.quantize(None)?.into()),
        ("int8:128", wide.quantize(Some(128))?.into()),
        ("int8:64", wide.quantize(Some(64))?.into()),
        ("int8:32", wide.quantize(Some(32))?.into()),
    ];
    for format in BlockFormat::ALL {
        if k.is_multiple_of(format.block_len()) {
            let row_bytes = k / format.block_len() * format.block_bytes();
            let bytes = gpu.zeros(&[n, row_bytes], DType::U8)?;
            all.push((format.name(), Weight::from_blocks(format, bytes)?));
        }
    }
    let run = |weight: &Weight| -> Result<Duration> {
        let start = Instant::now();
        let y = weight.linear(&x, None)?;
        gpu.finish()?;
        drop(y);
        Ok(start.elapsed())
    };
    let expected = all[0].1.linear(&x, None)?.to_vec::<f32>()?;
    let mut cosines = Vec::new();
    for (_, weights) in &all {
        cosines.push(least_cosine(
            &expected,
            &weights.linear(&x, None)?.to_vec::<f32>()?,
            n,
        ));
    }
    let runs = (ROUND.as_secs_f64() / run(&all[0].1)?.as_secs_f64()).ceil() as usize;
    let mut least = vec![Duration::MAX; all.len()];
    let start = Instant::now();
    for round in 0..ROUNDS.1 {
        if round >= ROUNDS.0 && start.elapsed() > ENOUGH {
            break;
        }
        for ((_, weights), least) in all.iter().zip(&mut least) {
            for _ in 0..runs.max(1) {
                *least = run(weights)?.min(*least);
            }
        }
    }
    for (((kind, weights), time), cosine) in all.iter().zip(&least).zip(cosines) {
        println!(
            "{name:<18} {kind:<10} {:>10} {:>10.1} {:>8.2} {cosine:>10.6}",
            (weights.tensors().iter())
                .map(|tensor| tensor.size_bytes())
                .sum::<u64>(),
            time.as_secs_f64() * 1e6,
            time.as_secs_f64() / least[0].as_secs_f64(),
        );
    }
    Ok(())
}

/// The least cosine between two rows of `n` elements.
fn least_cosine(a: &[f32], b: &[f32], n: usize) -> f64 {
    let dot = |a: &[f32], b: &[f32]| -> f64 {
        let terms = a.iter().zip(b).map(|(&a, &b)| f64::from(a) * f64::from(b));
        terms.sum()
    };
    (a.chunks(n).zip(b.chunks(n)))
        .map(|(a, b)| dot(a, b) / (dot(a, a) * dot(b, b)).sqrt())
        .fold(1.0, f64::min)
}
