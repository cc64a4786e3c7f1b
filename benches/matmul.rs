//! Matrix products beside OpenBLAS on two threads, in the same run. Rounds alternate, and the best
//! round of each counts. A product is one call and the wait for its result.
//!
//! ```text
//! cargo bench --bench matmul [-- FILTER]
//! ```
//!
//! `LAPIDARY_ADAPTER` chooses the adapter. Without OpenBLAS no shares are shown.

use std::time::{Duration, Instant};

use lapidary::{Gpu, Options, Result, Tensor};
use lapidary_harness::openblas::{OpenBlas, SETTLE, Sizes};

/// Threads of OpenBLAS.
const THREADS: i32 = 2;

/// Rounds of one product, and the time that each side repeats it in a round.
const ROUNDS: usize = 5;
const ROUND: Duration = Duration::from_millis(150);

/// A product: its name, the number of matrix pairs, their sizes, and the square to compare with.
struct Case {
    name: &'static str,
    pairs: usize,
    sizes: Sizes,
    square: Option<&'static str>,
}

const fn case(name: &'static str, pairs: usize, [m, n, k]: [usize; 3]) -> Case {
    let transposed = false;
    let sizes = Sizes {
        m,
        n,
        k,
        transposed,
    };
    Case {
        name,
        pairs,
        sizes,
        square: None,
    }
}

impl Case {
    const fn transposed(mut self) -> Self {
        self.sizes.transposed = true;
        self
    }

    const fn beside(mut self, square: &'static str) -> Self {
        self.square = Some(square);
        self
    }
}

const CASES: [Case; 32] = [
    case("128²", 1, [128; 3]),
    case("16 × 128²", 16, [128; 3]),
    case("256²", 1, [256; 3]),
    case("512²", 1, [512; 3]),
    case("1024²", 1, [1024; 3]),
    case("2048²", 1, [2048; 3]),
    case("512², B transposed", 1, [512; 3])
        .transposed()
        .beside("512²"),
    case("1024², B transposed", 1, [1024; 3])
        .transposed()
        .beside("1024²"),
    case("511²", 1, [511; 3]).beside("512²"),
    case("1000 × 1001 × 999", 1, [1000, 1001, 999]).beside("1024²"),
    case("tall, 4096 × 64 × 512", 1, [4096, 64, 512]).beside("512²"),
    case("thin, 64 × 4096 × 512", 1, [64, 4096, 512]).beside("512²"),
    case("long, 128 × 128 × 8192", 1, [128, 128, 8192]).beside("512²"),
    case("small, 32 × 32 × 16384", 1, [32, 32, 16384]),
    case("small, 16 × 64 × 4096", 1, [16, 64, 4096]),
    case("heads, 16 × 256 × 256 × 64", 16, [256, 256, 64])
        .transposed()
        .beside("256²"),
    case("heads, 16 × 256 × 64 × 256", 16, [256, 64, 256]).beside("256²"),
    case("1 × 1024²", 1, [1, 1024, 1024]),
    case("1 × 1024², B transposed", 1, [1, 1024, 1024]).transposed(),
    case("8 × 1024²", 1, [8, 1024, 1024]),
    case("8 × 1024², B transposed", 1, [8, 1024, 1024]).transposed(),
    case("1 × 4096²", 1, [1, 4096, 4096]),
    // Between these sizes the choice of tiles changes.
    case("2 × 1024²", 1, [2, 1024, 1024]),
    case("3 × 1024²", 1, [3, 1024, 1024]),
    case("4 × 1024²", 1, [4, 1024, 1024]),
    case("5 × 1024²", 1, [5, 1024, 1024]),
    case("6 × 1024²", 1, [6, 1024, 1024]),
    case("2 × 1024², B transposed", 1, [2, 1024, 1024]).transposed(),
    case("3 × 1024², B transposed", 1, [3, 1024, 1024]).transposed(),
    case("4 × 1024², B transposed", 1, [4, 1024, 1024]).transposed(),
    case("5 × 1024², B transposed", 1, [5, 1024, 1024]).transposed(),
    case("6 × 1024², B transposed", 1, [6, 1024, 1024]).transposed(),
];

