//! A graphics card: lapidary's figures beside those of plain wgpu in the same run, and beside those
//! that the maker prints.
//!
//! ```text
//! cargo bench --bench card [-- [--small] [PART OF A NAME]…]
//! ```
//!
//! With parts of names only such cases run, and no tiny operations.
//!
//! `--small` uses sizes that are fast on a software adapter, to test that everything works; its
//! figures mean nothing. Rounds of limits and cases alternate, and the best round counts. Each
//! round of an operation runs it several times before it waits. A wrong product ends the program.
//! The bench `transfers` measures transfers, with `upload_with` beside a hand-written mapped
//! buffer.

mod limits;

use std::time::Instant;

use lapidary::{DType, Gpu, Options, Tensor};
use limits::{Limit, Probe};

type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;

const ROUNDS: usize = 8;

/// Operations in a program of tiny steps.
const SMALL_OPS: usize = 10_000;

struct Case<'a> {
    name: String,
    /// Operations or bytes of a call.
    amount: f64,
    limit: Limit,
    call: Box<dyn Fn() -> lapidary::Result<Tensor> + 'a>,
    calls: usize,
    best_seconds: f64,
}

fn main() -> Result {
    let is_given = |option| std::env::args().any(|arg| arg == option);
    // `cargo test --benches` only checks that the bench starts.
    if is_given("--test") {
        return Ok(());
    }
    let is_small = is_given("--small");
    let gpu = Gpu::open(Options::from_env()?)?;
    let caps = gpu.caps();
    println!("{}, {}, {}\n", caps.name, caps.backend, caps.driver);
    let probe = pollster::block_on(Probe::open([&caps.name, &caps.backend], is_small))?;
    let mut cases = products(&gpu, if is_small { 256 } else { 4096 })?;
    cases.extend(elementwise(&gpu, if is_small { 1 << 18 } else { 1 << 26 })?);
    cases.extend(rows(&gpu, if is_small { 64 } else { 16_384 }, 4096)?);
    let parts: Vec<String> = (std::env::args().skip(1))
        .filter(|arg| !arg.starts_with("--"))
        .collect();
    cases.retain(|case| parts.is_empty() || parts.iter().any(|part| case.name.contains(part)));
    let (mut flops, mut bytes) = (0.0_f64, 0.0_f64);
    // The first round compiles the kernels.
    for round in 0..=ROUNDS {
        for (rate, run) in [
            (&mut flops, Probe::compute as fn(&Probe) -> f64),
            (&mut bytes, Probe::copy),
        ] {
            if is_small && round > 1 {
                continue;
            }
            let start = Instant::now();
            let amount = run(&probe);
            *rate = rate.max(amount / start.elapsed().as_secs_f64());
        }
        for case in &mut cases {
            let start = Instant::now();
            for _ in 0..case.calls {
                (case.call)()?.force()?;
            }
            gpu.finish()?;
            if round > 0 {
                let seconds = start.elapsed().as_secs_f64() / case.calls as f64;
                case.best_seconds = case.best_seconds.min(seconds);
            }
        }
    }
    print(&caps.name, &cases, [flops, bytes]);
    match parts.is_empty() {
        true => small_operations(&gpu, if is_small { 100 } else { SMALL_OPS }),
        false => Ok(()),
    }
}

fn case<'a>(
    name: impl Into<String>,
    amount: f64,
    limit: Limit,
    calls: usize,
    call: impl Fn() -> lapidary::Result<Tensor> + 'a,
) -> Case<'a> {
    Case {
        name: name.into(),
        amount,
        limit,
        call: Box::new(call),
        calls,
        best_seconds: f64::INFINITY,
    }
}

/// Products of square matrices in f32 and f16. Each is checked first.
fn products(gpu: &Gpu, size: usize) -> Result<Vec<Case<'_>>> {
    let amount = 2.0 * (size as f64).powi(3);
    let mut cases = Vec::new();
    for (dtype, limit) in [(DType::F32, Limit::Singles), (DType::F16, Limit::Halves)] {
        // Integers from -2 to 2, whose sums are exact.
        let whole = |seed| -> lapidary::Result<Tensor> {
            let numbers = gpu.rand_uniform(&[size, size], -2.0, 3.0, seed, DType::F32)?;
            numbers.floor()?.cast(dtype)
        };
        let (a, b) = (whole(1)?, whole(2)?);
        check_product(&a, &b, size)?;
        cases.push(case(
            format!("matmul {size} x {size} x {size}, {dtype}"),
            amount,
            limit,
            4,
            move || a.matmul(&b),
        ));
    }
    Ok(cases)
}

/// Compares a few elements of a product with the host's.
fn check_product(a: &Tensor, b: &Tensor, size: usize) -> Result {
    let product = a.matmul(b)?;
    let read = |x: Tensor| x.cast(DType::F32)?.to_vec::<f32>();
    for (i, j) in [(0, 1), (size / 2 + 3, 5), (size - 1, size - 2)] {
        let [i, j] = [i as isize, j as isize];
        let (row, column) = (read(a.select(0, i)?)?, read(b.select(1, j)?)?);
        let expected: f32 = row.iter().zip(&column).map(|(a, b)| a * b).sum();
        let got = product.select(0, i)?.select(0, j)?;
        let got = got.cast(DType::F32)?.item::<f32>()?;
        // f16 represents integers up to 2048 exactly.
        if (got - expected).abs() > expected.abs() / 1024.0 {
            return Err(format!("element {i}, {j} of {a:?} by {b:?}: {got} for {expected}").into());
        }
    }
    Ok(())
}

