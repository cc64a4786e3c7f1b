//! The kernels, family by family, sampled by criterion: throughput in bytes (or flops) a second.
//!
//! ```text
//! cargo bench --bench ops [-- FILTER]
//! ```
//!
//! Each sample waits for the device, so small sizes show the price of a round trip.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use lapidary::{DType, Gpu, Options, Result, Tensor};

const ROWS: usize = 4096;
const COLUMNS: usize = 1024;
const SHAPE: [usize; 2] = [ROWS, COLUMNS];

/// Two matrices, a mask of the same shape, and an order of the rows.
struct Operands {
    gpu: Gpu,
    a: Tensor,
    b: Tensor,
    mask: Tensor,
    order: Tensor,
}

type Work = fn(&Operands) -> Result<Tensor>;

/// A name, bytes moved for each byte of a matrix at the least, and the call.
const FAMILIES: [(&str, f64, Work); 22] = [
    ("fill", 1.0, |of| of.gpu.full(&SHAPE, 2.5, DType::F32)),
    ("random normal", 1.0, |of| {
        of.gpu.rand_normal(&SHAPE, 0.0, 1.0, 7, DType::F32)
    }),
    ("add", 3.0, |of| &of.a + &of.b),
    ("add a row", 2.0, |of| &of.a + of.b.narrow(0, 0, 1)?),
    ("add a number", 2.0, |of| &of.a + 1.0),
    ("add in place", 3.0, |of| {
        of.b.add_(&of.a)?;
        Ok(of.b.clone())
    }),
    ("power", 3.0, |of| of.a.pow(&of.b)),
    ("greater", 2.25, |of| of.a.gt(&of.b)),
    ("where", 3.25, |of| of.mask.where_(&of.a, &of.b)),
    ("clamp", 2.0, |of| of.a.clamp(-1.0, 1.0)),
    ("exp", 2.0, |of| of.a.exp()),
    ("gelu", 2.0, |of| of.a.gelu()),
    ("cast to f16", 1.5, |of| of.a.cast(DType::F16)),
    ("transposed copy", 2.0, |of| of.a.t()?.contiguous()),
    ("concat", 4.0, |of| Tensor::concat(&[&of.a, &of.b], 0)),
    ("index select of rows", 2.0, |of| {
        of.a.index_select(0, &of.order)
    }),
    ("sum of rows", 1.0, |of| of.a.sum(&[1])),
    ("sum of columns", 1.0, |of| of.a.sum(&[0])),
    ("max of all", 1.0, |of| of.a.max_all()),
    ("argmax of rows", 1.0, |of| of.a.argmax(1)),
    ("softmax", 2.0, |of| of.a.softmax(1)),
    ("layer norm", 2.0, |of| {
        of.a.layer_norm(&[COLUMNS], None, None, 1e-5)
    }),
];

/// m, n, k of products.
const PRODUCTS: [[usize; 3]; 3] = [[512, 512, 512], [1, 2048, 2048], [2048, 64, 2048]];

fn operands() -> Result<Operands> {
    let gpu = Gpu::open(Options::default())?;
    let matrix = |seed| gpu.rand_normal(&SHAPE, 0.0, 1.0, seed, DType::F32);
    let (a, b) = (matrix(1)?, matrix(2)?);
    let mask = a.gt_scalar(0.0)?;
    let reversed: Vec<u32> = (0..ROWS as u32).rev().collect();
    let order = gpu.tensor(&reversed, &[ROWS])?;
    Ok(Operands {
        gpu,
        a,
        b,
        mask,
        order,
    })
}

fn families(criterion: &mut Criterion) {
    let of = operands().expect("an adapter to measure on");
    let gpu = &of.gpu;
    let bytes = (ROWS * COLUMNS * 4) as f64;
    let mut group = criterion.benchmark_group(gpu.caps().name.clone());
    group.sample_size(10);
    for (name, moved, work) in FAMILIES {
        group.throughput(Throughput::Bytes((moved * bytes) as u64));
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                let made = work(&of).expect("shapes that fit");
                gpu.finish().expect("a device that is there");
                made
            });
        });
    }
    for [m, n, k] in PRODUCTS {
        let matrix = |seed, shape: [usize; 2]| {
            let made = gpu.rand_normal(&shape, 0.0, 1.0, seed, DType::F32);
            made.expect("room")
        };
        let (a, b) = (matrix(3, [m, k]), matrix(4, [k, n]));
        group.throughput(Throughput::Elements((2 * m * n * k) as u64));
        group.bench_function(
            format!("matmul {m}x{n}x{k} (elements are flops)"),
            |bencher| {
                bencher.iter(|| {
                    let made = a.matmul(&b).expect("shapes that fit");
                    gpu.finish().expect("a device that is there");
                    made
                });
            },
        );
    }
    group.finish();
}

criterion_group!(benches, families);
criterion_main!(benches);