/// Numbers that vary and are not 0, so no shortcut helps, and whose sums are exact.
fn numbers(len: usize, modulus: usize) -> Vec<f32> {
    (0..len).map(|i| (i % modulus) as f32 - 3.0).collect()
}

/// Best seconds of a product here and with OpenBLAS.
fn measure(gpu: &Gpu, blas: Option<&OpenBlas>, case: &Case) -> Result<(f64, f64)> {
    let Case { pairs, sizes, .. } = *case;
    let Sizes {
        m,
        n,
        k,
        transposed,
    } = sizes;
    let (left, right) = (numbers(pairs * m * k, 7), numbers(pairs * k * n, 11));
    let a = gpu.tensor(&left, &[pairs, m, k])?;
    let b = match transposed {
        true => gpu.tensor(&right, &[pairs, n, k])?.transpose(1, 2)?,
        false => gpu.tensor(&right, &[pairs, k, n])?,
    };
    let mut expected = vec![0.0; pairs * m * n];
    if let Some(blas) = blas {
        blas.products(sizes, &left, &right, &mut expected);
        let got = a.matmul(&b)?.to_vec::<f32>()?;
        assert!(got == expected, "{} is wrong", case.name);
    }
    let mut best = (f64::INFINITY, f64::INFINITY);
    for _ in 0..ROUNDS {
        if let Some(blas) = blas {
            let began = Instant::now();
            while began.elapsed() < ROUND {
                let start = Instant::now();
                blas.products(sizes, &left, &right, &mut expected);
                best.1 = best.1.min(start.elapsed().as_secs_f64());
            }
            std::thread::sleep(SETTLE);
        }
        let began = Instant::now();
        while began.elapsed() < ROUND {
            best.0 = best.0.min(here(gpu, &a, &b)?);
        }
    }
    Ok(best)
}

fn here(gpu: &Gpu, a: &Tensor, b: &Tensor) -> Result<f64> {
    gpu.finish()?;
    let start = Instant::now();
    let product = a.matmul(b)?;
    gpu.finish()?;
    let seconds = start.elapsed().as_secs_f64();
    drop(product);
    Ok(seconds)
}

fn main() -> Result<()> {
    let filter = std::env::args().skip(1).find(|arg| !arg.starts_with('-'));
    let gpu = Gpu::open(Options::from_env()?)?;
    let blas = OpenBlas::open(THREADS)
        .inspect_err(|error| println!("no OpenBLAS: {error}"))
        .ok();
    println!(
        "{}; GFLOP/s, and the share of OpenBLAS on {THREADS} threads",
        gpu.caps().name
    );
    let header = [
        "product (m × n × k)",
        "here",
        "µs",
        "OpenBLAS",
        "share",
        "of its square's",
    ];
    let [name, rest @ ..] = header;
    println!(
        "| {name:<28} | {} |",
        rest.map(|title| format!("{title:>8}")).join(" | ")
    );
    println!("| --- | ---: | ---: | ---: | ---: | ---: |");
    let mut shares: Vec<(&str, f64)> = Vec::new();
    for case in &CASES {
        let is_base = CASES.iter().any(|other| {
            other.square == Some(case.name)
                && filter.as_ref().is_some_and(|f| other.name.contains(f))
        });
        if filter
            .as_ref()
            .is_some_and(|filter| !case.name.contains(filter))
            && !is_base
        {
            continue;
        }
        let (seconds, of_blas) = measure(&gpu, blas.as_ref(), case)?;
        let Sizes { m, n, k, .. } = case.sizes;
        let work = 2.0 * (case.pairs * m * n * k) as f64 / 1e9;
        let share = of_blas / seconds;
        let base = case
            .square
            .and_then(|square| shares.iter().find(|(name, _)| *name == square));
        let percent = |share: f64| match share.is_finite() {
            true => format!("{:.0} %", share * 100.0),
            false => String::new(),
        };
        println!(
            "| {:<28} | {:>8.1} | {:>8.0} | {:>8.1} | {:>8} | {:>8} |",
            case.name,
            work / seconds,
            seconds * 1e6,
            work / of_blas,
            percent(share),
            base.map_or(String::new(), |(_, of_square)| percent(share / of_square)),
        );
        shares.push((case.name, share));
    }
    Ok(())
}
