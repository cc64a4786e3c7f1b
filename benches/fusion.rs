//! Elementwise work as fused kernels, as one kernel for each operation, and as plain loops on all
//! cores.
//!
//! ```text
//! cargo bench --bench fusion [-- PART OF A NAME]
//! ```
//!
//! Milliseconds, the best of some rounds that each wait for the device. Beside them are the time of
//! the loops and the fused kernel's share of their speed. Then come 1000 small operations in a
//! chain with a read at the end, in microseconds an operation.

use std::time::Instant;

use lapidary::{DType, Gpu, Options, Result, Tensor};

const ROUNDS: u32 = 12;

/// Operations in a chain.
const CHAIN: u32 = 1000;

type Work = fn(&[Tensor]) -> Result<Tensor>;

/// Maps one element of each input to an element of the output.
type Loop = fn(f32, f32, f32, f32) -> f32;

/// Appends the operation with this number to a chain.
type Step = fn(Tensor, u32) -> Result<Tensor>;

/// A name, millions of elements, the number of inputs, the work, and the loop.
const CASES: [(&str, usize, usize, Work, Loop); 5] = [
    ("add", 16, 2, |x| &x[0] + &x[1], |a, b, _, _| a + b),
    (
        "relu(a * b + c) * d",
        4,
        4,
        |x| ((&x[0] * &x[1])? + &x[2])?.relu()? * &x[3],
        |a, b, c, d| (a * b + c).max(0.0) * d,
    ),
    (
        "a * 2 - b + 1",
        4,
        2,
        |x| ((&x[0] * 2.0)? - &x[1])? + 1.0,
        |a, b, _, _| a * 2.0 - b + 1.0,
    ),
    ("gelu", 4, 1, |x| x[0].gelu(), |a, _, _, _| gelu(a)),
    (
        "gelu(a + b) * c",
        4,
        3,
        |x| (&x[0] + &x[1])?.gelu()? * &x[2],
        |a, b, c, _| gelu(a + b) * c,
    ),
];

/// Uses the polynomials of `shaders/functions.wgsl` for the error function.
fn gelu(x: f32) -> f32 {
    let u = x * std::f32::consts::FRAC_1_SQRT_2;
    let t = u.abs().min(4.0);
    let (z, mut r) = (t * t, 3.831_971_3e-4 - 1.728_534_7e-5 * t);
    r = r * z + (2.425_462_2e-2 - 3.883_964_4e-3 * t);
    for c in [-0.106_777_88, -0.634_846_7, -0.128_717_5] {
        r = r * t + c;
    }
    let large = 1.0 - (r * t - t).exp();
    let mut s = 4.991_194_2e-3 - 5.967_617e-4 * z;
    for c in [-2.676_813_5e-2, 0.112_819_92, -0.376_125_34, 0.128_379_17] {
        s = s * z + c;
    }
    let small = s * t + t;
    let erf = if t > 0.927_734_4 { large } else { small }.copysign(u);
    0.5 * x * (1.0 + erf)
}

/// The best of some rounds, in milliseconds.
fn best(mut round: impl FnMut() -> Result<()>) -> Result<f64> {
    let mut best = f64::INFINITY;
    for _ in 0..ROUNDS {
        let start = Instant::now();
        round()?;
        best = best.min(start.elapsed().as_secs_f64() * 1e3);
    }
    Ok(best)
}

fn on_the_host(inputs: &[Vec<f32>], out: &mut [f32], one: Loop) -> Result<f64> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let part = out.len().div_ceil(threads);
    let input = |which: usize| &inputs[which.min(inputs.len() - 1)];
    best(|| {
        std::thread::scope(|scope| {
            for (index, out) in out.chunks_mut(part).enumerate() {
                let [a, b, c, d] = [0, 1, 2, 3].map(|which| &input(which)[index * part..]);
                scope.spawn(move || {
                    let inputs = a.iter().zip(b).zip(c).zip(d);
                    for (out, (((a, b), c), d)) in out.iter_mut().zip(inputs) {
                        *out = one(*a, *b, *c, *d);
                    }
                });
            }
        });
        Ok(())
    })
}

fn is_wanted(name: &str) -> bool {
    let mut asked = std::env::args().skip(1).filter(|arg| !arg.starts_with('-'));
    asked.next().is_none_or(|asked| name.contains(&asked))
}

fn large(gpus: &[Gpu; 2]) -> Result<()> {
    println!(
        "{:<28} {:>9} {:>9} {:>9}  share",
        "", "fused", "apart", "loops"
    );
    for (name, millions, count, work, one) in CASES {
        if !is_wanted(name) {
            continue;
        }
        let len = millions << 20;
        let value = |seed: usize| move |i: usize| ((i * 31 + seed * 7) % 1000) as f32 / 250.0 - 2.0;
        let inputs: Vec<Vec<f32>> = (0..count)
            .map(|seed| (0..len).map(value(seed)).collect())
            .collect();
        let mut times = [0.0; 2];
        for (gpu, time) in gpus.iter().zip(&mut times) {
            let held = inputs.iter().map(|input| gpu.tensor(input, &[len]));
            let held = held.collect::<Result<Vec<_>>>()?;
            *time = best(|| {
                let made = work(&held)?;
                gpu.finish()?;
                drop(made);
                Ok(())
            })?;
        }
        let mut out = vec![0.0; len];
        let host = on_the_host(&inputs, &mut out, one)?;
        let [fused, apart] = times;
        let share = 100.0 * host / fused;
        let name = format!("{name}, {millions}M");
        println!("{name:<28} {fused:>9.2} {apart:>9.2} {host:>9.2}  {share:>4.0} %");
    }
    Ok(())
}

/// Microseconds an operation.
fn chain(gpu: &Gpu, step: impl Fn(Tensor, u32) -> Result<Tensor>) -> Result<f64> {
    let start = gpu.ones(&[64], DType::F32)?;
    let time = best(|| {
        let mut x = start.clone();
        for index in 0..CHAIN {
            x = step(x, index)?;
        }
        x.to_vec::<f32>().map(drop)
    })?;
    Ok(time * 1e3 / f64::from(CHAIN))
}

fn small(gpus: &[Gpu; 2]) -> Result<()> {
    println!(
        "{:<28} {:>9} {:>9}   (µs an operation)",
        "", "fused", "apart"
    );
    let steps: [(&str, Step); 3] = [
        ("chain: x + 1", |x, _| x + 1.0),
        ("chain: x * s + t by turns", |x, index| match index % 2 {
            0 => x * 0.5,
            _ => x + 1.0,
        }),
        ("chain: new numbers", |x, index| x + index as f32),
    ];
    for (name, step) in steps {
        if is_wanted(name) {
            let fused = chain(&gpus[0], step)?;
            let apart = chain(&gpus[1], step)?;
            println!("{name:<28} {fused:>9.2} {apart:>9.2}");
        }
    }
    Ok(())
}

fn main() -> Result<()> {
    let open = |fuse| {
        Gpu::open(Options {
            fuse: Some(fuse),
            ..Options::from_env().unwrap()
        })
    };
    let gpus = [open(true)?, open(false)?];
    println!("{} ({})", gpus[0].caps().name, gpus[0].caps().backend);
    large(&gpus)?;
    small(&gpus)
}