fn elementwise(gpu: &Gpu, len: usize) -> Result<Vec<Case<'_>>> {
    let side = len.isqrt();
    let random = |seed| gpu.rand_uniform(&[side, side], -1.0, 1.0, seed, DType::F32);
    let [a, b, c, d] = [random(1)?, random(2)?, random(3)?, random(4)?];
    let bytes = |times: usize| (4 * times * side * side) as f64;
    let x = a.clone();
    let of = |name: &str, times, call: Box<dyn Fn() -> lapidary::Result<Tensor>>| {
        case(name, bytes(times), Limit::Memory, 8, call)
    };
    let (of_copy, of_transpose, of_gelu) = (a.clone(), a.t()?, a.clone());
    let (of_sum, of_half) = (a.clone(), a.cast(DType::F16)?);
    let other = b.clone();
    Ok(vec![
        of("copy", 2, Box::new(move || of_copy.copy())),
        of("transpose", 2, Box::new(move || of_transpose.contiguous())),
        of("add", 3, Box::new(move || &a + &other)),
        of("add a number, f16", 1, Box::new(move || &of_half + 1.0)),
        of(
            "relu(a*b+c)*d",
            5,
            Box::new(move || ((&x * &b)? + &c)?.relu()? * &d),
        ),
        of("gelu", 2, Box::new(move || of_gelu.gelu())),
        of("sum", 1, Box::new(move || of_sum.sum_all())),
    ])
}

/// Operations over each row.
fn rows(gpu: &Gpu, rows: usize, columns: usize) -> Result<Vec<Case<'_>>> {
    let x = gpu.rand_uniform(&[rows, columns], -4.0, 4.0, 5, DType::F32)?;
    let weight = gpu.ones(&[columns], DType::F32)?;
    let bytes = (8 * rows * columns) as f64;
    let of = |name: &str, call: Box<dyn Fn() -> lapidary::Result<Tensor>>| {
        case(
            format!("{name} {rows} x {columns}"),
            bytes,
            Limit::Memory,
            8,
            call,
        )
    };
    let (of_softmax, of_layer, of_bias) = (x.clone(), x.clone(), weight.clone());
    Ok(vec![
        of("softmax", Box::new(move || of_softmax.softmax(-1))),
        of(
            "layer norm",
            Box::new(move || of_layer.layer_norm(&[columns], Some(&of_bias), Some(&of_bias), 1e-5)),
        ),
        of(
            "rms norm",
            Box::new(move || x.rms_norm(&[columns], Some(&weight), 1e-5)),
        ),
    ])
}

fn print(adapter: &str, cases: &[Case<'_>], [flops, bytes]: [f64; 2]) {
    println!("| case | figure | share of what plain wgpu does | share of what its maker prints |");
    println!("| --- | --- | --- | --- |");
    for case in cases {
        let rate = case.amount / case.best_seconds;
        let (figure, unit) = match case.limit {
            Limit::Memory => (rate / 1e9, "GB/s"),
            _ => (rate / 1e12, "TFLOP/s"),
        };
        let measured = match case.limit {
            Limit::Singles => format!("{:.0} %", 100.0 * rate / flops),
            Limit::Memory => format!("{:.0} %", 100.0 * rate / bytes),
            Limit::Halves => "–".to_owned(),
        };
        let printed = match case.limit.printed(adapter) {
            Some(printed) => format!("{:.0} % of {}", 100.0 * rate / printed, case.limit.name()),
            None => "–".to_owned(),
        };
        println!(
            "| {} | {figure:.2} {unit} | {measured} | {printed} |",
            case.name
        );
    }
    println!(
        "\nPlain wgpu: multiply-adds in registers {:.2} TFLOP/s, copies {:.0} GB/s read and written.",
        flops / 1e12,
        bytes / 1e9
    );
}

/// Tiny operations in sequence with a read at the end. Some can be fused, others cannot.
fn small_operations(gpu: &Gpu, ops: usize) -> Result {
    let len = 256;
    let first = gpu.arange(0, len, 1, DType::F32)?;
    let next = ((gpu.arange(0, len, 1, DType::U32)? + 1)?).clamp(0, len - 1)?;
    for (name, step) in [
        (
            "x + 1",
            Box::new(|x: &Tensor| x + 1.0) as Box<dyn Fn(&Tensor) -> lapidary::Result<Tensor>>,
        ),
        (
            "x by an index",
            Box::new(|x: &Tensor| x.index_select(0, &next)),
        ),
    ] {
        let mut best_seconds = f64::INFINITY;
        for _ in 0..ROUNDS {
            let start = Instant::now();
            let mut x = first.clone();
            for _ in 0..ops {
                x = step(&x)?;
            }
            x.to_vec::<f32>()?;
            best_seconds = best_seconds.min(start.elapsed().as_secs_f64());
        }
        println!(
            "{ops} times {name}, and a read: {:.2} us each",
            1e6 * best_seconds / ops as f64
        );
    }
    Ok(())
}
